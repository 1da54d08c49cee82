"""BatchReindex: any order, repetitions, omissions."""

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (5, 4, 3, 2)
ORDER = torch.tensor([2.0, 4, 0, 0, 2, 2], dtype=torch.float64)


def reindex(shape=SHAPE, permutation=(6,)):
    return make_layer('name: "b" type: "BatchReindex" bottom: "x" bottom: "i" top: "y"', [shape, permutation])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_agrees_with_autograd(layout):
    layer, shapes = reindex()
    assert shapes == [(6, 4, 3, 2)]
    check_against_autograd(layer, [random_input(SHAPE, layout), ORDER], lambda x, i: x[i.long()])


def test_gradient_agrees_with_differences():
    check_gradients(reindex((5, 2))[0], [random_input((5, 2)), ORDER])


def test_an_empty_choice_is_an_empty_batch():
    layer, shapes = reindex((5, 2), (0,))
    assert shapes == [(0, 2)]
    check_against_autograd(layer, [random_input((5, 2)), torch.zeros(0)], lambda x, i: x[i.long()])


def test_a_number_beyond_the_batch_is_named():
    with pytest.raises(DataError, match=r"value 5 at \[1\] of blob 'i' is no row number: there are 5 rows"):
        reindex((5, 2), (2,))[0].forward([random_input((5, 2)), torch.tensor([0.0, 5])])


def test_the_permutation_has_one_axis():
    with pytest.raises(NetError, match=r"has to have one axis; its shape is \(6, 1\)"):
        reindex(permutation=(6, 1))
    with pytest.raises(NetError, match="bottom 0 needs an axis"):
        reindex(())
