"""A deploy net made into one that trains: data layers in place of inputs, losses and accuracies behind the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.engine import registry
from mgcaffe.errors import NetError
from mgcaffe.prototxt import FillerParameter, LayerParameter, NetParameter, NetStateRule, Phase
from mgcaffe.tools.surgery.edit import Edit, with_layers
from mgcaffe.tools.surgery.wiring import Value, Wiring, free_name, is_loss, is_source

LOSSES = {
    "softmax": "SoftmaxWithLoss",
    "sigmoid": "SigmoidCrossEntropyLoss",
    "euclidean": "EuclideanLoss",
    "hinge": "HingeLoss",
}
"""The losses to choose from, by their short names."""
# What an output computes that the loss computes itself.
_IN_LOSS = {"SoftmaxWithLoss": "Softmax", "SigmoidCrossEntropyLoss": "Sigmoid"}
# Whose labels are one class a record.
_CLASSIFIES = ("SoftmaxWithLoss", "HingeLoss")
_LABEL = "label"
_WEIGHTED = {"Convolution": "convolution_param", "Deconvolution": "convolution_param",
             "InnerProduct": "inner_product_param", "DepthwiseConvolution": "convolution_param",
             "ConvolutionDepthwise": "convolution_param", "Embed": "embed_param", "LSTM": "recurrent_param",
             "RNN": "recurrent_param"}  # fmt: skip


@dataclass(frozen=True)
class DataChoice:
    """The data layers to be made.

    Attributes:
        type: Data, ImageData or HDF5Data.
        sources: of the TRAIN and the TEST phase.
        batch_size: of both.
    """

    type: str
    sources: tuple[str, str]
    batch_size: int


def to_training(net: NetParameter, data: DataChoice, loss: str | None) -> Edit:
    """Make a train_val net of a deploy net.

    Args:
        net: the net.
        data: what stands in place of the Input layers.
        loss: a key of LOSSES for every output; None: that of each output's Softmax or Sigmoid.

    Raises:
        NetError: the net trains already, has several inputs for a source of one, or an output without a known loss,
            or one whose Softmax or Sigmoid does not go with the loss.
    """
    layers = list(net.layer)
    for layer in layers:
        if is_loss(layer) or is_source(layer):
            raise NetError(f"--train_val: the net trains already: it has '{layer.name}' ({layer.type})")
    wiring = Wiring.of(layers)
    inputs = [
        (blob, _shape(layer, top)) for layer in layers if layer.type == "Input" for top, blob in enumerate(layer.top)
    ]
    _check_inputs(inputs, data)
    outputs = [value for value in wiring.unread() if layers[value[0]].type != "Input"]
    if not outputs:
        raise NetError("--train_val: the net has no output to take a loss of")
    if _LABEL in wiring.last:
        raise NetError(f"--train_val: the net has a blob '{_LABEL}' already, which is to hold the labels")
    losses = {value: _loss_of(value, layers, loss) for value in outputs}
    replaced = {value[0] for value, kind in losses.items() if layers[value[0]].type == _IN_LOSS.get(kind)}
    kept = [layer for number, layer in enumerate(layers) if number not in replaced and layer.type != "Input"]
    taken = {name for layer in kept for name in (layer.name, *layer.top)} | {_LABEL, *(blob for blob, _ in inputs)}
    made = [_data_layer(inputs, data, phase, taken) for phase in (Phase.TRAIN, Phase.TEST)]
    made += kept
    ends = []
    for value, kind in losses.items():
        number, top = value
        scores = layers[number].bottom[0] if number in replaced else layers[number].top[top]
        made += _ends(scores, kind, taken)
        ends.append(f"a {kind} of '{scores}'")
    result = with_layers(net, made)
    result.ClearField("state")
    filled, frozen, factors = _fill(result)
    note = f"train_val net: {data.type} layers in place of its inputs, and {', '.join(ends)}"
    note += "" if data.type == "HDF5Data" else "; check transform_param (mean, scale, mirror)"
    notes = [note]
    if filled:
        notes.append(f"got weight_filler xavier, having none: {', '.join(filled)}")
    if frozen:
        notes.append(f"frozen (lr_mult 0), and 0 unless --weights is given: {', '.join(frozen)}")
    if factors:
        notes.append(f"frozen (lr_mult 0), and 1 unless --weights is given: {', '.join(factors)}")
    return Edit(result, {layer.name: layer.name for layer in kept}, tuple(notes))


def _shape(layer: LayerParameter, top: int) -> list[int]:
    shapes = layer.input_param.shape
    return list(shapes[min(top, len(shapes) - 1)].dim) if shapes else []


def _check_inputs(inputs: Sequence[tuple[str, list[int]]], data: DataChoice) -> None:
    if not inputs:
        raise NetError("--train_val: the net has no Input layer that data could take the place of")
    if data.type == "HDF5Data":
        return
    if len(inputs) > 1:
        names = ", ".join(blob for blob, _ in inputs)
        raise NetError(
            f"--train_val: the net has {len(inputs)} inputs ({names}), and a {data.type} layer gives one",
            hint="--data_layer HDF5Data gives any number",
        )
    blob, shape = inputs[0]
    if len(shape) != 4:
        raise NetError(
            f"--train_val: input '{blob}' has {len(shape)} axes, and a {data.type} layer gives images, of 4",
            hint="--data_layer HDF5Data gives blobs of any shape",
        )


def _loss_of(value: Value, layers: Sequence[LayerParameter], loss: str | None) -> str:
    maker = layers[value[0]]
    if loss is not None:
        own = _IN_LOSS.get(LOSSES[loss])
        if own and maker.type in _IN_LOSS.values() and maker.type != own:
            raise NetError(
                f"--loss {loss} takes scores, and output '{maker.top[value[1]]}' is a {maker.type} of them",
                hint="end the net before it first: --cut LAYER",
            )
        return LOSSES[loss]
    for kind, activation in _IN_LOSS.items():
        if maker.type == activation:
            return kind
    raise NetError(
        f"--train_val: output '{maker.top[value[1]]}' comes from '{maker.name}' ({maker.type}), which suggests no loss",
        hint=f"choose one with --loss: {', '.join(LOSSES)}",
    )


def _data_layer(
    inputs: Sequence[tuple[str, list[int]]], data: DataChoice, phase: Phase, taken: set[str]
) -> LayerParameter:  # fmt: skip
    blobs = [blob for blob, _ in inputs]
    row = LayerParameter(name=free_name("data", taken - {"data"}), type=data.type, top=[*blobs, _LABEL])
    row.include.append(NetStateRule(phase=phase))
    source = data.sources[0 if phase == Phase.TRAIN else 1]
    shape = inputs[0][1]
    if data.type == "HDF5Data":
        row.hdf5_data_param.source, row.hdf5_data_param.batch_size = source, data.batch_size
        return row
    if data.type == "ImageData":
        images = row.image_data_param
        images.source, images.batch_size = source, data.batch_size
        images.new_height, images.new_width = shape[2:]
        if shape[1] == 1:
            images.is_color = False
        if phase == Phase.TRAIN:
            images.shuffle = True
        return row
    records = row.data_param
    records.source, records.batch_size, records.backend = source, data.batch_size, records.LMDB
    if shape[2] == shape[3]:
        row.transform_param.crop_size = shape[2]
    return row


def _fill(net: NetParameter) -> tuple[list[str], list[str], list[str]]:
    """Give a filler to the layers that would begin with zeros, unless their weights are frozen.

    Returns:
        The names of those that got one, of those that are frozen and zeros, and of Scale layers that are frozen.
    """
    filled, frozen, factors = [], [], []
    for layer in net.layer:
        field = _WEIGHTED.get(layer.type)
        stays = bool(layer.param) and layer.param[0].lr_mult == 0
        if layer.type == "Parameter" and stays:
            frozen.append(layer.name)
        elif layer.type == "Scale" and stays and not layer.scale_param.HasField("filler"):
            factors.append(layer.name)
        elif layer.type == "Bias" and stays and not layer.bias_param.HasField("filler"):
            frozen.append(layer.name)
        elif not field or getattr(layer, field).HasField("weight_filler"):
            continue
        elif stays:
            frozen.append(layer.name)
        else:
            getattr(layer, field).weight_filler.CopyFrom(FillerParameter(type="xavier"))
            filled.append(layer.name)
    return filled, frozen, factors


def _ends(scores: str, kind: str, taken: set[str]) -> list[LayerParameter]:
    """Return the loss of some scores and, where the labels are classes, their accuracy in the TEST phase."""
    made = []
    assert kind in registry.layer_types()
    name = free_name("loss", taken)
    made.append(LayerParameter(name=name, type=kind, bottom=[scores, _LABEL], top=[name]))
    taken.add(name)
    if kind in _CLASSIFIES:
        name = free_name("accuracy", taken)
        row = LayerParameter(name=name, type="Accuracy", bottom=[scores, _LABEL], top=[name])
        row.include.append(NetStateRule(phase=Phase.TEST))
        made.append(row)
        taken.add(name)
    return made
