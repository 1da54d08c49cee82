"""Another number of classes: the layers that score the classes are replaced by new ones, to be trained."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.errors import NetError
from mgcaffe.prototxt import FillerParameter, LayerParameter, NetParameter
from mgcaffe.tools.surgery.edit import Edit
from mgcaffe.tools.surgery.wiring import State, Value, Wiring, active_layers, find_layers, is_loss

# What scores classes, and the field with its num_output.
_SCORERS = {"InnerProduct": "inner_product_param", "Convolution": "convolution_param"}
# Losses of the difference of their first two bottoms, in either order.
_COMPARING = ("ContrastiveLoss", "EuclideanLoss", "SmoothL1Loss")
# What may stand between the scores and the prediction, whatever the number of channels.
_BETWEEN = (
    "AbsVal", "BNLL", "Dropout", "ELU", "Flatten", "Pooling", "Power", "ReLU", "Reshape", "Sigmoid", "Softmax", "Split",
    "TanH",
)  # fmt: skip


def change_classes(net: NetParameter, classes: int, layers: Sequence[str], state: State) -> Edit:
    """Give the layers that score the classes another number of outputs, new names, and no weights.

    A new name (`fc8_20` for `fc8`) keeps the old weights, whose shape no longer fits, from being copied into them.

    Args:
        net: the net.
        classes: how many.
        layers: the names of the layers; none: those that the losses' (or else the net's) predictions come from.
        state: which layers take part.

    Raises:
        NetError: no such layer is found, one scores nothing, or a new name is taken.
    """
    names = list(layers) or _scorers(net, state)
    _check_shared(net, names)
    taken = {layer.name for layer in net.layer}
    made = NetParameter()
    made.CopyFrom(net)
    notes = []
    renamed = {}
    for name in dict.fromkeys(names):
        found = find_layers(net, name, f"--class_layers {name}")
        new = f"{name}_{classes}"
        if new in taken:
            raise NetError(f"--classes {classes}: a layer '{new}' is in the net already")
        renamed[name] = new
        for number in found:
            note = _replace(made.layer[number], classes, new)
        notes.append(note)
    changed = _changed(made, set(renamed.values()), state)
    origin = {layer.name: layer.name for layer in made.layer if layer.name not in changed}
    void = [layer for layer in made.layer if layer.name in changed and _counts_all(layer, classes)]
    for layer in void:
        made.layer.remove(layer)
        notes.append(f"removed '{layer.name}': of {classes} classes the best {layer.accuracy_param.top_k} are all")
    return Edit(made, origin, tuple(notes))


def _counts_all(layer: LayerParameter, classes: int) -> bool:
    """Return whether an Accuracy looks for the label among more classes than there are."""
    return layer.type == "Accuracy" and layer.accuracy_param.top_k > classes


def _check_shared(net: NetParameter, names: Sequence[str]) -> None:
    """Refuse to replace a layer, and not another that has the same parameters.

    Raises:
        NetError: names all that belong together.
    """
    shared = {spec.name for layer in net.layer if layer.name in names for spec in layer.param if spec.name}
    sharers = [layer.name for layer in net.layer if any(spec.name in shared for spec in layer.param)]
    if others := sorted(set(sharers) - set(names)):
        together = ",".join(dict.fromkeys([*names, *others]))
        raise NetError(
            f"--classes: '{', '.join(names)}' shares parameters with '{', '.join(others)}'",
            hint=f"replace them together: --class_layers {together}",
        )


def _replace(layer: LayerParameter, classes: int, name: str) -> str:
    """Make the new layer out of the old one; return what to say about it."""
    if layer.type not in _SCORERS:
        scorers = " or ".join(_SCORERS)
        raise NetError(f"--classes {classes}: layer '{layer.name}' is a {layer.type}; classes are scored by {scorers}")
    field = getattr(layer, _SCORERS[layer.type])
    before, weights = field.num_output, len(layer.blobs)
    old, layer.name, field.num_output = layer.name, name, classes
    del layer.blobs[:]
    added = ""
    if not field.HasField("weight_filler"):
        field.weight_filler.CopyFrom(FillerParameter(type="xavier"))
        added = ", which had no weight_filler and has got"
    starts = f"it starts from its filler{added} '{field.weight_filler.type}', and has to be trained"
    lost = f"; the weights of '{old}' ({weights} blobs) are left out" if weights else ""
    return f"layer '{old}' ({before} outputs) is now '{name}' ({classes} outputs){lost}; {starts}"


def _scorers(net: NetParameter, state: State) -> list[str]:
    """Find the layers that score, from the losses back, or else from the net's outputs."""
    found: list[str] = []
    for phase in (TRAIN, TEST):
        layers = active_layers(net, phase, state)
        wiring = Wiring.of(layers)
        judged = [
            wiring.reads[number][: 2 if layer.type in _COMPARING else 1]
            for number, layer in enumerate(layers)
            if is_loss(layer) and layer.bottom
        ]
        for values in judged or [[value] for value in wiring.unread() if layers[value[0]].bottom]:
            found += _scorers_behind(values, layers, wiring)
    if not found:
        raise NetError("--classes: the net has no output", hint="name the layer with --class_layers")
    return list(dict.fromkeys(found))


def _scorers_behind(values: Sequence[Value], layers: Sequence[LayerParameter], wiring: Wiring) -> list[str]:
    """Return the layers of scores behind the bottoms of a loss; one of two may have none behind it, as labels have."""
    found: list[str] = []
    problems: list[NetError] = []
    for value in values:
        try:
            found.append(_scorer_behind(value, layers, wiring))
        except NetError as problem:
            if any(layers[number].type in _SCORERS for number in wiring.needed([value])):
                raise
            problems.append(problem)
    if not found:
        raise problems[0]
    return found


def _scorer_behind(value: Value, layers: Sequence[LayerParameter], wiring: Wiring) -> str:
    number = value[0]
    while layers[number].type in _BETWEEN and wiring.reads[number]:
        number = wiring.reads[number][0][0]
    layer = layers[number]
    if not layer.bottom:
        raise NetError("--classes: the prediction comes from no InnerProduct and no Convolution")
    if layer.type not in _SCORERS:
        raise NetError(
            f"--classes: between the prediction and the layer that scores the classes stands '{layer.name}' "
            f"({layer.type})",
            hint="name the layer with --class_layers",
        )
    return layer.name


def _changed(net: NetParameter, names: set[str], state: State) -> set[str]:
    """Return the names of the layers whose tops are other ones now."""
    changed = set(names)
    for phase in (TRAIN, TEST):
        layers = active_layers(net, phase, state)
        numbers = [number for number, layer in enumerate(layers) if layer.name in names]
        changed |= {layers[number].name for number in Wiring.of(layers).dependent(numbers)}
    return changed
