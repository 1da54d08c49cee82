"""Pooling with Caffe's windows and divisors in PyTorch's functions.

PyTorch's ceil_mode has Caffe's rule for the last window and its divisors, unless the padding exceeds half the kernel or
a window lies outside the image: then a helper pads the image first.
"""

from __future__ import annotations

from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.layers.interp import Interp
from mgcaffe.engine.layers.pooling import Pooling
from mgcaffe.engine.layers.roi_pooling import ROIPooling
from mgcaffe.engine.layers.shared.pooling_methods import AveragePooling, MaxPooling
from mgcaffe.engine.layers.spp import SPP
from mgcaffe.tools.convert.torch_out.emitter import Emitter, Operator, Together, call, number, pair


def pooling(e: Emitter, layer: Pooling) -> list[str] | Together:
    """F.max_pool2d or F.avg_pool2d, or the adaptive ones for global_pooling; `padded_max_pool2d` and others."""
    window = layer.window
    is_global = layer.param.pooling_param.global_pooling
    shapes = (str(window.kernel), str(window.stride), str(window.pad))
    rounding = {"ceil_mode": (str(window.ceil), "True")}
    if isinstance(layer.method, MaxPooling):
        if e.top_count == 2:
            return Together(call(e.helper("max_pool2d_with_mask"), e.x, *shapes, **rounding))
        name, adaptive, helper = "F.max_pool2d", "F.adaptive_max_pool2d", "padded_max_pool2d"
    elif isinstance(layer.method, AveragePooling):
        name, adaptive, helper = "F.avg_pool2d", "F.adaptive_avg_pool2d", "padded_avg_pool2d"
    else:
        _refuse_draws(e, layer.phase)
        sizes = (f"{e.x}.shape[2:]", str((1, 1))) if is_global else shapes[:2]
        return [call(e.helper("stochastic_pool2d"), e.x, *sizes, **rounding, training=("self.training", ""))]
    if is_global:
        return [call(adaptive, e.x, "1")]
    if not window.fits_torch(e.bottom_shapes[0][2:]):
        return [call(e.helper(helper), e.x, *shapes, **rounding)]
    fields = {
        "stride": (pair(window.stride), pair(window.kernel)),
        "padding": (pair(window.pad), "0"),
        "ceil_mode": (str(window.ceil), "False"),
    }
    return [call(name, e.x, pair(window.kernel), **fields)]


def _refuse_draws(e: Emitter, phase: int) -> None:
    if phase == TRAIN:
        e.refuse("it draws pixels at random also in a test, since its own phase is TRAIN", "phase")


def spp(e: Emitter, layer: SPP) -> list[str]:
    """`spatial_pyramid`, which pools as often as there are levels and joins the values."""
    if layer.method == "STOCHASTIC":
        _refuse_draws(e, layer.phase)
    pool = e.helper(_HELPER_OF[layer.method])
    training = ("self.training" if layer.method == "STOCHASTIC" else "", "")
    height = str(layer.param.spp_param.pyramid_height)
    return [call(e.helper("spatial_pyramid"), e.x, height, pool, training=training)]


def roi_pooling(e: Emitter, layer: ROIPooling) -> list[str]:
    """`roi_max_pool`, which goes through the rectangles."""
    return [call(e.helper("roi_max_pool"), *e.bottoms, str(layer.grid), number(layer.scale))]


def interp(e: Emitter, layer: Interp) -> list[str]:
    """F.interpolate with corners that stay corners; pixels that are cut off are cut off before."""
    param = layer.param.interp_param
    x = e.x
    if param.pad_beg or param.pad_end:
        span = f"{-param.pad_beg or ''}:{param.pad_end or ''}"
        x = f"{x}[:, :, {span}, {span}]"
    size = str(tuple(layer.size)) if len(e.bottoms) == 1 else f"{e.bottoms[1]}.shape[2:]"
    return [call("F.interpolate", x, f"size={size}", 'mode="bilinear"', "align_corners=True")]


_AT_RANDOM = {"phase: TRAIN": "at the layer: STOCHASTIC draws pixels at random"}
_HELPER_OF = {"MAX": "padded_max_pool2d", "AVE": "padded_avg_pool2d", "STOCHASTIC": "stochastic_pool2d"}
_HELPERS = "padded_max_pool2d, padded_avg_pool2d"

OPERATORS = (
    Operator(
        "Pooling",
        pooling,
        "F.max_pool2d, F.avg_pool2d, F.adaptive_max_pool2d, F.adaptive_avg_pool2d, max_pool2d_with_mask,"
        f" stochastic_pool2d, {_HELPERS}",
        _AT_RANDOM,
    ),
    Operator("SPP", spp, f"spatial_pyramid, stochastic_pool2d, {_HELPERS}", _AT_RANDOM),
    Operator("ROIPooling", roi_pooling, "roi_max_pool"),
    Operator("Interp", interp, "F.interpolate"),
)
