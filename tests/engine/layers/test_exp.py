"""Exp: bases that are none."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer


def exp(fields: str):
    return make_layer(f'name: "e" type: "Exp" bottom: "x" top: "y" exp_param {{ {fields} }}', [(2,)])[0]


def test_base_one_is_constant():
    assert exp("base: 1 scale: 3").forward([torch.tensor([-5.0, 7])])[0].tolist() == [1, 1]


@pytest.mark.parametrize("base", ["0", "-2", "inf", "nan"])
def test_base_has_to_be_above_zero(base):
    with pytest.raises(NetError, match="base has to be above 0, or -1 for e, not"):
        exp(f"base: {base}")
