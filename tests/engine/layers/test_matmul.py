"""MatMul: against PyTorch's own and against differences, in 16 bits, and its errors."""

import pytest
import torch

from mgcaffe.engine.kernels import precision
from mgcaffe.engine.kernels.precision import BF16, FP16
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import random_input

FORMS = {(a, b): ((4, 3) if a else (3, 4), (5, 4) if b else (4, 5)) for a in (False, True) for b in (False, True)}


def matmul(shapes, turns=(False, False), context: LayerContext | None = None) -> Layer:
    fields = " ".join(f"transpose_{name}: {str(turn).lower()}" for name, turn in zip("ab", turns, strict=True))
    text = f'name: "m" type: "MatMul" bottom: "a" bottom: "b" top: "y" matmul_param {{ {fields} }}'
    return make_layer(text, shapes, context=context)[0]


@pytest.mark.parametrize("before", [(), (2,), (2, 3)])
@pytest.mark.parametrize("turns", FORMS)
def test_agrees_with_autograd(turns, before):
    shapes = [(*before, *shape) for shape in FORMS[turns]]
    layer = matmul(shapes, turns)
    assert layer.reshape(shapes) == [(*before, 3, 5)]
    check_against_autograd(
        layer,
        [random_input(shape, seed=seed) for seed, shape in enumerate(shapes)],
        lambda a, b: torch.matmul(a.mT if turns[0] else a, b.mT if turns[1] else b),
    )


@pytest.mark.parametrize("turns", FORMS)
def test_gradient_agrees_with_differences(turns):
    shapes = [(2, *shape) for shape in FORMS[turns]]
    check_gradients(matmul(shapes, turns), [random_input(shape) for shape in shapes])


def test_gradients_that_nobody_wants_are_left_out_and_no_items_pass():
    shapes = [(2, 3, 4), (2, 4, 5)]
    layer = matmul(shapes)
    layer.forward([random_input(shape) for shape in shapes])
    da, db = layer.backward([random_input((2, 3, 5))], [False, True])
    assert da is None and db.shape == (2, 4, 5)
    empty = [(0, 3, 4), (0, 4, 5)]
    layer.reshape(empty)
    (y,) = layer.forward([torch.zeros(shape, dtype=torch.float64) for shape in empty])
    assert [tuple(each.shape) for each in (y, *layer.backward([y], [True, True]))] == [(0, 3, 5), *empty]


def test_its_operations_are_counted():
    shapes = [(2, 3, 4), (2, 4, 5)]
    assert matmul(shapes).macs(shapes, [(2, 3, 5)]) == 2 * 3 * 4 * 5


@pytest.mark.parametrize("rounding", [BF16, FP16])
@pytest.mark.parametrize("has_products", [False, True])
def test_operands_are_rounded_and_results_are_wide(rounding, has_products, monkeypatch):
    monkeypatch.setattr(precision, "_has_products", lambda operands: has_products)
    shapes = [(2, 3, 64), (2, 64, 5)]
    layer = matmul(shapes, context=LayerContext(precision=rounding))
    a, b = (random_input(shape, seed=seed).float() for seed, shape in enumerate(shapes))
    dy = random_input((2, 3, 5), seed=7).float()
    (y,) = layer.forward([a, b])
    da, db = layer.backward([dy], [True, True])
    a, b, dy = (each.to(rounding.operands).double() for each in (a, b, dy))
    for found, exact in ((y, a @ b), (da, dy @ b.mT), (db, a.mT @ dy)):
        assert found.dtype == torch.float32
        apart = (found - exact).abs().max() / exact.abs().max()
        assert apart < (2**-8 if has_products else 1e-6)


@pytest.mark.parametrize(
    ("shapes", "turns", "message"),
    [
        ([(2, 3, 4), (2, 5, 6)], (False, False), "its matrices are 3 x 4 and 5 x 6, which have no product"),
        ([(2, 3, 4), (2, 3, 4)], (True, True), "its matrices are 4 x 3 and 4 x 3, which have no product"),
        ([(2, 3, 4), (3, 4, 5)], (False, False), r"bottom 1 has shape \(3, 4, 5\), and bottom 0 \(2, 3, 4\): the axes"),
        ([(2, 3, 4), (4, 5)], (False, False), "the axes before the last two have to be the same"),
        ([(4,), (4, 5)], (False, False), r"bottom 0 has shape \(4,\), which holds no matrices"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(shapes, turns, message):
    with pytest.raises(NetError, match=message):
        matmul(shapes, turns).reshape(shapes)
