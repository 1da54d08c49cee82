"""Turns the `layers { layer { ... } }` of 2013 (V0) into `layers { ... }` (V1), which `upgrade_v1` takes on.

Types were short names (`conv`, `innerproduct`), and one flat message held the fields of every type. Padding was a
layer of its own, which is folded into the `pad` of the layers that read it (Caffe: UpgradeV0Net,
UpgradeV0PaddingLayers in upgrade_proto.cpp).
"""

from __future__ import annotations

from typing import Any

from mgcaffe.prototxt.messages import V1LayerParameter, message_facts
from mgcaffe.prototxt.problems import logger, nearest
from mgcaffe.prototxt.source import LayerSource, NetSource, Place, Source

_PADDING = "padding"
_TYPES = {
    "accuracy": "ACCURACY",
    "bnll": "BNLL",
    "concat": "CONCAT",
    "conv": "CONVOLUTION",
    "data": "DATA",
    "dropout": "DROPOUT",
    "euclidean_loss": "EUCLIDEAN_LOSS",
    "flatten": "FLATTEN",
    "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT",
    "im2col": "IM2COL",
    "images": "IMAGE_DATA",
    "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT",
    "lrn": "LRN",
    "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING",
    "relu": "RELU",
    "sigmoid": "SIGMOID",
    "softmax": "SOFTMAX",
    "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT",
    "tanh": "TANH",
    "window_data": "WINDOW_DATA",
}
_WINDOW = {"pad": "pad", "kernelsize": "kernel_size", "stride": "stride"}
_PRODUCT = {
    "num_output": "num_output",
    "biasterm": "bias_term",
    "weight_filler": "weight_filler",
    "bias_filler": "bias_filler",
}
_READER = {"source": "source", "batchsize": "batch_size"}
_FIELDS = {
    "concat": ("concat_param", {"concat_dim": "concat_dim"}),
    "conv": ("convolution_param", {**_PRODUCT, **_WINDOW, "group": "group"}),
    "data": ("data_param", {**_READER, "rand_skip": "rand_skip"}),
    "dropout": ("dropout_param", {"dropout_ratio": "dropout_ratio"}),
    "hdf5_data": ("hdf5_data_param", _READER),
    "im2col": ("convolution_param", _WINDOW),
    "images": (
        "image_data_param",
        {
            **_READER,
            "rand_skip": "rand_skip",
            "shuffle_images": "shuffle",
            "new_height": "new_height",
            "new_width": "new_width",
        },
    ),
    "infogain_loss": ("infogain_loss_param", {"source": "source"}),
    "innerproduct": ("inner_product_param", _PRODUCT),
    "lrn": ("lrn_param", {"local_size": "local_size", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "pool": ("pooling_param", {**_WINDOW, "pool": "pool"}),
    "window_data": (
        "window_data_param",
        {
            **_READER,
            "det_fg_threshold": "fg_threshold",
            "det_bg_threshold": "bg_threshold",
            "det_fg_fraction": "fg_fraction",
            "det_context_pad": "context_pad",
            "det_crop_mode": "crop_mode",
        },
    ),
}
"""For each type, today's message of its fields, and their names of then and there."""

_TRANSFORM = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_TRANSFORMED = ("data", "images", "window_data")
_UNCHANGED = ("name", "blobs", "blobs_lr", "weight_decay")


def is_v0(net: NetSource) -> bool:
    """Say whether a net has layers of the oldest form."""
    return any(old.HasField("layer") for old in net.param.layers)


def upgrade_v0(net: NetSource) -> None:
    """Turn each of a net's V0 layers into a V1 layer, in place, weights and places included.

    A field that a type never had is dropped with a warning, as Caffe drops it.

    Raises:
        PrototxtError: an unknown type, a padding layer that cannot be folded, or fields of V1 beside `layer`.
    """
    count = sum(old.HasField("layer") for old in net.param.layers)
    padding = _fold_padding(net)
    for old, source in zip(net.param.layers, net.layers, strict=True):
        if old.HasField("layer"):
            _upgrade_layer(old, source)
    folded = f"; {padding} of them, of type padding, went into the pad of those that read them" if padding else ""
    net.upgrades.append(f"{count} layers in the form of 2013 (V0){folded}")


def _upgrade_layer(old: V1LayerParameter, source: LayerSource) -> None:
    beside = [field.name for field, _ in old.ListFields() if field.name not in ("layer", "bottom", "top")]
    if beside:
        message = f"'{beside[0]}' stands beside 'layer', where the form of 2013 has only 'bottom' and 'top'"
        raise source.error(message, beside[0], hint="Put it into 'layer', or write the layer in today's form.")
    inner = old.layer
    kind = inner.type
    if inner.HasField("type"):
        if kind not in _TYPES:
            near = nearest(kind, _TYPES)
            guess = f". Did you mean '{near}'?" if near else ""
            raise source.error(f"unknown layer type '{kind}' in the form of 2013 (V0){guess}", "layer.type")
        old.type = V1LayerParameter.LayerType.Value(_TYPES[kind])
    for field, value in inner.ListFields():
        if field.name == "type":
            continue
        target = _target(kind, field.name)
        if target:
            _move(old, target, value, source.inner("layer"))
        else:
            where = source.field(f"layer.{field.name}")
            logger.warning("%s: '%s' means nothing to a layer of type '%s', ignored", where, field.name, kind)
    old.ClearField("layer")
    _move_places(source, kind)


def _target(kind: str, name: str) -> str:
    """Return where a field of a type stands in V1, as a path; empty if the type has no such field."""
    holder, names = _FIELDS.get(kind, ("", {}))
    if name in names:
        return f"{holder}.{names[name]}"
    if name in _TRANSFORM and kind in _TRANSFORMED:
        return f"transform_param.{_TRANSFORM[name]}"
    if name in _UNCHANGED or name == f"{kind}_param":
        return name
    return ""


def _move(old: V1LayerParameter, path: str, value: Any, source: Source) -> None:
    """Set a field of V1, given as a path, to the value of a field of V0."""
    holder, _, name = path.rpartition(".")
    message = getattr(old, holder) if holder else old
    facts = message_facts(message).fields[name]
    if facts.kind == "integer" and not facts.low <= value <= facts.high:
        raise source.error(f"{value} is no value for '{name}': it lies between {facts.low} and {facts.high}", name)
    if facts.repeated:
        getattr(message, name).extend([value] if isinstance(value, int) else value)
    elif facts.kind == "message":
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _move_places(source: LayerSource, kind: str) -> None:
    fields = source.place.fields
    for inner in fields.pop("layer", []):
        for name, places in inner.fields.items():
            holder, _, new = _target(kind, name).rpartition(".")
            if holder:
                fields.setdefault(holder, [Place(inner.offset)])[0].fields[new] = places
            elif new or name == "type":
                fields[name] = places


def _fold_padding(net: NetSource) -> int:
    """Remove the padding layers, give their pad to the layers that read them, and say how many there were."""
    layers = net.param.layers
    made_by: dict[str, int] = {}
    bottom_made_by: dict[int, int | None] = {}
    unread: set[int] = set()
    for index, old in enumerate(layers):
        if old.layer.type == _PADDING:
            bottom_made_by[index] = made_by.get(old.bottom[0]) if old.bottom else None
            unread.add(index)
        for number, bottom in enumerate(list(old.bottom)):
            padding = made_by.get(bottom)
            if padding in bottom_made_by:
                _check_padding(net, padding, index, number)
                name = layers[padding].bottom[0]
                if made_by.get(name) not in (bottom_made_by[padding], padding):
                    message = f"blob '{name}' changes between the padding layer that reads it and this layer"
                    raise net.layers[index].error(message, "bottom", number)
                _fold(net, padding, index)
                unread.discard(padding)
        made_by.update(dict.fromkeys(old.top, index))
    for index in sorted(unread):
        logger.warning("%s: nothing reads this padding layer, ignored", net.layers[index].location)
    for index in sorted(bottom_made_by, reverse=True):
        del layers[index], net.layers[index]
    return len(bottom_made_by)


def _check_padding(net: NetSource, padding: int, reader: int, number: int) -> None:
    """Make sure that a padding layer and the layer that reads it can become one.

    Raises:
        PrototxtError: they cannot.
    """
    pad, old = net.param.layers[padding], net.param.layers[reader]
    source = net.layers[reader]
    if old.layer.type not in ("conv", "pool"):
        kind = f"type '{old.layer.type}'" if old.HasField("layer") else "a newer form"
        message = f"the output of a padding layer goes into a layer of {kind}; only 'conv' and 'pool' can take it"
        raise source.error(message, "bottom", number)
    if len(old.bottom) != 1:
        message = f"a layer that reads a padding layer needs exactly one bottom, not {len(old.bottom)}"
        raise source.error(message, "bottom", number)
    for what, names in (("bottom", pad.bottom), ("top", pad.top)):
        if len(names) != 1:
            message = f"a padding layer needs exactly one {what}, not {len(names)}"
            raise net.layers[padding].error(message, what, 1)
    if old.layer.pad and pad.layer.pad:
        message = f"this layer has a pad of {old.layer.pad} and reads a padding layer as well"
        raise source.error(message, "layer.pad", hint="Write the sum of both as its pad, and drop the padding layer.")


def _fold(net: NetSource, padding: int, reader: int) -> None:
    pad, old = net.param.layers[padding], net.param.layers[reader]
    if pad.layer.pad or not old.layer.HasField("pad"):
        old.layer.pad = pad.layer.pad
    old.bottom[0] = pad.bottom[0]
    there, here = net.layers[padding].place.fields, net.layers[reader].place.fields
    here["bottom"] = there.get("bottom", [])
    for inner in here.get("layer", [])[:1]:
        inner.fields["pad"] = [net.layers[padding].place.find("layer.pad")]
