"""BatchNorm, Scale and Bias folded into the layer before them, where the result is the same.

    y = a (W x + b) + c   becomes   y = (a W) x + (a b + c),    a and c: one value a channel

The layer before is a Convolution, a depthwise one, a Deconvolution or an InnerProduct. It stays as it is, and the
reason is said, where something else reads its top, where weights are missing or shared, where the factor is not one
value a channel, or where BatchNorm uses the statistics of each batch. Products are taken in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.errors import NetError
from mgcaffe.prototxt import BlobProto, LayerParameter, NetParameter, fill_blob
from mgcaffe.tools.surgery.edit import Edit, blob_of
from mgcaffe.tools.surgery.wiring import Wiring, is_loss, is_source

_FILTERS = ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DepthwiseConvolution")
_SHOWN = 20
"""How many reasons, and layers with one reason, a message names."""
_FOLDED = ("BatchNorm", "Bias", "Scale")


class _Stays(Exception):
    """Why a layer cannot be folded."""


@dataclass(frozen=True)
class _Affine:
    """A factor and a shift for every channel, in float64."""

    factor: Array
    shift: Array


def fold(net: NetParameter) -> Edit:
    """Fold every BatchNorm, Scale and Bias that can be, and say why the others stay.

    Raises:
        NetError: none can be folded; names the reasons.
    """
    made = NetParameter()
    made.CopyFrom(net)
    layers = made.layer
    origin = {layer.name: layer.name for layer in layers}
    trains = any(is_loss(layer) or is_source(layer) for layer in layers)
    called = Counter(layer.name for layer in layers)
    stays: dict[str, str] = {}
    folded: list[str] = []
    place = 0
    while place < len(layers):
        layer = layers[place]
        if layer.type not in _FOLDED:
            place += 1
            continue
        try:
            target = _target(place, layers, called)
            affine = _affine(layer, trains)
            _multiply(layers[target], affine)
        except _Stays as reason:
            stays[layer.name] = str(reason)
            place += 1
            continue
        layers[target].top[0] = layer.top[0]
        origin[layers[target].name] = origin.pop(layer.name)
        folded.append(f"{layer.name} into {layers[target].name}")
        del layers[place]
    if not folded:
        if not stays:
            raise NetError("--fold: nothing can be folded: the net has no BatchNorm, Scale or Bias layer")
        raise NetError("\n  ".join(["--fold: nothing can be folded", *_shown(stays)]))
    notes = [f"folded {len(folded)} layer(s): {', '.join(folded)}", *_shown(stays)]
    return Edit(made, origin, tuple(notes))


def _shown(stays: dict[str, str]) -> list[str]:
    """Return why layers stay, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in stays.items():
        by_reason.setdefault(reason, []).append(f"'{name}'")
    lines = [f"not folded: {_listed(names)}: {reason}" for reason, names in by_reason.items()]
    left = len(lines) - _SHOWN
    return lines if left <= 0 else [*lines[:_SHOWN], f"and {left} more reasons"]


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _SHOWN else f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"


def _target(place: int, layers: Sequence[LayerParameter], called: Mapping[str, int]) -> int:
    """Return the number of the layer to fold layer `place` into."""
    layer = layers[place]
    wiring = Wiring.of(layers)
    if len(layer.bottom) != 1:
        raise _Stays("its factors are a bottom, not weights")
    number, top = wiring.reads[place][0]
    before = layers[number]
    if before.type not in (*_FILTERS, "InnerProduct"):
        raise _Stays(f"it reads the top of '{before.name}' ({before.type}), which has no weights to fold it into")
    for each in (before, layer):
        if each.include or each.exclude or each.HasField("phase"):
            raise _Stays(f"'{each.name}' takes part in some phases only; make the deploy net as well (--deploy)")
        if called[each.name] > 1:
            raise _Stays(f"{called[each.name]} layers are called '{each.name}'")
    readers = wiring.readers[number, top]
    if len(readers) > 1:
        names = ", ".join(f"'{layers[reader].name}'" for reader, _ in readers)
        raise _Stays(f"the top of '{before.name}' has {len(readers)} readers: {names}")
    if len(before.top) != 1 or len(before.bottom) != 1:
        raise _Stays(f"'{before.name}' has several tops with the same weights")
    for each in (before, layer):
        if any(each.loss_weight):
            raise _Stays(f"'{each.name}' has a loss_weight")
        if not each.blobs:
            raise _Stays(f"the weights of '{each.name}' are not given")
    if other := _sharer(before, layers):  # what is folded may be shared: it is only read
        raise _Stays(f"'{before.name}' shares its weights with '{other}'")
    if _channel_axis(before) != 1:
        raise _Stays(f"the channel axis of '{before.name}' is {_channel_axis(before)}, not 1")
    return number


def _sharer(layer: LayerParameter, layers: Sequence[LayerParameter]) -> str | None:
    """Return the name of another layer that uses one of a layer's parameters."""
    names = {spec.name for spec in layer.param if spec.name}
    for other in layers:
        if other is not layer and any(spec.name in names for spec in other.param):
            return str(other.name)
    return None


def _channel_axis(layer: LayerParameter) -> int:
    if layer.type == "InnerProduct":
        return layer.inner_product_param.axis
    return layer.convolution_param.axis


def _affine(layer: LayerParameter, trains: bool) -> _Affine:
    """Return what a layer multiplies each channel by, and adds to it."""
    blobs = [blob_of(layer, index).astype(np.float64).reshape(-1) for index in range(len(layer.blobs))]
    if layer.type == "BatchNorm":
        affine = _of_batch_norm(layer, blobs, trains)
    else:
        param = layer.scale_param if layer.type == "Scale" else layer.bias_param
        if (param.axis, param.num_axes) != (1, 1):
            raise _Stays(f"it covers num_axes {param.num_axes} from axis {param.axis}, not one value a channel")
        values = blobs[0]
        if layer.type == "Bias":
            affine = _Affine(np.ones_like(values), values)
        else:
            affine = _Affine(values, blobs[1] if len(blobs) > 1 else np.zeros_like(values))
    if not (np.isfinite(affine.factor).all() and np.isfinite(affine.shift).all()):
        raise _Stays("its factors are not finite")
    return affine


def _of_batch_norm(layer: LayerParameter, blobs: Sequence[Array], trains: bool) -> _Affine:
    param = layer.batch_norm_param
    if param.HasField("use_global_stats"):
        if not param.use_global_stats:
            raise _Stays("it uses the statistics of each batch (use_global_stats: false)")
    elif trains:
        raise _Stays("in training it uses the statistics of each batch; make the deploy net as well (--deploy)")
    if len(blobs) not in (3, 5) or blobs[2].size != 1 or len({blob.size for blob in (*blobs[:2], *blobs[3:])}) != 1:
        raise _Stays("its blobs are not a mean and a variance for each channel, and their weight")
    total = blobs[2][0]
    mean, variance = (blob / total if total else np.zeros_like(blob) for blob in blobs[:2])
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = 1 / np.sqrt(variance + param.eps)
    shift = -mean * factor
    if len(blobs) == 5:
        factor, shift = factor * blobs[3], shift * blobs[3] + blobs[4]
    return _Affine(factor, shift)


def _multiply(layer: LayerParameter, affine: _Affine) -> None:
    """Give a layer the weights with which it computes `affine` as well; nothing is changed where that fails."""
    product = layer.type == "InnerProduct"
    weight = blob_of(layer, 0)
    outputs = affine.factor.size
    if layer.type in ("ConvolutionDepthwise", "DepthwiseConvolution"):
        known = len(weight)
    else:
        known = (layer.inner_product_param if product else layer.convolution_param).num_output
    bias = blob_of(layer, 1).reshape(-1) if len(layer.blobs) > 1 else np.zeros(outputs)
    if {known, bias.size, affine.shift.size} != {outputs} or weight.size % outputs:
        raise _Stays(f"it has {outputs} channels, which the weights of '{layer.name}' do not fit")
    values = weight.astype(np.float64)
    if product:
        made = _scaled_product(values, affine.factor, transpose=layer.inner_product_param.transpose)
    elif layer.type == "Deconvolution":
        made = _scaled_deconvolution(values, affine.factor, layer.convolution_param.group)
    else:
        made = (values.reshape(outputs, -1) * affine.factor[:, np.newaxis]).reshape(values.shape)
    shift = affine.factor * bias.astype(np.float64) + affine.shift
    if not (_fits(made, weight.dtype) and _fits(shift, weight.dtype)):
        raise _Stays("the products are too large for float32")
    fill_blob(layer.blobs[0], made.astype(weight.dtype))
    if len(layer.blobs) < 2:
        layer.blobs.append(BlobProto())
        (layer.inner_product_param if product else layer.convolution_param).ClearField("bias_term")
    fill_blob(layer.blobs[1], shift.astype(weight.dtype))


def _scaled_product(weight: Array, factor: Array, *, transpose: bool) -> Array:
    """Scale the rows (with `transpose` the columns) of an InnerProduct's weight, old ones with ones in front too."""
    if transpose:
        columns: Array = weight.reshape(-1, len(factor)) * factor
        return columns
    rows: Array = weight.reshape(len(factor), -1) * factor[:, np.newaxis]
    return rows


def _scaled_deconvolution(weight: Array, factor: Array, groups: int) -> Array:
    """Scale a weight of channels x (outputs / groups) x kernel, whose channels of a group share the outputs."""
    channels, outputs = len(weight), len(factor)
    if weight.ndim < 2 or groups < 1 or channels % groups or weight.shape[1] * groups != outputs:
        raise _Stays(f"its weight of shape {weight.shape} does not fit {outputs} outputs in {groups} groups")
    per_channel = np.repeat(factor.reshape(groups, -1), channels // groups, axis=0)
    made: Array = weight * per_channel.reshape(*per_channel.shape, *[1] * (weight.ndim - 2))
    return made


def _fits(values: Array, dtype: np.dtype) -> bool:
    return bool((np.abs(values) <= np.finfo(dtype).max).all())
