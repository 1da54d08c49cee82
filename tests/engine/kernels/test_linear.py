import pytest
import torch

from mgcaffe.engine.kernels import linear, linear_ways, onednn, processor
from tests.support.layouts import random_input


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(3, 5, 4), (70, 300, 250), (300, 300, 250), (4, 1100, 1000)])
def test_every_size_agrees_with_float64(monkeypatch, fast, relu, bias, rows, inputs, outputs) -> None:
    if fast and not onednn.AVAILABLE:
        pytest.skip("this PyTorch has no oneDNN operators")
    monkeypatch.setattr(onednn, "AVAILABLE", fast)
    # With one of these only products with a large weight are left to oneDNN.
    monkeypatch.setattr(processor, "ON_AVX2", False)
    monkeypatch.setattr(processor, "FAST_MM", False)
    x, weight = random_input((rows, inputs)), random_input((outputs, inputs), seed=2)
    addend, dy = random_input((outputs,), seed=3), random_input((rows, outputs), seed=4)
    expected = x @ weight.t() + (addend if bias else 0)
    y = linear.forward(x.float(), weight.float(), addend.float() if bias else None, relu=relu)
    assert y.is_contiguous()
    torch.testing.assert_close(y.double(), expected.clamp(min=0) if relu else expected, rtol=1e-4, atol=1e-3)
    total = dy.float()
    linear.add_forward(total, x.float(), weight.float())
    torch.testing.assert_close(total.double(), dy + x @ weight.t(), rtol=1e-4, atol=1e-3)
    dx = linear.backward_data(dy.float(), weight.float())
    torch.testing.assert_close(dx.double(), dy @ weight, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "by_fast_mm", "of_x_on_intels", "otherwise"),
    [
        (1, 1100, 1000, ("mm", "mm", "mm"), "mm", ("exchanged", "onednn", "mm")),
        (16, 1100, 1000, ("exchanged", "mm", "mm"), "blocks", ("exchanged", "onednn", "onednn")),
        (15, 1100, 1000, ("exchanged", "mm", "mm"), "mm", ("exchanged", "onednn", "onednn")),
        (128, 1100, 1000, ("mm", "mm", "mm"), "blocks", ("onednn", "onednn", "onednn")),
        (129, 1100, 1000, ("mm", "mm", "mm"), "mm", ("onednn", "onednn", "onednn")),
        (64, 800, 500, ("mm", "mm", "mm"), "mm", ("onednn", "onednn", "onednn")),
        (16, 800, 500, ("mm", "mm", "mm"), "mm", ("mm", "mm", "mm")),
        (3, 4096, 4096, ("mm", "mm", "mm"), "mm", ("exchanged", "onednn", "onednn")),
        (4, 4096, 1000, ("exchanged", "mm", "mm"), "images", ("exchanged", "onednn", "onednn")),
        (15, 4096, 4096, ("exchanged", "mm", "mm"), "images", ("exchanged", "onednn", "onednn")),
        (16, 4096, 4096, ("exchanged", "mm", "mm"), "images", ("exchanged", "images", "onednn")),
        (32, 4096, 4096, ("exchanged", "mm", "mm"), "images", ("exchanged", "images", "onednn")),
        (33, 4096, 4096, ("exchanged", "mm", "mm"), "blocks", ("exchanged", "images", "onednn")),
        (64, 4096, 4096, ("exchanged", "mm", "mm"), "blocks", ("exchanged", "images", "onednn")),
        (52, 25000, 64, ("exchanged", "mm", "mm"), "blocks", ("exchanged", "onednn", "onednn")),
        (53, 25000, 64, ("exchanged", "mm", "mm"), "mm", ("exchanged", "onednn", "onednn")),
        (65, 4096, 4096, ("mm", "mm", "mm"), "blocks", ("onednn", "onednn", "onednn")),
    ],
)
def test_rules_go_by_sizes_and_the_class_of_processor(
    monkeypatch, rows, inputs, outputs, by_fast_mm, of_x_on_intels, otherwise
) -> None:
    x, dy, weight = torch.empty(rows, inputs), torch.empty(rows, outputs), torch.empty(outputs, inputs)
    on_intels = (by_fast_mm[0], of_x_on_intels, by_fast_mm[2])
    for is_avx2, is_fast, names in ((True, True, by_fast_mm), (False, True, on_intels), (False, False, otherwise)):
        monkeypatch.setattr(processor, "ON_AVX2", is_avx2)
        monkeypatch.setattr(processor, "FAST_MM", is_fast)
        forward = linear_ways.FORWARD.by_rule(linear_ways.Forward(x, weight, None, False))
        backward = linear_ways.BACKWARD_DATA.by_rule(linear_ways.BackwardData(dy, weight))
        gradient = linear_ways.ADD_PRODUCT.by_rule(linear_ways.AddProduct(weight, 0.0, dy, x))
        assert (forward.name, backward.name, gradient.name) == names
        narrow = linear_ways.AddProduct(weight, 0.0, dy.bfloat16(), x.bfloat16())
        assert linear_ways.ADD_PRODUCT.by_rule(narrow).name == "mm"


@pytest.mark.parametrize("block", [1, 12, 100])
def test_gradients_for_x_as_sums_over_blocks_are_those_of_one_product(monkeypatch, block) -> None:
    monkeypatch.setattr(linear_ways, "BLOCK", block)
    candidate = linear_ways.BACKWARD_DATA.candidates["blocks"]
    dy, weight = random_input((3, 7)), random_input((7, 5), seed=2)
    call = linear_ways.BackwardData(dy, weight)
    assert candidate.serves(call) == (block < 35)
    torch.testing.assert_close(candidate.run(call), dy @ weight)
    assert not candidate.serves(linear_ways.BackwardData(dy.bfloat16(), weight.bfloat16()))  # sums would be rounded
    assert not candidate.serves(linear_ways.BackwardData(dy, weight.t().contiguous().t()))


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(
    ("rows", "outputs", "is_intels"),
    [(1, 128, False), (16, 136, False), (17, 1024, False), (40, 4096, False), (17, 1000, True), (33, 4096, True)],
)
def test_gradients_for_x_as_those_of_filters_are_those_of_one_product(monkeypatch, rows, outputs, is_intels) -> None:
    monkeypatch.setattr(processor, "ON_AVX2", False)
    monkeypatch.setattr(processor, "FAST_MM", is_intels)
    candidate = linear_ways.BACKWARD_DATA.candidates["images"]
    dy, weight = random_input((rows, outputs)), random_input((outputs, 300), seed=2)
    call = linear_ways.BackwardData(dy.float(), weight.float())
    assert candidate.serves(call)
    dx = candidate.run(call)
    assert dx.is_contiguous()
    torch.testing.assert_close(dx.double(), dy @ weight, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(("rows", "outputs"), [(16, 120), (16, 132), (17, 1000)])
def test_images_do_not_serve_weights_that_are_no_16_images(monkeypatch, rows, outputs) -> None:
    monkeypatch.setattr(processor, "FAST_MM", False)
    candidate = linear_ways.BACKWARD_DATA.candidates["images"]
    dy, weight = torch.empty(rows, outputs), torch.empty(outputs, 300)
    assert not candidate.serves(linear_ways.BackwardData(dy, weight))


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
def test_images_serve_weights_in_order_of_float32_alone() -> None:
    candidate = linear_ways.BACKWARD_DATA.candidates["images"]
    dy, weight = torch.empty(16, 128), torch.empty(128, 300)
    assert candidate.serves(linear_ways.BackwardData(dy, weight))
    assert not candidate.serves(linear_ways.BackwardData(dy, torch.empty(300, 128).t()))
    assert not candidate.serves(linear_ways.BackwardData(dy.bfloat16(), weight.bfloat16()))
    assert not candidate.serves(linear_ways.BackwardData(dy.double(), weight.double()))


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize(("dtype", "names"), [(torch.bfloat16, ("onednn", "onednn")), (torch.float64, ("mm", "mm"))])
def test_rules_for_intels_processors_hold_for_float32(monkeypatch, dtype, names) -> None:
    monkeypatch.setattr(processor, "ON_AVX2", False)
    monkeypatch.setattr(processor, "FAST_MM", True)
    monkeypatch.setattr(onednn, "TYPES", (torch.float32, torch.bfloat16))
    x, dy, weight = (torch.empty(shape, dtype=dtype) for shape in ((128, 1100), (128, 1000), (1000, 1100)))
    forward = linear_ways.FORWARD.by_rule(linear_ways.Forward(x, weight, None, False))
    backward = linear_ways.BACKWARD_DATA.by_rule(linear_ways.BackwardData(dy, weight))
    assert (forward.name, backward.name) == names


def test_products_replace_or_add() -> None:
    left, right = random_input((7, 3)), random_input((7, 4), seed=2)
    total = torch.full((3, 4), float("nan"), dtype=torch.float64)
    linear.add_product(total, left, right, 0.0)
    torch.testing.assert_close(total, left.t() @ right)
    linear.add_product(total, left, right, 1.0)
    torch.testing.assert_close(total, 2 * left.t() @ right)


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this PyTorch has no oneDNN operators")
@pytest.mark.parametrize("rows_of_a_piece", [1, 3, 100])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_gradients_made_in_pieces_are_those_made_at_once(rows_of_a_piece, beta, monkeypatch):
    monkeypatch.setattr(linear_ways, "PIECE", rows_of_a_piece * 11)
    left, right = random_input((5, 7)), random_input((5, 11), seed=2)
    total = random_input((7, 11), seed=3).float() if beta else torch.full((7, 11), float("nan"))
    expected = left.t() @ right + (total if beta else 0)
    linear_ways.ADD_PRODUCT.candidates["onednn"].run(linear_ways.AddProduct(total, beta, left.float(), right.float()))
    torch.testing.assert_close(total.double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_instructions", [True, False])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_gradient_from_16_bits_is_rounded_once_piece_by_piece_and_added_in_float32(
    has_instructions, beta, monkeypatch
):
    monkeypatch.setattr(processor, "multiplies_bf16", lambda: has_instructions)
    left, right = random_input((5, 7)).bfloat16(), random_input((5, 11), seed=2).bfloat16()
    total = random_input((7, 11), seed=3).float() if beta else torch.full((7, 11), float("nan"))
    expected = (left.float().t() @ right.float()).bfloat16().float() + (total if beta else 0)
    made, empty_like = [], torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda like, dtype: made.append((like.shape, dtype)) or empty_like(like, dtype=dtype)
    )
    monkeypatch.setattr(linear_ways, "PIECE", 3 * 11)
    linear.add_product(total, left, right, beta)
    assert made == [((rows, 11), torch.bfloat16) for rows in (3, 3, 1)]
    torch.testing.assert_close(total, expected, rtol=2 * torch.finfo(torch.bfloat16).eps, atol=1e-6)
    if not beta:
        assert torch.equal(total, total.bfloat16().float())


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize(
    ("rows", "has_instructions", "fast_mm", "on_avx2", "is_large", "is_rounded"),
    [
        (32, True, True, False, True, False), (33, True, True, False, True, True), (32, True, False, False, True, True),
        (32, True, True, True, True, True), (32, True, True, False, False, True),
        (33, False, False, False, True, False), (33, False, False, False, False, True),
    ],
)  # fmt: skip
def test_a_large_gradient_is_not_rounded_where_operands_are_widened(
    rows, has_instructions, fast_mm, on_avx2, is_large, is_rounded, beta, monkeypatch
):
    """Over few rows where float32 is fast, and over all where 16 bits are slow."""
    monkeypatch.setattr(processor, "multiplies_bf16", lambda: has_instructions)
    monkeypatch.setattr(processor, "FAST_MM", fast_mm)
    monkeypatch.setattr(processor, "ON_AVX2", on_avx2)
    monkeypatch.setattr(linear_ways, "LARGE_WEIGHT", 7 * 11 + (not is_large))
    left, right = random_input((rows, 7)).bfloat16(), random_input((rows, 11), seed=2).bfloat16()
    total = random_input((7, 11), seed=3).float() if beta else torch.full((7, 11), float("nan"))
    before = total.clone() if beta else torch.zeros(7, 11)
    exact = left.double().t() @ right.double()
    linear.add_product(total, left, right, beta)
    added = total.double() - before.double()
    assert torch.allclose(added, exact, rtol=1e-5, atol=1e-5) != is_rounded
    of_values = left.double().abs().t() @ right.double().abs()
    assert ((added - exact).abs() <= 2**-7 * of_values).all()
