"""ReLU and sums over numbers of 16 bits: the bits of PyTorch's operators, but for gradients where y is nan."""

from __future__ import annotations

import pytest
import torch

from mgcaffe.engine.kernels import elementwise, processor

NARROW = [torch.bfloat16, torch.float16]


def every_number(dtype: torch.dtype) -> torch.Tensor:
    """Return all 65536 bit patterns."""
    return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the bits of x, all nan alike, and zero without a sign."""
    x = torch.where(x == 0, torch.zeros_like(x), x)
    return torch.where(x.isnan(), torch.full_like(x, float("nan")), x).view(torch.int16)


@pytest.mark.parametrize("dtype", NARROW)
def test_relu_of_every_number_of_16_bits_is_pytorchs(dtype):
    x = every_number(dtype)
    expected = bits(torch.relu(x))
    assert torch.equal(bits(elementwise.relu(x)), expected)
    assert torch.equal(x.view(torch.int16), every_number(dtype).view(torch.int16))
    assert elementwise.relu_(x) is x
    assert torch.equal(bits(x), expected)
    assert not torch.signbit(x[x == 0]).any()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("in_place", [False, True])
def test_the_gradient_of_every_number_of_16_bits_is_pytorchs(dtype, in_place):
    y = elementwise.relu(every_number(dtype))
    dy = torch.randn(len(y)).to(dtype)
    expected = torch.ops.aten.threshold_backward(dy, y, 0)
    expected[y.isnan() & torch.signbit(y)] = 0  # as in Caffe
    dx = elementwise.relu_backward(dy, y, dy if in_place else None)
    assert torch.equal(bits(dx), bits(expected)) and dx.dtype == dtype
    assert (dx.data_ptr() == dy.data_ptr()) == in_place


def test_a_gradient_of_another_type_than_y_is_masked_as_well():
    y, dy = torch.tensor([0.0, 1, 2]).bfloat16(), torch.tensor([3.0, 4, 5])
    assert elementwise.relu_backward(dy, y).tolist() == [0, 4, 5]
    assert elementwise.relu_backward(dy, y, dy).tolist() == [0, 4, 5] == dy.tolist()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_narrow_gradient_of_a_wider_y_is_masked_as_well(memory_format):
    y, dy = (torch.randn(2, 3, 4, 5).contiguous(memory_format=memory_format) for _ in range(2))
    y, dy = y.relu(), dy.bfloat16()
    expected = dy.float() * (y > 0)
    assert torch.equal(elementwise.relu_backward(dy, y).float(), expected)
    assert torch.equal(elementwise.relu_backward(dy, y, dy).float(), expected)
    assert dy.dtype == torch.bfloat16 and torch.equal(dy.float(), expected)


def test_other_types_are_pytorchs():
    x = torch.tensor([-1.0, 0, 2, float("nan")], dtype=torch.float64)
    assert elementwise.relu(x)[:3].tolist() == [0, 0, 2] and elementwise.relu(x)[3].isnan()
    assert elementwise.relu_(x) is x and x[:3].tolist() == [0, 0, 2] and x[3].isnan()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "lay_out",
    [
        lambda x: x,
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.flatten(),
        lambda x: x.transpose(1, 2),
        lambda x: x[:, ::2],
    ],
)
@pytest.mark.parametrize("is_intels", [False, True])
@pytest.mark.parametrize("alpha", [1, -1])
def test_sums_in_pieces_have_the_bits_of_whole_ones(monkeypatch, dtype, lay_out, is_intels, alpha):
    monkeypatch.setattr(elementwise, "_PIECE", 50)
    monkeypatch.setattr(elementwise, "_WORTH_PIECES", 400)
    monkeypatch.setattr(processor, "is_intels", lambda: is_intels)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for shape in ((2, 5, 8, 9), (1, 2, 3, 4), (0, 2, 3, 4)):
        whole, other = (torch.randn(shape).to(dtype) for _ in range(2))
        total, x = lay_out(whole), lay_out(other)
        expected, untouched = torch.add(total, x, alpha=alpha), whole.clone()
        assert elementwise.add_(total, x, alpha) is total
        assert torch.equal(total, expected)
        lay_out(untouched).copy_(expected)
        if lay_out(whole).data_ptr() == whole.data_ptr():  # what a view leaves out stays as it was
            assert torch.equal(whole, untouched)


@pytest.mark.parametrize(
    ("lay_out", "is_intels", "values", "expected"),
    [
        (lambda x: x, True, 400, True),
        (lambda x: x.contiguous(memory_format=torch.channels_last), True, 400, True),
        (lambda x: x[:, ::2], True, 400, False),
        (lambda x: x.transpose(1, 2), True, 400, False),
        (lambda x: x, False, 400, False),
        (lambda x: x, True, 721, False),
        (lambda x: x.float(), True, 400, False),
    ],
)
def test_sums_are_made_in_pieces_where_that_is_worth_it(monkeypatch, lay_out, is_intels, values, expected):
    monkeypatch.setattr(elementwise, "_PIECE", 50)
    monkeypatch.setattr(elementwise, "_WORTH_PIECES", values)
    monkeypatch.setattr(processor, "is_intels", lambda: is_intels)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    pieces = []
    whole = torch.add
    monkeypatch.setattr(torch, "add", lambda *values, **options: pieces.append(1) or whole(*values, **options))
    total, x = (lay_out(torch.randn(2, 5, 8, 9).bfloat16()) for _ in range(2))
    elementwise.add_(total, x)
    assert len(pieces) == (8 if expected else 0)


@pytest.mark.parametrize(
    "other", [lambda x: x.contiguous(), lambda x: torch.randn(x.shape).contiguous(memory_format=torch.channels_last)]
)
def test_sums_of_tensors_that_lie_otherwise_are_pytorchs(monkeypatch, other):
    monkeypatch.setattr(elementwise, "_WORTH_PIECES", 0)
    monkeypatch.setattr(processor, "is_intels", lambda: True)
    total = torch.randn(2, 3, 4, 5).bfloat16().contiguous(memory_format=torch.channels_last)
    x = other(torch.randn(2, 3, 4, 5).bfloat16())
    expected = total.clone().add_(x)
    assert torch.equal(elementwise.add_(total, x), expected)


def test_a_tensor_is_added_to_itself(monkeypatch):
    monkeypatch.setattr(elementwise, "_WORTH_PIECES", 0)
    monkeypatch.setattr(processor, "is_intels", lambda: True)
    x = torch.randn(1000).bfloat16()
    expected = 2 * x
    assert torch.equal(elementwise.add_(x, x), expected)
