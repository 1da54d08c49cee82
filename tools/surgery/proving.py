"""Shows that an edit keeps a net's values: both nets run on the same seeded inputs and are compared blob by blob."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.engine.weights import by_name
from mgcaffe.engine.weights.saved_layers import saved_layers
from mgcaffe.errors import DataError, EngineError, NetError
from mgcaffe.prototxt import LayerParameter, NetParameter, NetSource, fill_blob, net_source
from mgcaffe.prototxt.blobs import without_blobs
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs, value_names
from mgcaffe.tools.convert.proof import Difference, compare, not_finite
from mgcaffe.tools.surgery.edit import Edit, with_layers
from mgcaffe.tools.surgery.wiring import State, Wiring, active, is_source, only_watches

Shapes = Mapping[str, Sequence[int]]

_SEED = 0


def as_it_runs(net: NetParameter, shapes: Shapes, state: State) -> tuple[NetParameter, list[int]]:
    """Return what computes in the TEST phase, fed by Input layers: without data, losses, accuracies and weights.

    Args:
        net: the net.
        shapes: those of the data layers' tops.
        state: which layers take part.

    Returns:
        The net, and for each of its layers the number of the one in `net` that it comes from.

    Raises:
        NetError: the shape of a blob that is read is missing.
    """
    numbers = active(net, TEST, state)
    layers = [net.layer[number] for number in numbers]
    wiring = Wiring.of(layers)
    removed = wiring.dependent(number for number, layer in enumerate(layers) if only_watches(layer))
    made: list[LayerParameter] = []
    places: list[int] = []
    for number, layer in enumerate(layers):
        if number in removed:
            continue
        if not is_source(layer):
            made.append(_without_rules(layer))
            places.append(numbers[number])
            continue
        for top, blob in enumerate(layer.top):
            if not any(reader not in removed for reader, _ in wiring.readers[number, top]):
                continue
            if blob not in shapes:
                raise NetError(f"the shape of blob '{blob}' (layer '{layer.name}') is not known", hint="--input_shape")
            # Named as no layer is, so that the weights of none are copied to it.
            row = LayerParameter(name=f"{layer.name}@{blob}", type="Input", top=[blob])
            row.input_param.shape.add(dim=shapes[blob])
            made.append(row)
            places.append(numbers[number])
    result = with_layers(net, made)
    result.ClearField("state")
    return result, places


def build(net: NetParameter, shapes: Shapes, state: State, name: str, source: NetSource | None = None) -> Net:
    """Return the net that runs, with the weights that are in its layers and seeded fillers elsewhere.

    Args:
        net: the net.
        shapes: those of the data layers' tops.
        state: which layers take part.
        name: what to call the weights in messages.
        source: where the layers of `net` stand, layer by layer, if they stand in a file.

    Raises:
        NetError: it cannot be built, or weights do not fit.
    """
    runs, places = as_it_runs(net, shapes, state)
    if source is None:
        found = net_source(runs, file=name)
    else:
        found = NetSource(source.text, source.place, source.path, runs, [source.layers[place] for place in places])
    made = Net(runs, sources=found, phase=TEST, seed=_SEED)
    try:
        by_name.copy_saved(made.layers, [layer for layer in saved_layers(net) if layer.blobs], name)
    except EngineError:
        made.close()
        raise
    return made


def with_seeded_weights(net: NetParameter, running: Net) -> NetParameter:
    """Return a net that has weights in every layer that runs; random ones where it had none, in `running` too."""
    made = NetParameter()
    made.CopyFrom(net)
    given = {layer.name for layer in net.layer if layer.blobs}
    generator = np.random.default_rng(_SEED)
    new = [layer for layer in running.layers if layer.parameters and layer.name not in given]
    for layer in new:
        for parameter in layer.parameters:
            if parameter.owner is None:
                parameter.data.copy_(torch.from_numpy(_values(layer.type, parameter.shape, generator)))
    for kind in {(layer.name, layer.type) for layer in new}:
        rows = [row for row in made.layer if (row.name, row.type) == kind]
        layers = [layer for layer in new if (layer.name, layer.type) == kind]
        # As many as there are layers of the name: one each, in order. Else they take turns in the phases.
        for row, layer in zip(rows, layers if len(layers) == len(rows) else itertools.repeat(layers[0]), strict=False):
            for parameter in layer.parameters:
                fill_blob(row.blobs.add(), parameter.data.numpy())
    return made


def lacking_weights(net: NetParameter, running: Net) -> list[str]:
    """Return the names of the layers that run and have parameters, but no weights in the message."""
    given = {layer.name for layer in net.layer if layer.blobs}
    return [layer.name for layer in running.layers if layer.parameters and layer.name not in given]


def differences(first: Net, edit: Edit, shapes: Shapes, state: State) -> tuple[list[Difference], list[str]]:
    """Run the first net and the edited one, and compare the values that should be equal, the worst first.

    Args:
        first: the net before the edit, made by `build`.
        edit: what became of it, with the same weights.
        shapes: those of the data layers' tops in both.
        state: which layers take part.

    Returns:
        The differences, and the names of the first net's values that are not finite, of which equality proves little.

    Raises:
        DataError: nothing can be compared, or a shape has changed.
        NetError, UsageError: the edited net cannot be built.
    """
    second = build(edit.net, shapes, state, "the edited net")
    try:
        sides = CaffeSide(first), CaffeSide(second)
        names = _same_values(first, second, edit.origin)
        if not names:
            raise DataError("no value of the first net is left to compare", hint="--no_check leaves the proof out")
        inputs = fitting_inputs(first, _SEED)
        lacking = [name for name in sides[1].inputs if name not in inputs]
        if lacking:
            raise DataError(f"the edited net has inputs that the first one lacks: {', '.join(lacking)}")
        values = sides[0].run(inputs)
        found = compare(values, sides[1].run({name: inputs[name] for name in sides[1].inputs}), names)
        return found, not_finite(values, names)
    finally:
        second.close()


def _without_rules(layer: LayerParameter) -> LayerParameter:
    row = without_blobs(layer)
    for field in ("include", "exclude"):
        row.ClearField(field)
    return row


def _values(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Return weights that keep values in a common range: variances and factors stay about 1."""
    if len(shape) > 1 and kind != "BN":
        fan_in = int(np.prod(shape[1:]))
        return generator.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / max(fan_in, 1)))
    return generator.uniform(0.5, 1.5, shape).astype(np.float32)


def _same_values(first: Net, second: Net, origin: Mapping[str, str]) -> dict[str, str]:
    """Return for each value of the first net that should be in the second the name that it has there."""
    places, ours = _places(first), _places(second)
    before, after = value_names(first), value_names(second)
    same: dict[str, str] = {}
    for name, numbers in ours.items():
        olds = places.get(origin.get(name, ""), [])
        if len(olds) != len(numbers):  # which of several of a name is left is not known
            continue
        for old, number in zip(olds, numbers, strict=True):
            if second.layers[number].type not in ("Input", "Split"):
                same.update(zip(before[old], after[number], strict=False))
    return same


def _places(net: Net) -> dict[str, list[int]]:
    """Return the numbers of the layers of each name."""
    places: dict[str, list[int]] = {}
    for number, layer in enumerate(net.layers):
        places.setdefault(layer.name, []).append(number)
    return places
