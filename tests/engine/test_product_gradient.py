"""Gradients that are kept as the two matrices whose product they are."""

import pytest
import torch

from mgcaffe.engine import product_gradient
from mgcaffe.engine.kernels import linear, linear_ways
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, Forced
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.product_gradient import ProductGradient, add_product, suits_product

ROWS, COLUMNS = 48, 21


def operands(batch=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(batch)
    return tuple(torch.randn(batch, size, generator=generator).to(dtype) for size in (ROWS, COLUMNS))


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 32 rows, the last of which has 16."""
    monkeypatch.setattr(linear_ways, "PIECE", 33 * COLUMNS)


def kept(left, right, choices=RULES, dtype=torch.float32):
    return ProductGradient(torch.full((ROWS, COLUMNS), 7.0, dtype=dtype), left, right, choices)


@pytest.mark.parametrize("way", ["mm", "onednn"])
def test_pieces_are_the_rows_of_the_product(small_pieces, way):
    left, right = operands()
    choices = Forced(way)
    pieces = [(rows, piece.clone()) for rows, piece in kept(left, right, choices).pieces()]
    assert [rows for rows, _ in pieces] == [slice(0, 32), slice(32, 48)]
    assert choices.used == {"inner product backward weight"}
    found = torch.cat([piece for _, piece in pieces])
    torch.testing.assert_close(found.double(), left.double().t() @ right.double(), rtol=1e-5, atol=1e-5)


def test_pieces_use_one_memory(small_pieces):
    places = {piece.data_ptr() for _, piece in kept(*operands()).pieces()}
    assert len(places) == 1


def test_what_the_matrices_hold_later_counts_times_the_factor(small_pieces):
    left, right = operands()
    product = ProductGradient(torch.empty(ROWS, COLUMNS), left, right, RULES, factor=3)
    left.mul_(2)
    total = torch.full((ROWS, COLUMNS), torch.nan)
    product.write(total)
    torch.testing.assert_close(total, 3 * left.t() @ right)
    torch.testing.assert_close(torch.cat([piece.clone() for _, piece in product.pieces()]), total)


class Asked(Choices):
    """Takes the rule's candidate, and keeps the shape of the product that it is asked for."""

    def __init__(self):
        self.shapes = []

    def candidate(self, operation, call):
        self.shapes.append(tuple(call.total.shape))
        return super().candidate(operation, call)


def test_pieces_are_computed_as_was_chosen_for_the_whole_product(small_pieces):
    choices = Asked()
    product = kept(*operands(), choices)
    product.write(torch.empty(ROWS, COLUMNS))
    assert len([*product.pieces()]) == 2 and choices.shapes == [(ROWS, COLUMNS)]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("widens", [False, True])
def test_operands_of_16_bits_give_the_bits_of_a_product_that_is_added_at_once(small_pieces, monkeypatch, large, widens):
    monkeypatch.setattr(linear_ways, "LARGE_WEIGHT", ROWS * COLUMNS if large else 1 << 30)
    monkeypatch.setattr(linear_ways, "suits_float32", lambda rows: widens)
    monkeypatch.setattr(linear, "needs_float32", lambda rows: False)
    left, right = operands(dtype=torch.bfloat16)
    at_once, total = torch.empty(ROWS, COLUMNS), torch.empty(ROWS, COLUMNS)
    linear.add_product(at_once, left, right, 0.0)
    kept(left, right).write(total)
    assert torch.equal(total, at_once)
    assert torch.equal(total, total.bfloat16().float()) == (not (large and widens))


def test_only_much_smaller_matrices_of_large_products_are_kept():
    assert suits_product(16, (4096, 9216)) and suits_product(256, (4096, 4096)) and suits_product(1, (1024, 1024))
    assert suits_product(1, (2048, 512)) and suits_product(1, (512, 2048))
    assert not suits_product(257, (4096, 4096))  # an eighth of the product
    assert not suits_product(1, (1024, 1023))  # below 2^20 values
    assert not suits_product(0, (4096, 4096))  # no rows: zeros


@pytest.mark.parametrize(
    ("place", "value", "dtype", "finite"),
    [
        (0, 1.0, torch.float32, True),
        (0, torch.nan, torch.float32, False),
        (1, torch.inf, torch.float32, False),
        (0, 1e38, torch.float32, False),  # some products overflow
        (0, 1e38, torch.float64, True),
        (0, 1e308, torch.float64, False),
        (1, 6e4, torch.float16, False),
    ],
)
def test_a_product_is_surely_finite_where_its_largest_values_are_small(place, value, dtype, finite):
    matrices = operands(dtype=dtype)
    matrices[0][0, 0] = matrices[1][0, 0] = 4.0
    matrices[place][3, 2] = value
    assert kept(*matrices, dtype=torch.float64).is_surely_finite == finite


@pytest.fixture
def parameter(monkeypatch):
    """A parameter that keeps any product, with another gradient of an earlier iteration."""
    monkeypatch.setattr(product_gradient, "suits_product", lambda rows, shape: True)
    parameter = Parameter((ROWS, COLUMNS), keeps_product=True)
    parameter.diff = torch.full((ROWS, COLUMNS), 3.0)
    return parameter


def test_a_parameter_keeps_the_first_product(parameter):
    left, right = operands()
    expected = left.t() @ right
    add_product(parameter, left, right, RULES)
    assert parameter.product is not None and not parameter.fresh
    assert (parameter.diff == 3).all()
    left.fill_(9)
    right.fill_(9)
    for looked_at in (parameter.dense_diff(), parameter.gradient_values()):
        torch.testing.assert_close(looked_at, expected)
    assert parameter.product is not None
    parameter.complete()
    assert parameter.product is None
    torch.testing.assert_close(parameter.diff, expected)


@pytest.mark.parametrize("way", ["accumulate", "accumulate_sum", "beta"])
def test_other_ways_to_add_to_a_kept_product_count(parameter, way):
    left, right = operands()
    add_product(parameter, left, right, RULES)
    more = torch.ones(2, ROWS, COLUMNS)
    if way == "accumulate":
        parameter.accumulate(2 * more[0])
    elif way == "accumulate_sum":
        parameter.accumulate_sum(more)
    else:
        parameter.diff.mul_(parameter.beta()).add_(2)
    assert parameter.product is None
    torch.testing.assert_close(parameter.diff, left.t() @ right + 2)


def test_a_zeroed_gradient_is_no_product(parameter):
    add_product(parameter, *operands(), RULES)
    parameter.clear_diff()
    assert parameter.product is None and not parameter.dense_diff().any()


def test_a_product_of_an_earlier_iteration_does_not_count(parameter):
    left, right = operands()
    add_product(parameter, *operands(3), RULES)
    parameter.fresh = True
    add_product(parameter, left, right, RULES)
    torch.testing.assert_close(parameter.dense_diff(), left.t() @ right)


def test_what_is_added_to_a_kept_product_counts(parameter):
    (left, right), (more_left, more_right) = operands(), operands(3)
    add_product(parameter, left, right, RULES)
    add_product(parameter, more_left, more_right, RULES)
    assert parameter.product is None
    torch.testing.assert_close(parameter.diff, left.t() @ right + more_left.t() @ more_right)


def test_a_parameter_that_keeps_none_adds_the_product(parameter):
    parameter.keeps_product, parameter.fresh = False, False
    left, right = operands()
    add_product(parameter, left, right, RULES)
    assert parameter.product is None
    torch.testing.assert_close(parameter.gradient_values(), 3 + left.t() @ right)
