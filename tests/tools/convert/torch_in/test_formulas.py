"""Operators that are formulas of several layers: these compute and learn the same, also near zero and far from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature

import pytest
import torch
from torch import nn

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import Function, check_training_step, converted, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional
ROWS = (3, 4, 6)
IMAGES = (3, 4, 6, 6)


class Learning(nn.Module):
    """A function of what is learned of the input, of the input, and, if it takes it, of a matrix of parameters."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(6, 6), function
        if len(signature(function).parameters) == 3:
            self.matrix = nn.Parameter(torch.ones(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = [self.matrix] if hasattr(self, "matrix") else []
        found: torch.Tensor = self.function(self.linear(x), x, *own)
        return found


def _written_out(y: torch.Tensor) -> torch.Tensor:
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)


def _normalized(y: torch.Tensor, spread: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    if spread.dim() < y.dim():
        spread, mean = spread.unsqueeze(-1), mean.unsqueeze(-1)
    return (y - mean) / (spread + 0.1)


_LENGTH = ["Reduction", "Reshape", "Power", "Power", "ReLU", "Eltwise", "Power", "Flatten", "Scale"]
_RMS = ["InnerProduct", "Power", "Reduction", "Power", "Scale"]
_ZEROS = torch.tensor([1.0, 0.0, 1e-7, 1.0])[:, None]

# A function of Learning's three, the shape of its input, the number of classes of its output, and the types of its
# layers (None: a product of others that are checked).
CASES = {
    "rms_norm": (lambda y, x: F.rms_norm(y, (6,)), ROWS, 4, _RMS),
    "rms_norm_with_a_weight": (lambda y, x, w: F.rms_norm(y, (4, 6), w, 1e-2), ROWS, 4, [*_RMS, "Scale"]),
    "rms_norm_with_a_weight_that_is_computed": (
        lambda y, x, w: F.rms_norm(y, (6,), 1 + w.mean(0), 1e-6), ROWS, 4,
        ["InnerProduct", "Parameter", "Permute", "Reduction", "Power", *_RMS[1:], "Scale"]),
    "rms_norm_of_images": (lambda y, x: F.rms_norm(y, (6, 6)), IMAGES, 4,
                           ["InnerProduct", "Power", "Pooling", "Flatten", "Power", "Scale"]),
    "rms_norm_of_small_values": (lambda y, x: F.rms_norm(y * _ZEROS, (6,), eps=1e-12), ROWS, 4, None),
    "rms_norm_written_out": (lambda y, x: _written_out(y), ROWS, 4, None),
    "cosine_similarity": (lambda y, x: F.cosine_similarity(y, x, dim=2), ROWS, 4,
                          ["InnerProduct", *_LENGTH, *_LENGTH, "Eltwise", "Reduction"]),
    "cosine_similarity_of_channels": (lambda y, x: F.cosine_similarity(y, x), ROWS, 6, None),
    "cosine_similarity_of_tiny_vectors": (
        lambda y, x: F.cosine_similarity(y * 1e-5, x * 1e-10, dim=2), ROWS, 4, None),
    "cosine_similarity_of_zeros": (lambda y, x: F.cosine_similarity(y, x * _ZEROS * 0.01, dim=2), ROWS, 4, None),
    "cosine_similarity_with_a_large_eps": (
        lambda y, x: F.cosine_similarity(y, x, dim=-1, eps=1.0), ROWS, 4, None),
    "cosine_similarity_with_a_vector_for_all": (
        lambda y, x: F.cosine_similarity(y, x[:, :1].expand(-1, 4, -1), dim=1), ROWS, 6, None),
    "cosine_similarity_with_parameters": (
        lambda y, x, w: F.cosine_similarity(y.unsqueeze(1), w, dim=-1), (3, 6), 4, None),
    "cosine_similarity_with_fewer_axes": (
        lambda y, x, w: F.cosine_similarity(y.transpose(1, 2), w[:, 0], dim=2), ROWS, 6, None),
    "cosine_similarity_with_one_value_for_all": (
        lambda y, x: F.cosine_similarity(y, x[:, :1], dim=1), ROWS, 6, None),
    "cosine_similarity_along_an_axis_that_one_has_not": (
        lambda y, x, w: F.cosine_similarity(y, w[0], dim=1), ROWS, 6, None),
    "cosine_similarity_along_an_axis_of_size_1": (
        lambda y, x, w: F.cosine_similarity(w[:1], y, dim=1), ROWS, 6, None),
    "pairwise_distance": (lambda y, x: F.pairwise_distance(y, x), ROWS, 4,
                          ["InnerProduct", "Eltwise", "Power", "Reduction", "Power"]),
    "pairwise_distance_from_parameters": (
        lambda y, x, w: F.pairwise_distance(y.unsqueeze(1), w, p=1, eps=0.01), (3, 6), 4, None),
    "pairwise_distance_without_eps": (lambda y, x: F.pairwise_distance(y, x, eps=0, keepdim=True) * y, ROWS, 4, None),
    "normalize_by_absolute_values": (lambda y, x: F.normalize(y, p=1, dim=2), ROWS, 4, None),
    "normalize_by_the_largest": (lambda y, x: F.normalize(y, p=math.inf, dim=-1), ROWS, 4, None),
    "norm_that_is_the_smallest": (lambda y, x: torch.linalg.vector_norm(y, -math.inf, 2), ROWS, 4,
                                  ["InnerProduct", "AbsVal", "Power", "Reshape", "Pooling", "Power", "Flatten"]),
    "logsumexp": (lambda y, x: y.logsumexp(-1), ROWS, 4,
                  ["InnerProduct", "Reshape", "Pooling", "Reshape", "Power", "Flatten", "Bias", "Exp", "Reduction",
                   "Log", "Flatten", "Eltwise"]),
    "logsumexp_of_large_values": (lambda y, x: (y * 500).logsumexp(1), ROWS, 6, None),
    "logsumexp_of_equal_values": (lambda y, x: y.relu().logsumexp(2), ROWS, 4, None),
    "logsumexp_of_several_axes": (lambda y, x: y.logsumexp((-1, 1)), IMAGES, 6, None),
    "logsumexp_that_keeps_its_axes": (lambda y, x: y - y.logsumexp((2, 3), keepdim=True), IMAGES, 4, None),
    "var": (lambda y, x: y.var(-1), ROWS, 4,
            ["InnerProduct", "Reduction", "Reshape", "Power", "Flatten", "Bias", "Reduction", "Power"]),
    "var_of_all_values": (lambda y, x: y.var(1, unbiased=False), ROWS, 6, None),
    "var_with_a_correction": (lambda y, x: y * y.var((2, 3), correction=0, keepdim=True), IMAGES, 4, None),
    "var_far_from_zero": (lambda y, x: (y + 1000).var(1), ROWS, 6, None),
    "std": (lambda y, x: y.std(1), ROWS, 6, None),
    "std_with_a_correction": (lambda y, x: y / y.std((1, 2), correction=2.5, keepdim=True), ROWS, 4, None),
    "std_of_equal_values": (lambda y, x: (y * _ZEROS).std(2, correction=0), ROWS, 4, None),
    "var_mean": (lambda y, x: _normalized(y, *torch.var_mean(y, 2)), ROWS, 4, None),
    "var_mean_that_keeps_its_axes": (
        lambda y, x: _normalized(y, *torch.var_mean(y, (2, 3), keepdim=True)), IMAGES, 4, None),
    "std_mean": (lambda y, x: _normalized(y, *torch.std_mean(y, 1, correction=0, keepdim=True)), ROWS, 4, None),
    "mean_without_var": (lambda y, x: torch.var_mean(y, 2)[1], ROWS, 4, ["InnerProduct", "Reduction", "Reshape",
                                                                       "Flatten"]),
    "difference_from_parameters": (
        lambda y, x, w: (y.unsqueeze(1) - w).square().sum(-1), (3, 6), 4,
        ["InnerProduct", "Reshape", "Parameter", "Power", "Tile", "Bias", "Power", "Reduction"]),
    "sum_with_more_parameters": (
        lambda y, x, w: y.unsqueeze(1) + w, (3, 6), 4, ["InnerProduct", "Reshape", "Parameter", "Tile", "Bias"]),
    "product_with_more_constants": (
        lambda y, x: y[:, :1] * torch.arange(24.0).view(4, 6), ROWS, 4,
        ["InnerProduct", "Slice", "Parameter", "Tile", "Scale", "Silence"]),
    "quotient_by_parameters": (lambda y, x, w: y / w, ROWS, 4, ["InnerProduct", "Parameter", "Power", "Scale"]),
    "quotient_of_parameters": (lambda y, x, w: w / y.exp(), ROWS, 4, ["InnerProduct", "Exp", "Power", "Scale"]),
    "log_sigmoid": (lambda y, x: F.logsigmoid(y * 100), ROWS, 4, ["InnerProduct", "Power", "Power", "BNLL", "Power"]),
    "celu": (lambda y, x: F.celu(y, 0.7), ROWS, 4, ["InnerProduct", "Power", "ELU", "Power"]),
    "celu_that_is_an_elu": (lambda y, x: F.celu(y), ROWS, 4, ["InnerProduct", "ELU"]),
    "softsign": (lambda y, x: F.softsign(y), ROWS, 4, None),
    "threshold": (lambda y, x: F.threshold(y, -0.1, 0), ROWS, 4, ["InnerProduct", "Threshold", "Eltwise"]),
    "threshold_with_a_number": (lambda y, x: F.threshold(y, 0.1, 0.7), ROWS, 4,
                                ["InnerProduct", "Threshold", "Eltwise", "Power", "Eltwise"]),
    "lerp": (lambda y, x: y.lerp(x, 0.3), ROWS, 4, ["InnerProduct", "Eltwise", "Eltwise"]),
    "lerp_to_one_for_all": (lambda y, x: y.lerp(x[:, :1], 0.7), ROWS, 4, None),
    "lerp_by_parameters": (lambda y, x, w: y.lerp(x, w), ROWS, 4, ["InnerProduct", "Eltwise", "Scale", "Eltwise"]),
    "lerp_from_parameters": (lambda y, x, w: w.lerp(y, x), ROWS, 4, None),
    "addcmul": (lambda y, x, w: y.addcmul(x, w, value=0.3), ROWS, 4, ["InnerProduct", "Scale", "Eltwise"]),
    "addcmul_to_parameters": (lambda y, x, w: w.addcmul(x, y), ROWS, 4, ["InnerProduct", "Eltwise", "Bias"]),
    "addcdiv": (lambda y, x, w: y.addcdiv(x, w.exp(), value=0.3), ROWS, 4,
                ["InnerProduct", "Parameter", "Exp", "Power", "Scale", "Eltwise"]),
    "addcdiv_by_constants": (lambda y, x: y.addcdiv(y, torch.arange(1.0, 7)), ROWS, 4,
                             ["InnerProduct", "Parameter", "Power", "Scale", "Eltwise"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_formula_becomes_layers_that_compute_and_learn_the_same(name):
    function, shape, classes, types = CASES[name]
    found = types_of(converted(Learning(function), shape))
    assert types is None or found == types
    check_training_step(Learning(function), shape, classes=classes)


class Factor(nn.Module):
    """What is learned of the input, times a function of parameters: a number, another one, and a row."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(6, 6), function
        self.one, self.two, self.row = (nn.Parameter(torch.ones(shape)) for shape in ((), (), (6,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(x) * self.function(self.one, self.two, self.row)
        return found


@pytest.mark.parametrize(
    "function",
    [
        lambda one, two, row: one * row + two,
        lambda one, two, row: one + row * two,
        lambda one, two, row: one * two + row,
        lambda one, two, row: (one + two) * row,
        lambda one, two, row: one.lerp(two, 0.3) * row,
        lambda one, two, row: one.addcmul(two, row, value=0.3),
        lambda one, two, row: row - one * two,
        lambda one, two, row: (one - row) / two,
        lambda one, two, row: 1 / row + one / two,
    ],
)
def test_parameters_are_computed_with_one_another_in_any_order(function):
    converted(Factor(function), (3, 6))
    check_training_step(Factor(function), (3, 6), classes=6)


def test_a_module_is_what_its_layers_are_called_after():
    assert types_of(converted(nn.Sequential(nn.Linear(6, 6), nn.RMSNorm(6)), (3, 6))) == [*_RMS, "Scale"]
    model = converted(nn.Sequential(nn.Linear(6, 6), nn.RMSNorm(6)), (3, 6))
    assert [layer.name for layer in model.source.param.layer][2:] == [
        "1.squares",
        "1.mean",
        "1.factor",
        "1.normalized",
        "1",
    ]


REFUSED = {
    "rms_norm_of_the_batch": (lambda x: F.rms_norm(x, (3, 4, 6)), "it reduces the batch axis"),
    "cosine_similarity_without_eps": (lambda x: F.cosine_similarity(x, 2 * x, eps=0), "its eps is 0"),
    "cosine_similarity_of_the_batch": (lambda x: F.cosine_similarity(x, 2 * x, dim=0), "it reduces the batch axis"),
    "cosine_similarity_of_the_batch_with_a_vector": (
        lambda x: F.cosine_similarity(torch.arange(6.0), x, dim=0), "it reduces the batch axis"),
    "an_order": (lambda x: F.pairwise_distance(x, 2 * x, p=3), "it is a norm of order 3"),
    "var_of_one_value": (lambda x: x[:, :1].var(1), "less 1, which is 0"),
    "var_of_all": (lambda x: x.var(), "it reduces the batch axis"),
    "negative_alpha": (lambda x: F.celu(x, -1.0), "its alpha is -1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_computes_is_refused(name):
    function, said = REFUSED[name]
    with pytest.raises(NetError, match=said):
        import_program(export_module(Function(function), ROWS, "the module"), name="net", file="module")
