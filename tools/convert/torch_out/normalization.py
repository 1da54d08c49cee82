"""Normalization layers: how each is written in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import torch

from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.bn import BN
from mgcaffe.engine.layers.layer_norm import LayerNorm
from mgcaffe.engine.layers.lrn import LRN
from mgcaffe.engine.layers.mvn import MVN
from mgcaffe.engine.layers.normalize import Normalize
from mgcaffe.engine.layers.scale import Scale
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, call, number, powered, shape_text


def batch_norm(e: Emitter, layer: BatchNorm) -> list[str]:
    """nn.BatchNorm2d, the sums over blob 2, the Scale in place behind it as weight and bias; or `FrozenBatchNorm`.

    The latter with `use_global_stats: true`; with false, statistics are the batch's also in evaluation mode.
    """
    given = layer.param.batch_norm_param
    affine = {"weight": Blob(3), "bias": Blob(4)} if layer.scale_bias else _affine_of_follower(e)
    momentum = number(float(1 - Decimal(str(np.float32(given.moving_average_fraction)))))
    if not layer.use_global:
        return [_normalized(e, layer.channels, layer.eps, affine, tracks=False)]
    sums = [parameter.data for parameter in layer.parameters[:3]]
    factor = torch.where(sums[2] == 0, torch.zeros_like(sums[2]), 1 / sums[2])
    statistics = [Blob(place, values=values * factor) for place, values in enumerate(sums[:2])]
    frozen = given.HasField("use_global_stats")
    return [_normalized(e, layer.channels, layer.eps, affine, statistics, momentum, frozen)]


def _affine_of_follower(e: Emitter) -> dict[str, Blob]:
    """Return scale and bias of the Scale that follows in place, one value a channel each, and take its work over."""
    follower = e.follower.layer if e.follower else None
    if not isinstance(follower, Scale) or not follower.learned or follower.bias is None:
        return {}
    shared = any(parameter.owner is not None or parameter.name for parameter in follower.parameters)
    if shared or follower.axis != 1 or len(follower.blob_shape) != 1:
        return {}
    e.took_follower = True
    return {"weight": Blob(0, layer=follower), "bias": Blob(1, layer=follower)}


def bn(e: Emitter, layer: BN) -> list[str]:
    """nn.BatchNorm2d with the moving averages; for SegNet's with the batch's own statistics, or `Scale`."""
    shape = (layer.channels,)
    affine = {"weight": Blob(0, shape), "bias": Blob(1, shape)}
    if layer.uses_batch:
        return [_normalized(e, layer.channels, layer.eps, affine, tracks=False)]
    if not layer.moving:
        broadcast = (layer.channels, *[1] * (e.rank - 2))
        blobs = {name: Blob(blob.number, broadcast) for name, blob in affine.items()}
        return [f"{e.whole_attribute(call(e.helper('Scale'), *map(str, broadcast), 'bias=True'), blobs)}({e.x})"]
    param = layer.param.bn_param
    momentum = number(float(1 - Decimal(str(np.float32(param.momentum)))))
    return [_normalized(e, layer.channels, layer.eps, affine, [Blob(2, shape), Blob(3, shape)], momentum, param.frozen)]


def _normalized(
    e: Emitter,
    channels: int,
    eps: float,
    affine: Mapping[str, Blob],
    statistics: Sequence[Blob] = (),
    momentum: str = "0.1",
    frozen: bool = False,
    *,
    tracks: bool = True,
) -> str:
    """Return x normalized by channel.

    Args:
        e: writes it.
        channels: how many.
        eps: added to the variance.
        affine: weight and bias, or nothing.
        statistics: mean and variance.
        momentum: how much a batch counts in them.
        frozen: they are used in training as well.
        tracks: whether there are any.
    """
    axes = {2: "1d", 3: "1d", 5: "3d"}.get(e.rank, "2d")
    is_flat = not frozen and e.rank > 5
    constructor = call(
        e.helper("FrozenBatchNorm") if frozen else f"nn.BatchNorm{axes}",
        str(channels),
        eps=(number(eps), "1e-05"),
        momentum=(momentum if not frozen else "0.1", "0.1"),
        affine=(str(bool(affine)), "True"),
        track_running_stats=(str(tracks), "True"),
    )
    blobs = {**affine, **dict(zip(("running_mean", "running_var"), statistics, strict=False))}
    own = e.whole_attribute(constructor, blobs)
    if tracks:
        e.constant_buffer(f"{own.removeprefix('self.')}.num_batches_tracked", torch.zeros((), dtype=torch.int64))
    return f"{own}({e.x}.flatten(3)).reshape({e.x}.shape)" if is_flat else f"{own}({e.x})"


def lrn(e: Emitter, layer: LRN) -> list[str]:
    """F.local_response_norm, which is Caffe's; within a channel the mean of the squares (F.avg_pool2d) to a power."""
    if layer.across:
        fields = {"alpha": (layer.alpha, 1e-4), "beta": (layer.beta, 0.75), "k": (layer.k, 1)}
        texts = {name: (number(value), number(default)) for name, (value, default) in fields.items()}
        return [call("F.local_response_norm", e.x, str(layer.size), **texts)]
    means = call("F.avg_pool2d", f"{e.x}.square()", str(layer.size), "stride=1", f"padding={layer.size // 2}")
    factor = "" if layer.alpha == 1 else f"{number(layer.alpha)} * "
    return [f"{e.x} * {powered(f'1 + {factor}{means}', number(-layer.beta))}"]


def mvn(e: Emitter, layer: MVN) -> list[str]:
    """Deviations from the mean; `mean_variance_normalize` divides them by the root of their mean square plus eps."""
    axes = str(layer.axes[0]) if len(layer.axes) == 1 else str(layer.axes)
    added = len(layer.top_shape) - len(layer.bottom_shape)
    x = f"{e.x}[{', '.join(['...', *['None'] * added])}]" if added else e.x
    if layer.count == 1:  # of single values
        return [call("torch.zeros_like", x)]
    if not layer.divides:
        return [f"{x} - {x}.mean({axes}, keepdim=True)"]
    return [call(e.helper("mean_variance_normalize"), x, axes, number(layer.eps))]


def layer_norm(e: Emitter, layer: LayerNorm) -> list[str]:
    """nn.LayerNorm."""
    count = len(layer.parameters)
    constructor = call(
        "nn.LayerNorm",
        shape_text(tuple(layer.normalized)),
        eps=(number(layer.eps), "1e-05"),
        elementwise_affine=(str(count > 0), "True"),
        bias=(str(count != 1), "True"),
    )
    blobs = {name: Blob(place) for place, name in enumerate(("weight", "bias")[:count])}
    return [f"{e.whole_attribute(constructor, blobs)}({e.x})"]


def normalize(e: Emitter, layer: Normalize) -> list[str]:
    """`L2Normalize`, which divides by the root of the sum of squares plus eps and multiplies by factors."""
    factors = layer.parameters[0].shape
    shape = (*factors, *[1] * (e.rank - 2)) if factors else ()
    axes = str(tuple(layer.summed)) if len(layer.summed) > 1 else str(layer.summed[0])
    sizes = map(str, shape)
    constructor = call(e.helper("L2Normalize"), *sizes, f"dim={axes}", f"eps={number(layer.eps)}")
    return [f"{e.whole_attribute(constructor, {'weight': Blob(0, shape)})}({e.x})"]


_NORMS = "nn.BatchNorm1d, nn.BatchNorm2d"

OPERATORS = (
    Operator("BatchNorm", batch_norm, f"{_NORMS}, FrozenBatchNorm"),
    Operator("BN", bn, "nn.BatchNorm2d, FrozenBatchNorm, Scale"),
    Operator("LRN", lrn, "F.local_response_norm, F.avg_pool2d"),
    Operator("MVN", mvn, "mean_variance_normalize, torch.zeros_like"),
    Operator("LayerNorm", layer_norm, "nn.LayerNorm"),
    Operator("Normalize", normalize, "L2Normalize"),
)
