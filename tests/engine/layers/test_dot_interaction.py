"""DotInteraction: against DLRM's interaction in PyTorch and against differences, and its errors."""

import pytest
import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import random_input

FORMS = {
    "one_by_one": [(5, 4)] * 4,
    "joined": [(5, 4, 4)],
    "beside_x": [(5, 4), (5, 3, 4)],
    "mixed": [(5, 2, 4), (5, 4), (5, 1, 4)],
}


def interaction(shapes, diagonal: bool = False) -> Layer:
    bottoms = " ".join(f'bottom: "b{number}"' for number in range(len(shapes)))
    fields = f"dot_interaction_param {{ diagonal: {str(diagonal).lower()} }}"
    return make_layer(f'name: "d" type: "DotInteraction" {bottoms} top: "y" {fields}', shapes)[0]


def of_dlrm(diagonal: bool):
    """The dot interaction of dlrm_s_pytorch.py, on vectors in one tensor or several."""

    def interact(*bottoms: torch.Tensor) -> torch.Tensor:
        vectors = torch.cat([x.reshape(len(x), -1, x.shape[-1]) for x in bottoms], dim=1)
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        offset = 1 if diagonal else 0
        count = products.shape[1]
        li = torch.tensor([i for i in range(count) for j in range(i + offset)])
        lj = torch.tensor([j for i in range(count) for j in range(i + offset)])
        return torch.cat([vectors[:, 0], products[:, li, lj]], dim=1)

    return interact


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_agrees_with_dlrm(form, diagonal):
    shapes = FORMS[form]
    layer = interaction(shapes, diagonal)
    assert layer.reshape(shapes) == [(5, 4 + (10 if diagonal else 6))]
    check_against_autograd(
        layer, [random_input(shape, seed=seed) for seed, shape in enumerate(shapes)], of_dlrm(diagonal)
    )


@pytest.mark.parametrize("diagonal", [False, True])
def test_gradient_agrees_with_differences(diagonal):
    shapes = [(2, 3), (2, 2, 3)]
    check_gradients(interaction(shapes, diagonal), [random_input(shape) for shape in shapes])


def test_the_kaggle_model_gets_367_values():
    assert interaction([(2, 16)] * 27).reshape([(2, 16)] * 27) == [(2, 367)]


def test_gradients_that_nobody_wants_are_left_out_and_no_items_pass():
    layer = interaction(FORMS["beside_x"])
    layer.forward([random_input(shape) for shape in FORMS["beside_x"]])
    dx, others = layer.backward([random_input((5, 10))], [False, True])
    assert dx is None and others.shape == (5, 3, 4)
    empty = [(0, 4), (0, 3, 4)]
    layer.reshape(empty)
    (y,) = layer.forward([torch.zeros(shape, dtype=torch.float64) for shape in empty])
    assert [tuple(each.shape) for each in (y, *layer.backward([y], [True, True]))] == [(0, 10), *empty]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 4), (2, 5)], r"bottom 1 has shape \(2, 5\), which differs from bottom 0's, \(2, 4\)"),
        ([(2, 4), (3, 4)], r"in the number of items or the size of vectors"),
        ([(2, 4), (2, 1, 1, 4)], r"bottom 1 has shape \(2, 1, 1, 4\), not \(N, d\)"),
        ([(2, 4)], "the bottoms hold 1 vector.* an item, of which there are no pairs"),
    ],
)
def test_errors(shapes, message):
    with pytest.raises(NetError, match=message):
        interaction(shapes)
