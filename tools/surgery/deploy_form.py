"""A net that trains made into one to be used: inputs in place of data, predictions in place of losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgcaffe.engine import registry
from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, NetParameter, has_field, nearest, print_text
from mgcaffe.tools.surgery.edit import Edit, with_layers
from mgcaffe.tools.surgery.wiring import (
    State,
    Value,
    Wiring,
    active_layers,
    free_name,
    is_loss,
    is_source,
    only_watches,
)
from mgcaffe.tools.table import format_shape

# What a loss does to its first bottom before it compares it with labels: the layer that takes its place.
_PREDICTIONS = {
    "SoftmaxWithLoss": "Softmax",
    "InfogainLoss": "Softmax",
    "SigmoidCrossEntropyLoss": "Sigmoid",
}
# Losses that compare several predictions with each other: how many of their bottoms are.
_COMPARED = {"ContrastiveLoss": 2}
# Fillers that only say how training starts. (Those of BatchNorm and BN also say which kind of layer it is.)
_FILLERS = {
    "convolution_param": ("weight_filler", "bias_filler"),
    "inner_product_param": ("weight_filler", "bias_filler"),
    "embed_param": ("weight_filler", "bias_filler"),
    "recurrent_param": ("weight_filler", "bias_filler"),
    "scale_param": ("filler", "bias_filler"),
    "bias_param": ("filler",),
    "prelu_param": ("filler",),
}


@dataclass(frozen=True)
class _Prediction:
    """What a loss is taken of: the value, the loss, and its weight in the net's."""

    value: Value
    loss: LayerParameter
    weight: float


def to_deploy(
    net: NetParameter,
    shapes: Mapping[str, Sequence[int]],
    state: State,
    *,
    outputs: Sequence[str] = (),
    keep_dropout: bool = True,
) -> Edit:
    """Make a deploy net of what takes part in the TEST phase.

    Data layers become Input layers, of the blobs that something still reads. Of the losses those with the largest
    loss_weight give the outputs: SoftmaxWithLoss becomes a Softmax, SigmoidCrossEntropyLoss a Sigmoid, others end with
    what they compare, ContrastiveLoss with both. Layers that no output needs are removed, and so are fillers,
    multipliers and rules. Dropout, which does nothing in the TEST phase, stays, as in Caffe's deploy nets.

    Args:
        net: the net.
        shapes: the shapes of the data layers' tops.
        state: which layers take part.
        outputs: the blobs to end with instead; where a loss reads one, with its Softmax or Sigmoid.
        keep_dropout: whether Dropout layers stay.

    Raises:
        NetError: no output is found, or a shape is missing.
    """
    layers = active_layers(net, TEST, state)
    wiring = Wiring.of(layers)
    predictions = _predictions(net, layers, wiring, state)
    chosen = [_named(name, predictions, wiring) for name in outputs] if outputs else _main(predictions)
    goals = {prediction.value for prediction in chosen if isinstance(prediction, _Prediction)}
    goals |= {value for value in chosen if isinstance(value, tuple)}
    if not outputs:
        goals |= _other_outputs(layers, wiring)
    if not goals:
        raise NetError("--deploy: the net has no loss and no output to end with", hint="name blobs with --outputs")
    kept = wiring.needed(goals)
    ends = {id(each.loss): each for each in chosen if isinstance(each, _Prediction)}
    taken = {name for number in kept for name in (*layers[number].top, *_layer_name(layers[number]))}
    made: list[LayerParameter] = []
    for number, layer in enumerate(layers):
        if number in kept and is_source(layer):
            made += _inputs(layer, number, kept, wiring, shapes, taken)
        elif number in kept and layer.type == "Input":
            made += _read_inputs(layer, number, kept, wiring)
        elif number in kept:
            made.append(layer)
        elif id(layer) in ends:
            made += _end(ends.pop(id(layer)), layers, kept, wiring, taken)
    for prediction in ends.values():  # losses of the TRAIN phase alone
        made += _end(prediction, layers, kept, wiring, taken)
    result = with_layers(net, made)
    for row in result.layer:
        _clean(row)
    for field in ("state", "force_backward", "debug_info"):
        result.ClearField(field)
    origin = {layers[number].name: layers[number].name for number in kept if not is_source(layers[number])}
    removed = [layer.name for number, layer in enumerate(layers) if number not in kept]
    note = f"deploy net: inputs {_shown_inputs(made)}; removed {', '.join(removed) or 'nothing'}"
    edit = Edit(result, origin, (note, *_preparations(layers)))
    return edit if keep_dropout else edit.then(without_dropout)


def without_dropout(net: NetParameter) -> Edit:
    """Remove the Dropout layers, where what they read is read by nothing else, or where they work in place."""
    layers = list(net.layer)
    wiring = Wiring.of(layers)
    kept, stays = [], []
    renamed: dict[str, str] = {}
    for number, layer in enumerate(layers):
        if layer.type == "Dropout":
            bottom, top = layer.bottom[0], layer.top[0]
            alone = len(wiring.readers[wiring.reads[number][0]]) == 1 and wiring.readers[number, 0]
            if (bottom == top or alone) and layer.dropout_param.scale_train:
                renamed.update({} if bottom == top else {top: renamed.get(bottom, bottom)})
                continue
            stays.append(layer.name)
        kept.append(layer)
    made = with_layers(net, kept)
    for layer in made.layer:
        for blobs in (layer.bottom, layer.top):
            blobs[:] = [renamed.get(blob, blob) for blob in blobs]
    notes = [f"{len(layers) - len(kept)} Dropout layer(s) removed"]
    notes += [
        f"Dropout layer '{name}' stays: its blob is an output, its bottom has another reader, or scale_train is false"
        for name in stays
    ]
    return Edit(made, {layer.name: layer.name for layer in kept}, tuple(notes))


def _predictions(
    net: NetParameter, layers: Sequence[LayerParameter], wiring: Wiring, state: State
) -> list[_Prediction]:  # fmt: skip
    """Find what the losses are taken of; where none takes part in the TEST phase, those of the TRAIN phase."""
    found = []
    for number, layer in enumerate(layers):
        if is_loss(layer) and _own_type(layer):
            values = wiring.reads[number][: _COMPARED.get(layer.type, 0)] or [_predicted(wiring.reads[number], layers)]
            found += [_Prediction(value, layer, _weight(layer)) for value in values]
    if found:
        return found
    for layer in active_layers(net, TRAIN, state):
        if is_loss(layer) and _own_type(layer):
            compared = _COMPARED.get(layer.type)
            values = [wiring.last[blob] for blob in layer.bottom[:compared] if blob in wiring.last]
            if compared is None:  # what is predicted may itself be made in TRAIN alone
                values = [value for value in values if not _is_given(layers[value[0]])][:1]
            found += [_Prediction(value, layer, _weight(layer)) for value in values]
    return found


def _own_type(layer: LayerParameter) -> bool:
    """Return whether a layer is a loss by its type: it compares a prediction with labels."""
    known = registry.layer_types().get(layer.type)
    return bool(known is not None and known.loss_weight and layer.bottom)


def _predicted(bottoms: Sequence[Value], layers: Sequence[LayerParameter]) -> Value:
    """Return the bottom of a loss that is predicted: the first, unless that comes straight from the data."""
    computed = [value for value in bottoms if not _is_given(layers[value[0]])]
    return (computed or list(bottoms))[0]


def _is_given(layer: LayerParameter) -> bool:
    return is_source(layer) or layer.type == "Input"


def _weight(layer: LayerParameter) -> float:
    if layer.loss_weight:
        return float(layer.loss_weight[0])
    return registry.layer_types()[layer.type].loss_weight


def _main(predictions: Sequence[_Prediction]) -> list[_Prediction]:
    """Return those of the losses that count most: the others are auxiliary."""
    most = max((each.weight for each in predictions), default=0.0)
    return [each for each in predictions if each.weight == most]


def _named(name: str, predictions: Sequence[_Prediction], wiring: Wiring) -> _Prediction | Value:
    """Return what a user's --outputs means."""
    if name not in wiring.last:
        near = nearest(name, wiring.last)
        raise NetError(f"--outputs: the net has no blob '{name}'", hint=f"did you mean '{near}'?" if near else None)
    value = wiring.last[name]
    return next((each for each in predictions if each.value == value), value)


def _other_outputs(layers: Sequence[LayerParameter], wiring: Wiring) -> set[Value]:
    """Return the values that nothing reads, losses, accuracies, data and what is computed from those aside."""
    watching = wiring.dependent(number for number, layer in enumerate(layers) if only_watches(layer))
    return {value for value in wiring.unread() if value[0] not in watching and not is_source(layers[value[0]])}


def _layer_name(layer: LayerParameter) -> list[str]:
    """Return the name that a layer keeps, if it stays."""
    return [] if is_source(layer) else [layer.name]


def _inputs(
    layer: LayerParameter,
    number: int,
    kept: set[int],
    wiring: Wiring,
    shapes: Mapping[str, Sequence[int]],
    taken: set[str],
) -> list[LayerParameter]:
    """Return an Input layer for each top of a data layer that a layer which stays reads."""
    made = []
    for top, blob in enumerate(layer.top):
        if not any(reader in kept for reader, _ in wiring.readers[number, top]):
            continue
        if blob not in shapes:
            raise NetError(f"the shape of blob '{blob}' (layer '{layer.name}') is not known", hint="--input_shape")
        row = LayerParameter(name=free_name(blob, taken - {blob}), type="Input", top=[blob])
        row.input_param.shape.add(dim=shapes[blob])
        made.append(row)
    return made


def _read_inputs(layer: LayerParameter, number: int, kept: set[int], wiring: Wiring) -> list[LayerParameter]:
    """Return an Input layer with those of its tops that a layer which stays reads: labels go."""
    read = [top for top in range(len(layer.top)) if any(each in kept for each, _ in wiring.readers[number, top])]
    if len(read) in (0, len(layer.top)):
        return [layer]
    shapes = layer.input_param.shape
    row = LayerParameter(name=layer.name, type="Input", top=[layer.top[top] for top in read])
    row.input_param.shape.extend(shapes[top] for top in read if top < len(shapes) > 1)
    row.input_param.shape.extend(shapes if len(shapes) == 1 else ())
    return [row]


def _end(
    prediction: _Prediction, layers: Sequence[LayerParameter], kept: set[int], wiring: Wiring, taken: set[str]
) -> list[LayerParameter]:
    """Return what takes a loss's place: a Softmax, a Sigmoid, or nothing."""
    kind = _PREDICTIONS.get(prediction.loss.type)
    readers = [layers[reader] for reader, _ in wiring.readers[prediction.value] if reader in kept]
    if kind is None or any(reader.type == kind for reader in readers):
        return []
    maker, top = prediction.value
    name = free_name("prob", taken)
    taken.add(name)
    row = LayerParameter(name=name, type=kind, bottom=[layers[maker].top[top]], top=[name])
    if prediction.loss.HasField("softmax_param") and kind == "Softmax":
        row.softmax_param.CopyFrom(prediction.loss.softmax_param)
    elif prediction.loss.type == "InfogainLoss" and prediction.loss.infogain_loss_param.HasField("axis"):
        row.softmax_param.axis = prediction.loss.infogain_loss_param.axis
    return [row]


def _clean(row: LayerParameter) -> None:
    """Clear what is about training and phases; a parameter's name stays, which shares it."""
    for field in ("include", "exclude", "phase", "loss_weight", "propagate_down"):
        row.ClearField(field)
    names = [spec.name for spec in row.param]
    del row.param[:]
    for name in names if any(names) else ():
        row.param.add(name=name) if name else row.param.add()
    for field, fillers in _FILLERS.items():
        if has_field(row, field):
            for filler in fillers:
                getattr(row, field).ClearField(filler)


def _preparations(layers: Sequence[LayerParameter]) -> list[str]:
    """Return what data layers did to their images, which whoever feeds the deploy net has to do."""
    return [
        f"'{layer.top[0]}' was prepared by transform_param {{ {' '.join(print_text(layer.transform_param).split())} }}"
        for layer in layers
        if is_source(layer) and layer.HasField("transform_param")
    ]


def _shown_inputs(layers: Sequence[LayerParameter]) -> str:
    shapes = [
        f"'{blob}' {format_shape(layer.input_param.shape[min(top, len(layer.input_param.shape) - 1)].dim)}"
        for layer in layers
        if layer.type == "Input" and layer.input_param.shape
        for top, blob in enumerate(layer.top)
    ]
    return ", ".join(shapes) or "none"
