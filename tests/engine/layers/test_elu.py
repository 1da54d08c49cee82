"""ELU: what it keeps, and a fork's field."""

import pytest

from mgcaffe.errors import NetError
from tests.support.layerkit import make_layer
from tests.support.layouts import random_input


def elu(fields: str):
    return make_layer(f'name: "e" type: "ELU" bottom: "x" top: "y" elu_param {{ {fields} }}', [(4, 3)])[0]


@pytest.mark.parametrize(("alpha", "keeps_bottoms"), [(1, False), (0, False), (-1, True)])
def test_keeps_the_one_whose_sign_decides(alpha, keeps_bottoms):
    layer, x = elu(f"alpha: {alpha}"), random_input((4, 3))
    (y,) = layer.forward([x])
    assert (layer.keeps_bottoms, layer.keeps_tops) == (keeps_bottoms, not keeps_bottoms)
    assert layer.saved is (x if keeps_bottoms else y)


@pytest.mark.parametrize(("alpha", "in_place"), [(1, True), (-1, False)])
def test_writes_over_the_bottom_only_if_it_does_not_need_it(alpha, in_place):
    layer, x = elu(f"alpha: {alpha}"), random_input((4, 3))
    layer.may_overwrite_bottom = True
    assert (layer.forward([x])[0].data_ptr() == x.data_ptr()) is in_place


def test_a_forks_lambda_is_refused():
    with pytest.raises(NetError, match="lambda is a field of another Caffe"):
        elu("lambda: 1.05")
