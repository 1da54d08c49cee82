"""Every operator of the tables: which layers it becomes, and that these compute the same."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from mgcaffe.prototxt import ParamSpec
from tests.support.torchkit import SHAPE, Function, check_training_step, converted, layers_of, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional


class Factors(nn.Module):
    """Parameters that are repeated along an axis between two of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.shift = nn.Parameter(torch.ones(4, 1, 6)), nn.Parameter(torch.ones(4, 1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor + self.shift


class Turned(nn.Module):
    """A parameter with its axes in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.ones(6, 4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shift.permute(1, 2, 0)


class OfParameter(nn.Module):
    """A function of what is computed of a parameter, which has no items."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.ones(3, 6)), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.function(self.weight.tanh())


class RepeatedParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.weight.expand_as(x)], 1)


class RepeatedBesideNumbers(RepeatedParameter):
    """The same where the first input is one number an item."""

    def forward(self, factors: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * factors.view(-1, 1, 1, 1)


def _written_mask(x: torch.Tensor) -> torch.Tensor:
    """A constant that is made part by part."""
    mask = x.new_zeros(6, 6)
    for number, rows in enumerate((slice(0, 2), slice(2, 5), slice(5, 6))):
        mask[rows, rows] = float(number)
    mask += 1
    return mask.masked_fill(mask == 1, -100.0).mul_(0.5)


VOLUME = (2, 3, 4, 5, 6)
_VOLUMES = ["Reshape", "Pooling", "Reshape", "Pooling", "Reshape"]
_RESAMPLED = ["InnerProduct", "Permute", "InnerProduct", "Permute"]

# A module, the shape of its input, and the types of the layers that it becomes.
IDIOMS = {
    "conv": (nn.Conv2d(4, 6, 3, padding=1), SHAPE, ["Convolution"]),
    "conv_without_bias": (nn.Conv2d(4, 6, (1, 3), stride=(2, 1), bias=False), SHAPE, ["Convolution"]),
    "conv_groups_dilation": (nn.Conv2d(4, 8, 3, groups=2, dilation=2), SHAPE, ["Convolution"]),
    "conv_depthwise": (nn.Conv2d(4, 4, 3, groups=4), SHAPE, ["Convolution"]),
    "conv_same": (nn.Conv2d(4, 4, (3, 5), padding="same"), SHAPE, ["Convolution"]),
    "conv_valid": (nn.Conv2d(4, 4, 3, padding="valid"), SHAPE, ["Convolution"]),
    "conv1d": (nn.Conv1d(4, 5, 3, padding=1), (2, 4, 9), ["Convolution"]),
    "conv3d": (nn.Conv3d(2, 3, (1, 2, 3)), (2, 2, 4, 4, 4), ["Convolution"]),
    "conv_transpose": (nn.ConvTranspose2d(4, 6, 3, 2, padding=1, groups=2), SHAPE, ["Deconvolution"]),
    "pad_before_conv": (nn.Sequential(nn.ZeroPad2d((2, 2, 1, 1)), nn.Conv2d(4, 4, 3)), SHAPE, ["Convolution"]),
    "pad_of_columns_before_conv": (
        nn.Sequential(nn.ConstantPad1d((2, 2), 0), nn.Conv2d(4, 4, 3)), SHAPE, ["Convolution"]),
    "pad_before_padded_conv": (
        nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(4, 4, 3, padding=1)), SHAPE, ["Convolution"]),
    "pad_before_average": (nn.Sequential(nn.ZeroPad2d(1), nn.AvgPool2d(3, 1)), SHAPE, ["Pooling"]),
    "pad_of_nothing": (Function(lambda x: F.relu(F.pad(x, (0, 0, 0, 0)))), SHAPE, ["ReLU"]),
    "conv_same_even": (nn.Conv2d(4, 4, (4, 3), padding="same"), SHAPE, ["Convolution", "Slice", "Silence"]),
    "conv_transpose_output_padding": (
        nn.ConvTranspose2d(4, 6, 3, 2, padding=1, output_padding=(1, 0)), SHAPE, ["Deconvolution", "Slice", "Silence"]),
    "pads_before_conv": (
        nn.Sequential(nn.ZeroPad2d((0, 1, 1, 0)), nn.ZeroPad2d((0, 0, 1, 0)), nn.Conv2d(4, 4, 3, 2)), SHAPE,
        ["Convolution", "Slice", "Slice", "Silence"]),
    "pad_before_maximum": (
        nn.Sequential(nn.ReLU(), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(3, 2)), (2, 3, 8, 8), ["ReLU", "Pooling"]),
    "pad_before_padded_average": (
        nn.Sequential(nn.ZeroPad2d((0, 1, 1, 0)), nn.AvgPool2d(3, 2, 1, count_include_pad=False)), (2, 3, 8, 8),
        ["Pooling", "Scale"]),
    "linear": (nn.Linear(6, 5), (3, 6), ["InnerProduct"]),
    "linear_without_bias": (nn.Linear(6, 5, bias=False), (3, 6), ["InnerProduct"]),
    "linear_of_last_axis": (nn.Linear(6, 5), (3, 2, 4, 6), ["InnerProduct"]),
    "batch_norm": (nn.BatchNorm2d(4), SHAPE, ["BatchNorm", "Scale"]),
    "batch_norm_1d": (nn.BatchNorm1d(6, eps=0.01), (3, 6), ["BatchNorm", "Scale"]),
    "batch_norm_plain": (nn.BatchNorm2d(4, affine=False), SHAPE, ["BatchNorm"]),
    "batch_norm_of_batch": (nn.BatchNorm2d(4, track_running_stats=False), SHAPE, ["BatchNorm", "Scale"]),
    "layer_norm": (nn.LayerNorm((6, 6), eps=0.01), SHAPE, ["LayerNorm"]),
    "layer_norm_of_two_axes": (nn.LayerNorm((4, 5)), (3, 4, 5), ["LayerNorm"]),
    "layer_norm_plain": (nn.LayerNorm(6, elementwise_affine=False), SHAPE, ["LayerNorm"]),
    "layer_norm_without_bias": (nn.LayerNorm(6, bias=False), SHAPE, ["LayerNorm"]),
    "batch_norm_weight_alone": (
        Function(lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), torch.arange(4.0))), SHAPE,
        ["BatchNorm", "Scale"]),
    "batch_norm_whose_averages_stay": (nn.BatchNorm2d(4, momentum=0.0), SHAPE, ["BatchNorm", "Scale"]),
    "batch_norm_bias_alone": (
        Function(lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), None, torch.arange(4.0))), SHAPE,
        ["BatchNorm", "Bias"]),
    "group_norm": (nn.GroupNorm(2, 4, eps=0.1), SHAPE, ["Reshape", "LayerNorm", "Reshape", "Scale"]),
    "group_norm_of_vectors": (nn.GroupNorm(2, 4, affine=False), (3, 4), ["Reshape", "LayerNorm", "Flatten"]),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), SHAPE, ["LayerNorm", "Scale"]),
    "instance_norm_plain": (nn.InstanceNorm1d(4), (3, 4, 6), ["LayerNorm"]),
    "prelu": (nn.PReLU(4), SHAPE, ["PReLU"]),
    "prelu_shared": (nn.PReLU(), SHAPE, ["PReLU"]),
    "relu": (nn.ReLU(inplace=True), SHAPE, ["ReLU"]),
    "relu6": (nn.ReLU6(), SHAPE, ["ReLU6"]),
    "hardtanh": (nn.Hardtanh(-0.5, 0.25), SHAPE, ["Clip"]),
    "clamp": (Function(lambda x: x.clamp(-1, 0.5)), SHAPE, ["Clip"]),
    "clamp_below": (Function(lambda x: x.clamp(min=0.5)), SHAPE, ["Clip"]),
    "clamp_as_relu": (Function(lambda x: x.clamp(min=0)), SHAPE, ["ReLU"]),
    "leaky_relu": (nn.LeakyReLU(0.2), SHAPE, ["ReLU"]),
    "elu": (nn.ELU(0.5), SHAPE, ["ELU"]),
    "selu": (nn.SELU(), SHAPE, ["ELU", "Power"]),
    "mish": (nn.Mish(), SHAPE, ["BNLL", "TanH", "Eltwise"]),
    "gelu": (nn.GELU(), SHAPE, ["GELU"]),
    "gelu_tanh": (nn.GELU(approximate="tanh"), SHAPE, ["GELU"]),
    "sigmoid": (nn.Sigmoid(), SHAPE, ["Sigmoid"]),
    "tanh": (nn.Tanh(), SHAPE, ["TanH"]),
    "silu": (nn.SiLU(inplace=True), SHAPE, ["Swish"]),
    "hardswish": (nn.Hardswish(inplace=True), SHAPE, ["HardSwish"]),
    "hardsigmoid": (nn.Hardsigmoid(), SHAPE, ["HardSigmoid"]),
    "glu": (nn.GLU(1), SHAPE, ["Slice", "Sigmoid", "Eltwise"]),
    "glu_of_rows": (nn.GLU(), SHAPE, ["Slice", "Sigmoid", "Eltwise"]),
    "softplus": (nn.Softplus(), SHAPE, ["BNLL"]),
    "softmax": (nn.Softmax(1), SHAPE, ["Softmax"]),
    "softmax_last": (nn.Softmax(-1), SHAPE, ["Softmax"]),
    "log_softmax": (nn.LogSoftmax(1), SHAPE, ["Softmax", "Log"]),
    "roots": (Function(lambda x: (x.abs() + 1).sqrt().log().exp().square().rsqrt()), SHAPE,
              ["AbsVal", "Power", "Power", "Log", "Exp", "Power", "Power"]),
    "powers": (Function(lambda x: -((x + 9) ** 3).reciprocal()), SHAPE, ["Power"] * 4),
    "dropout": (nn.Sequential(nn.ReLU(), nn.Dropout(0.25)), SHAPE, ["ReLU", "Dropout"]),
    "dropout_in_place": (nn.Sequential(nn.Conv2d(4, 4, 1), nn.Dropout(0.25, inplace=True)), SHAPE,
                         ["Convolution", "Dropout"]),
    "what_evaluation_leaves_out": (
        nn.Sequential(nn.ReLU(), nn.Dropout2d(0.5), nn.Dropout(0.0), nn.Identity()), SHAPE, ["ReLU"]),
    "numbers": (Function(lambda x: (2 - (x * 3 + 1) / 4) - 5), SHAPE, ["Power"] * 5),
    "add": (Function(lambda x: x + x.relu()), SHAPE, ["ReLU", "Eltwise"]),
    "add_with_factor": (Function(lambda x: torch.add(x, x.relu(), alpha=2)), SHAPE, ["ReLU", "Eltwise"]),
    "sub": (Function(lambda x: x - x.relu()), SHAPE, ["ReLU", "Eltwise"]),
    "mul": (Function(lambda x: x * x.sigmoid()), SHAPE, ["Sigmoid", "Eltwise"]),
    "div": (Function(lambda x: x / (x.sigmoid() + 1)), SHAPE, ["Sigmoid", "Power", "Power", "Eltwise"]),
    "div_by_one_a_channel": (
        Function(lambda x: x / (x.mean((2, 3), keepdim=True) + 9)), SHAPE,
        ["Pooling", "Power", "Power", "Flatten", "Scale"]),
    "maximum": (Function(lambda x: torch.maximum(x, x.tanh())), SHAPE, ["TanH", "Eltwise"]),
    "extremes": (
        Function(lambda x: torch.min(torch.max(torch.maximum(x, torch.tensor(-0.5)), -x), x.abs() / 2)), SHAPE,
        ["Clip", "Power", "Eltwise", "AbsVal", "Power", "Power", "Power", "Eltwise", "Power"]),
    "squeeze_and_excitation": (
        Function(lambda x: x * F.adaptive_avg_pool2d(x, 1).sigmoid()), SHAPE,
        ["Pooling", "Sigmoid", "Flatten", "Scale"]),
    "squeeze_and_excitation_of_one": (
        Function(lambda x: F.adaptive_avg_pool2d(x, 1).sigmoid() * x), (1, *SHAPE[1:]),
        ["Pooling", "Sigmoid", "Flatten", "Scale"]),
    "one_factor_an_item": (
        Function(lambda x: x * x.flatten(1).mean(1).view(-1, 1, 1, 1)), SHAPE,
        ["Flatten", "Reduction", "Reshape", "Reshape", "Scale"]),
    "add_one_a_channel": (
        Function(lambda x: x - x.mean((2, 3), keepdim=True)), SHAPE, ["Pooling", "Power", "Flatten", "Bias"]),
    "mean_of_image": (Function(lambda x: x.mean([2, 3])), SHAPE, ["Pooling", "Flatten"]),
    "mean_of_image_kept": (Function(lambda x: x.mean((-1, -2), keepdim=True)), SHAPE, ["Pooling"]),
    "mean_of_last": (Function(lambda x: x.mean(-1)), SHAPE, ["Reduction"]),
    "sum_of_last_kept": (Function(lambda x: x.sum((2, 3), keepdim=True)), SHAPE, ["Reduction", "Reshape"]),
    "mean_of_channels": (Function(lambda x: x.mean(1)), SHAPE, ["Permute", "Reduction"]),
    "mean_of_channels_kept": (
        Function(lambda x: x.mean(1, keepdim=True)), SHAPE, ["Permute", "Reduction", "Reshape"]),
    "sum_of_axes_apart": (
        Function(lambda x: x.sum((-1, 1), keepdim=True)), SHAPE, ["Permute", "Reduction", "Reshape"]),
    "amax": (Function(lambda x: x.amax((2, 3)) + x.amax((-1, -2), keepdim=True).flatten(1)), SHAPE,
             ["Pooling", "Flatten", "Pooling", "Flatten", "Eltwise"]),
    "amax_of_other_axes": (
        Function(lambda x: x.amax((1, 3)) + x.amax((1, 2), keepdim=True).flatten(1)), SHAPE,
        ["Permute", "Reshape", "Pooling", "Flatten", "Permute", "Reshape", "Pooling", "Reshape", "Flatten", "Eltwise"]),
    "amax_of_rows": (Function(lambda x: x.amax(-1)), (2, 3, 8), ["Reshape", "Pooling", "Flatten"]),
    "amin_of_items": (Function(lambda x: x.amin((1, 2))), (2, 3, 8),
                      ["Power", "Reshape", "Pooling", "Power", "Reshape"]),
    "max_of_an_axis": (Function(lambda x: x.max(1)[0]), SHAPE, ["Permute", "Reshape", "Pooling", "Reshape"]),
    "min_of_an_axis": (Function(lambda x: x.min(-1, keepdim=True).values), SHAPE,
                       ["Power", "Reshape", "Pooling", "Power", "Reshape"]),
    "max_pool": (nn.MaxPool2d(3, 2, padding=1), (2, 3, 7, 8), ["Pooling"]),
    "max_pool_ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), (2, 3, 8, 7), ["Pooling"]),
    "max_pool_ceil_larger_than_the_image": (nn.MaxPool2d((7, 2), 2, ceil_mode=True), SHAPE, ["Pooling"]),
    "avg_pool_ceil_larger_than_the_image": (nn.AvgPool2d(9, 2, padding=1, ceil_mode=True), SHAPE, ["Pooling"]),
    "max_pool_ceil_beyond": (nn.MaxPool2d(1, 3, ceil_mode=True), (2, 3, 5, 5), ["Pooling"]),
    "max_pool_odd": (nn.MaxPool2d(2), (2, 3, 7, 7), ["Pooling"]),
    "avg_pool": (nn.AvgPool2d((2, 3), (1, 2), padding=(0, 1)), (2, 3, 7, 8), ["Pooling"]),
    "avg_pool_ceil": (nn.AvgPool2d(3, 2, padding=1, ceil_mode=True), (2, 3, 8, 8), ["Pooling"]),
    "avg_pool_without_padding": (nn.AvgPool2d(2, 2, count_include_pad=False), (2, 3, 8, 8), ["Pooling"]),
    "avg_pool_padding_not_counted": (
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 3, 8, 8), ["Pooling", "Scale"]),
    "avg_pool_divisor": (nn.AvgPool2d(2, divisor_override=3), (2, 3, 8, 8), ["Pooling", "Power"]),
    "adaptive_to_one": (nn.AdaptiveAvgPool2d((1, 1)), SHAPE, ["Pooling"]),
    "adaptive_to_divisor": (nn.AdaptiveAvgPool2d((3, 2)), SHAPE, ["Pooling"]),
    "adaptive_to_same": (nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(6)), SHAPE, ["ReLU"]),
    "adaptive_overlapping": (nn.AdaptiveAvgPool2d((4, 3)), (2, 3, 5, 7), ["Pooling"]),
    "max_pool_of_rows": (nn.MaxPool1d(3, 2, padding=1), (2, 3, 8), ["Reshape", "Pooling", "Reshape"]),
    "max_pool_of_rows_ceil": (nn.MaxPool1d(3, 2, ceil_mode=True), (2, 3, 8), ["Reshape", "Pooling", "Reshape"]),
    "pad_before_maximum_of_rows": (
        nn.Sequential(nn.ReLU(), nn.ConstantPad1d((0, 2), 0), nn.MaxPool1d(3, 2)), (2, 3, 8),
        ["ReLU", "Reshape", "Pooling", "Reshape"]),
    "avg_pool_of_rows": (nn.AvgPool1d(3, 2, padding=1), (2, 3, 8), ["Reshape", "Pooling", "Reshape"]),
    "avg_pool_of_rows_padding_not_counted": (
        nn.AvgPool1d(3, 2, padding=1, count_include_pad=False), (2, 3, 8), ["Reshape", "Pooling", "Scale", "Reshape"]),
    "adaptive_of_rows_to_one": (nn.AdaptiveAvgPool1d(1), (2, 3, 8), ["Reduction", "Reshape"]),
    "adaptive_of_rows": (nn.AdaptiveAvgPool1d(3), (2, 3, 8), ["InnerProduct"]),
    "max_pool_of_volumes": (nn.MaxPool3d(3, 2, padding=1), VOLUME, _VOLUMES),
    "max_pool_of_volumes_ceil": (nn.MaxPool3d((2, 3, 2), (3, 2, 2), ceil_mode=True), VOLUME, _VOLUMES),
    "pad_before_maximum_of_volumes": (
        nn.Sequential(nn.ReLU(), nn.ConstantPad3d((1, 0, 0, 0, 1, 0), 0), nn.MaxPool3d(2)), VOLUME,
        ["ReLU", "Reshape", "Pooling", "Slice", "Reshape", "Pooling", "Slice", "Reshape", "Silence"]),
    "avg_pool_of_volumes": (nn.AvgPool3d((2, 3, 3), (1, 2, 2), padding=(0, 1, 1)), VOLUME, _VOLUMES),
    "avg_pool_of_volumes_padding_not_counted": (
        nn.AvgPool3d(3, 1, padding=1, count_include_pad=False), VOLUME,
        ["Reshape", "Pooling", "Scale", "Reshape", "Pooling", "Scale", "Reshape"]),
    "adaptive_max_of_rows": (nn.AdaptiveMaxPool1d(4), (2, 3, 8), ["Reshape", "Pooling", "Reshape"]),
    "adaptive_3d_to_one": (nn.AdaptiveAvgPool3d(1), (2, 3, 2, 5, 7), ["Reduction", "Reshape"]),
    "adaptive_3d": (nn.AdaptiveAvgPool3d((2, 2, 3)), (2, 3, 2, 5, 7), _RESAMPLED),
    "adaptive_of_different_windows": (nn.AdaptiveAvgPool2d(4), SHAPE, _RESAMPLED),
    "adaptive_to_larger": (nn.AdaptiveMaxPool2d(6), (2, 3, 1, 3), ["Deconvolution"]),
    "nearest": (nn.Upsample(scale_factor=2), SHAPE, ["Deconvolution"]),
    "nearest_to_size": (Function(lambda x: F.interpolate(x, (18, 6), mode="nearest-exact")), SHAPE, ["Deconvolution"]),
    "nearest_of_rows": (nn.Upsample(scale_factor=3), (2, 3, 5), ["Deconvolution"]),
    "nearest_3d": (nn.Upsample(scale_factor=(1, 2, 3)), (2, 3, 2, 3, 4), ["Deconvolution"]),
    "nearest_by_a_half": (nn.Upsample(scale_factor=1.5), SHAPE, _RESAMPLED),
    "nearest_where_rounding_decides": (nn.Upsample(82), (2, 3, 2), ["InnerProduct"]),
    "nearest_exact_where_rounding_decides": (nn.Upsample(61, mode="nearest-exact"), (2, 3, 2), ["InnerProduct"]),
    "nearest_smaller": (Function(lambda x: F.interpolate(x, (3, 6), mode="nearest-exact")), SHAPE,
                        ["Permute", "InnerProduct", "Permute"]),
    "nearest_to_same": (Function(lambda x: F.interpolate(x.tanh(), (6, 6))), SHAPE, ["TanH"]),
    "bilinear": (nn.UpsamplingBilinear2d((11, 3)), SHAPE, ["Interp"]),
    "bilinear_between_centres": (nn.Upsample(scale_factor=2, mode="bilinear"), SHAPE, _RESAMPLED),
    "bilinear_by_a_factor_as_given": (nn.Upsample(scale_factor=1.7, mode="bilinear"), SHAPE, _RESAMPLED),
    "bilinear_by_a_factor_of_sizes": (
        Function(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)), SHAPE,
        _RESAMPLED),
    "bilinear_of_one_pixel": (nn.Upsample((2, 3), mode="bilinear"), (2, 3, 1, 1), ["Deconvolution"]),
    "bilinear_smoothed": (Function(lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True)),
                          (2, 3, 5, 7), _RESAMPLED),
    "bicubic": (nn.Upsample((7, 9), mode="bicubic"), SHAPE, _RESAMPLED),
    "bicubic_smoothed": (Function(lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True)), SHAPE,
                         _RESAMPLED),
    "linear_of_rows": (nn.Upsample(11, mode="linear"), (2, 3, 5), ["InnerProduct"]),
    "linear_of_rows_between_corners": (nn.Upsample(11, mode="linear", align_corners=True), (2, 3, 5), ["InnerProduct"]),
    "trilinear": (nn.Upsample((3, 6, 4), mode="trilinear"), (2, 3, 2, 6, 3), ["InnerProduct", "Permute"] * 2),
    "adaptive_max": (nn.AdaptiveMaxPool2d(2), SHAPE, ["Pooling"]),
    "flatten": (nn.Flatten(), SHAPE, ["Flatten"]),
    "flatten_some": (nn.Flatten(2), SHAPE, ["Flatten"]),
    "view_as": (Function(lambda x: x.flatten(1).reshape_as(x) + x.flatten(2).view_as(x)), SHAPE,
                ["Flatten", "Reshape", "Flatten", "Reshape", "Eltwise"]),
    "view": (Function(lambda x: x.view(x.shape[0], -1)), SHAPE, ["Flatten"]),
    "reshape": (Function(lambda x: x.reshape(3, 2, 2, 36)), SHAPE, ["Reshape"]),
    "squeeze": (Function(lambda x: x.unsqueeze(2).tanh().squeeze(2)), SHAPE, ["Reshape", "TanH", "Reshape"]),
    "permute": (Function(lambda x: x.permute(0, 2, 3, 1)), SHAPE, ["Permute"]),
    "transpose": (Function(lambda x: x.transpose(1, -1)), SHAPE, ["Permute"]),
    "transposes": (
        Function(lambda x: x.mT.swapaxes(1, 2).swapdims(0, 0).movedim(1, -1).moveaxis((1, 2), (2, 1))), SHAPE,
        ["Permute"] * 4),
    "transposes_of_matrices": (Function(lambda x: x.tanh().t().sigmoid().T), (2, 3),
                               ["TanH", "Permute", "Sigmoid", "Permute"]),
    "layer_norm_of_channels": (
        Function(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2)), SHAPE,
        ["Permute", "LayerNorm", "Permute"]),
    "pixel_shuffle": (nn.PixelShuffle(2), (3, 8, 2, 3), ["Reshape", "Permute", "Reshape"]),
    "pixel_unshuffle": (nn.PixelUnshuffle(2), (3, 2, 4, 6), ["Reshape", "Permute", "Reshape"]),
    "repeat": (Function(lambda x: x.repeat(1, 2, 1, 3)), SHAPE, ["Tile", "Tile"]),
    "repeat_with_more_axes": (Function(lambda x: x.repeat(1, 2, 1)), (3, 4), ["Reshape", "Tile"]),
    "tile_with_fewer_axes": (Function(lambda x: x.tile(2, 3)), SHAPE, ["Tile", "Tile"]),
    "expand": (
        Function(lambda x: torch.cat([x, x.mean((2, 3), keepdim=True).expand(-1, 4, 6, 6)], 1)), SHAPE,
        ["Pooling", "Tile", "Tile", "Concat"]),
    "expand_with_more_axes": (Function(lambda x: x.expand(1, 3, 4).tanh()), (3, 4), ["Reshape", "TanH"]),
    "expand_of_nothing": (Function(lambda x: x.tanh().expand(3, -1, -1, 6)), SHAPE, ["TanH"]),
    "broadcast_to": (
        Function(lambda x: x.sum(-1, keepdim=True).broadcast_to(3, 4, 6, 2)), SHAPE, ["Reduction", "Reshape", "Tile"]),
    "expand_before_a_product": (
        Function(lambda x: x * x.mean((2, 3), keepdim=True).sigmoid().expand_as(x)), SHAPE,
        ["Pooling", "Sigmoid", "Flatten", "Scale"]),
    "expand_before_a_difference": (
        Function(lambda x: x.mean((2, 3), keepdim=True).expand_as(x) - x), SHAPE,
        ["Pooling", "Power", "Flatten", "Bias"]),
    "expand_of_both_factors": (
        Function(lambda x: (y := x.mean((2, 3), keepdim=True)).expand_as(x) * y.exp().expand_as(x)), SHAPE,
        ["Pooling", "Tile", "Tile", "Exp", "Tile", "Tile", "Eltwise"]),
    "expand_before_a_product_with_a_constant": (
        Function(lambda x: x.mean((2, 3), keepdim=True).expand_as(x) * torch.ones(3, 4, 6, 6)), SHAPE,
        ["Pooling", "Tile", "Tile", "Scale"]),
    "expand_of_channels": (
        Function(lambda x: x * x[:, :1].expand_as(x)), SHAPE, ["Slice", "Tile", "Eltwise", "Silence"]),
    "cat": (Function(lambda x: torch.cat([x, x.relu()], 1)), SHAPE, ["ReLU", "Concat"]),
    "cat_rows": (Function(lambda x: torch.cat([x, x.relu()], -1)), SHAPE, ["ReLU", "Concat"]),
    "stack": (Function(lambda x: torch.stack([x, x.relu()], 1)), SHAPE, ["ReLU", "Reshape", "Reshape", "Concat"]),
    "chunk": (Function(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)), SHAPE, ["Slice", "Concat"]),
    "split": (Function(lambda x: x.split([1, 3], 1)[1]), SHAPE, ["Slice", "Silence"]),
    "split_into_one": (Function(lambda x: x.split(4, 1)[0].relu()), SHAPE, ["ReLU"]),
    "slice": (Function(lambda x: x[:, 1:3, :, 2:]), SHAPE, ["Slice", "Slice", "Silence"]),
    "broadcast_in_the_middle": (Function(lambda x: x * x[:, :1]), SHAPE, ["Slice", "Tile", "Scale", "Silence"]),
    "broadcast_both_ways": (Function(lambda x: x[:, :1] + x[..., :1]), SHAPE,
                            ["Slice", "Slice", "Tile", "Tile", "Bias", "Silence"]),
    "factors_in_the_middle": (Factors(), SHAPE, ["Parameter", "Tile", "Scale", "Parameter", "Tile", "Bias"]),
    "flattened_batch": (Function(lambda x: x.flatten(0, 1)), SHAPE, ["Flatten"]),
    "a_row_of_a_parameter": (
        OfParameter(lambda weight: weight[1]), SHAPE,
        ["Parameter", "TanH", "Slice", "Reshape", "Scale", "Silence"]),
    "the_largest_of_a_parameter": (
        OfParameter(lambda weight: weight.amax(0)), SHAPE,
        ["Parameter", "TanH", "Permute", "Reshape", "Pooling", "Reshape", "Scale"]),
    "a_parameter_that_is_permuted": (Turned(), SHAPE, ["Parameter", "Permute", "Bias"]),
    "divided_by_a_root": (Function(lambda x: x / 12**0.5), SHAPE, ["Power"]),
    "nothing_is_masked": (Function(lambda x: x.masked_fill(torch.zeros(6, 6) == 1, 2.0).tanh()), SHAPE, ["TanH"]),
    "a_parameter_for_each_item": (RepeatedParameter(), SHAPE, ["Reduction", "Power", "Reshape", "Tile", "Tile", "Tile",
                                                               "Bias", "Concat"]),
    "a_parameter_for_each_item_beside_numbers": (
        RepeatedBesideNumbers(), {"factors": (3,), "x": SHAPE},
        ["Power", "Reshape", "Tile", "Tile", "Tile", "Bias", "Concat", "Reshape", "Reshape", "Scale"]),
    "slice_with_a_step": (Function(lambda x: x[:, 1::2, ::3]), SHAPE,
                          ["Permute", "InnerProduct", "Permute", "Permute", "InnerProduct", "Permute"]),
    "index": (Function(lambda x: x[:, torch.tensor([[3, 0], [-1, 3]])]), SHAPE,
              ["Permute", "InnerProduct", "Permute", "Reshape"]),
    "index_of_pairs": (Function(lambda x: x[:, :, torch.tensor([[0], [-1]]), torch.tensor([5, 0, 5])]), SHAPE,
                       ["Reshape", "InnerProduct", "Reshape"]),
    "index_select_from_behind": (Function(lambda x: x.index_select(-2, torch.tensor([5, 0]))), SHAPE,
                                 ["Permute", "InnerProduct", "Permute"]),
    "index_select": (Function(lambda x: x.index_select(3, torch.tensor([5, 0]))), SHAPE, ["InnerProduct"]),
    "pad_as_output": (Function(lambda x: F.pad(x, (1, 1))), SHAPE, ["InnerProduct"]),
    "pad_for_a_convolution_and_another": (
        Function(lambda x: (lambda y: F.conv2d(y, torch.ones(1, 4, 1, 1)) + y)(F.pad(x, (0, 0, 1, 2)))), SHAPE,
        ["Permute", "InnerProduct", "Permute", "Convolution", "Tile", "Bias"]),
    "pad_reflecting": (Function(lambda x: F.pad(x, (2, 1, 0, 3), "reflect").tanh()), SHAPE,
                       ["Permute", "InnerProduct", "Permute", "InnerProduct", "TanH"]),
    "pad_reflecting_zeros": (Function(lambda x: F.pad(F.pad(x, (1, 0)), (0, 2, 0, 0), "reflect").tanh()), SHAPE,
                             ["InnerProduct", "InnerProduct", "TanH"]),
    "pad_of_channels_around_zeros": (
        Function(lambda x: F.pad(F.pad(x, (1, 0)), (0, 0, 0, 0, 1, 1)).tanh()), SHAPE,
        ["InnerProduct", "Permute", "InnerProduct", "Permute", "TanH"]),
    "pad_that_is_copied": (Function(lambda x: F.pad(x, (1, 0)).clone().tanh()), SHAPE, ["InnerProduct", "TanH"]),
    "pad_that_is_copied_for_a_convolution": (
        Function(lambda x: F.conv2d(F.pad(x, (1, 1)).clone(), torch.ones(1, 4, 1, 1))), SHAPE, ["Convolution"]),
    "pad_of_edges": (nn.Conv2d(4, 3, 3, padding=1, padding_mode="replicate"), SHAPE,
                     ["Permute", "InnerProduct", "Permute", "InnerProduct", "Convolution"]),
    "pad_around": (nn.Sequential(nn.CircularPad2d((2, 0, 0, 0)), nn.Tanh()), SHAPE, ["InnerProduct", "TanH"]),
    "pad_of_other_axes": (Function(lambda x: F.pad(x, (0, 0, 0, 2, 1, 0)).tanh()), SHAPE,
                          ["Permute", "InnerProduct", "Permute", "Permute", "InnerProduct", "Permute", "TanH"]),
    "norm": (Function(lambda x: F.normalize(x, dim=1) + x.norm(dim=(2, 3), keepdim=True)), SHAPE,
             ["Permute", "Reduction", "Reshape", "Power", "Clip", "Tile", "Power", "Eltwise", "Reduction", "Reshape",
              "Power", "Flatten", "Bias"]),
    "norm_of_absolutes": (Function(lambda x: torch.linalg.vector_norm(x, 1, (1, 2))), SHAPE, ["Permute", "Reduction"]),
    "a_mask_that_is_written": (Function(lambda x: x + _written_mask(x)), SHAPE, ["Bias"]),
    "narrow_of_nothing": (Function(lambda x: x.narrow(0, 0, 3).tanh()), SHAPE, ["TanH"]),
    "narrow": (Function(lambda x: x.narrow(1, -2, 2)), SHAPE, ["Slice", "Silence"]),
    "overlapping_slices": (Function(lambda x: x[:, :3] * x[:, 1:]), SHAPE, ["Slice", "Slice", "Eltwise", "Silence"]),
    "channel_shuffle": (
        Function(lambda x: x.view(3, 2, 2, 6, 6).transpose(1, 2).contiguous().view(3, 4, 6, 6)), SHAPE,
        ["ShuffleChannel"]),
    "channel_shuffle_unnamed": (
        Function(lambda x: x.view(3, 2, 2, 6, 6).transpose(2, 1).reshape(3, -1, 6, 6)), SHAPE, ["ShuffleChannel"]),
    "channel_shuffle_of_torch": (nn.ChannelShuffle(2), SHAPE, ["ShuffleChannel"]),
    "no_channel_shuffle": (
        Function(lambda x: x.view(3, 2, 2, 6, 6).transpose(1, 3).reshape(3, 4, 6, 6)), SHAPE,
        ["Reshape", "Permute", "Reshape"]),
    "local_response_norm": (
        nn.Sequential(nn.LocalResponseNorm(3, alpha=0.5, beta=0.6, k=2.0), nn.ReLU(inplace=True)), SHAPE,
        ["LRN", "ReLU"]),
    "local_response_norm_before_pytorch_had_it": (
        Function(lambda x: x.div(
            F.avg_pool3d(x.pow(2).unsqueeze(1), (3, 1, 1), 1, (1, 0, 0)).squeeze(1).mul(0.5).add(1.0).pow(0.6))), SHAPE,
        ["LRN"]),
    "local_response_norm_of_pixels": (
        Function(lambda x: x * (1 + 0.5 * F.avg_pool2d(x.square(), 3, stride=1, padding=1)) ** -0.75), SHAPE, ["LRN"]),
    "no_local_response_norm": (
        Function(lambda x: x * (2 + F.avg_pool2d(x.square(), 3, stride=1, padding=1)) ** -0.75), SHAPE,
        ["Power", "Pooling", "Power", "Power", "Eltwise"]),
    "transform_input": (
        Function(lambda x: torch.cat([torch.unsqueeze(x[:, c], 1) * 0.5 + 0.1 * c for c in range(4)], 1)), SHAPE,
        ["Slice", *["Reshape", "Reshape", "Power", "Power"] * 4, "Concat"]),
}  # fmt: skip


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_becomes_layers_that_compute_the_same(name):
    module, shape, types = IDIOMS[name]
    assert types_of(converted(module, shape)) == types


def test_dropout_keeps_its_ratio():
    assert layers_of(converted(nn.Sequential(nn.Tanh(), nn.Dropout(0.25))))[1].dropout_param.dropout_ratio == 0.25


def test_batch_norm_goes_on_with_pytorchs_averages():
    module = nn.BatchNorm2d(4, momentum=0.25)
    model = converted(module)
    layer = layers_of(model)[0]
    assert math.isclose(layer.batch_norm_param.moving_average_fraction, 0.75)
    net = model.build(dtype=torch.float64)
    means, variances, weight = (parameter.data for parameter in net.layers[1].parameters)
    assert weight.tolist() == [4]
    torch.testing.assert_close(means / weight, module.running_mean.double(), rtol=1e-6, atol=0)
    x = torch.randn(5, 4, 3, 3, dtype=torch.float64)
    from mgcaffe.engine.kernels import batch_norm

    _, statistics = batch_norm.forward(x, None, None, 1e-5)
    net.layers[1].store(statistics)
    module.double().train()(x)
    torch.testing.assert_close(means / weight, module.running_mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(variances / weight, module.running_var, rtol=1e-6, atol=1e-7)


class SharedInOtherShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.conv(x).mean((2, 3)), self.conv.weight.view(4, 4))


def test_parameters_of_another_shape_are_shared_as_well():
    model = converted(SharedInOtherShape())
    specs = [layers_of(model)[place].param[0] for place in (0, -1)]
    assert [spec.name for spec in specs] == ["conv.weight"] * 2
    assert [ParamSpec.DimCheckMode.Name(spec.share_mode) for spec in specs] == ["STRICT", "PERMISSIVE"]
    check_training_step(SharedInOtherShape(), classes=4)


class AveragesRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.bn(x) + self.bn.running_mean) * self.bn.running_var


def test_averages_that_are_read_as_well_are_not_shared_with_the_sums():
    assert types_of(converted(AveragesRead(), (3, 4))) == ["BatchNorm", "Scale", "Bias", "Scale"]


def test_buffers_are_frozen():
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.rand(1, 4, 1, 1))
            self.register_buffer("deviation", torch.rand(4, 1, 1) + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - self.mean) / self.deviation

    layers = layers_of(converted(Normalized()))
    assert [layer.type for layer in layers] == ["Bias", "Scale"]
    assert all(spec.lr_mult == 0 and spec.decay_mult == 0 for layer in layers for spec in layer.param)
    assert all(len(layer.param) == 1 for layer in layers)
