"""Collects the layers of a net that is made from a graph: unique names, shared parameters, layers in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.weights.saved_layers import SavedBlob, SavedLayer
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, NetParameter, ParamSpec
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value

# What works in place also in Caffe, and the types whose backward pass does not read the top that is written over.
_IN_PLACE = {"BatchNorm", "Scale", "ReLU", "ReLU6", "Dropout"}
_MAY_BE_OVERWRITTEN = {"Convolution", "Deconvolution", "InnerProduct", "BatchNorm", "Scale", "Bias", "Concat"}
_ALSO_BEFORE = {"Dropout": {"ReLU", "ReLU6", "Pooling"}, "ReLU": {"Eltwise"}, "ReLU6": {"Eltwise"}}


def moves_first_axis(layer: LayerParameter) -> bool:
    """Return whether axis 0 of a layer's tops may be another one than that of the items."""
    joins = (layer.slice_param, layer.concat_param)
    return (
        layer.type == "LSTM"
        or layer.permute_param.order[:1] not in ([], [0])
        or any(each.HasField("axis") and each.axis == 0 for each in joins)
    )


class LayersMade:
    """The layers, in the order of the graph.

    Args:
        name: the net's.

    Attributes:
        net: the layers.
        shapes: by layer, those of its tops.
        has_steps: a recurrent net was unrolled, so axis 0 may be time steps, also where no layer tells.
        all_items: what takes all items of the batch by their numbers, so that it becomes no layer.
    """

    def __init__(self, name: str) -> None:
        self.net = NetParameter(name=name)
        self.shapes: dict[str, list[Shape]] = {}
        self.has_steps = False
        self.all_items: list[str] = []
        self._constants: list[tuple[LayerParameter, list[Constant]]] = []
        self._used: set[str] = set()
        self._root: dict[str, str] = {}
        self._fixed: set[str] = set()
        self._remembered: dict[tuple[Any, ...], list[Value]] = {}

    def add_input(self, name: str, shape: Shape) -> Value:
        """Add an Input layer."""
        return self.add(name, "Input", [], [shape], (), {"input_param": {"shape": [{"dim": shape}]}})[0]

    def add(
        self,
        name: str,
        kind: str,
        bottoms: Sequence[Value],
        shapes: Sequence[Shape],
        blobs: Sequence[Constant],
        fields: Mapping[str, Any],
    ) -> list[Value]:
        """Add a layer under that name, or the next one that is free, and return its tops.

        Args:
            name: the name wished for.
            kind: the type.
            bottoms: what it reads.
            shapes: its tops'.
            blobs: its parameters; those that are not trained are frozen, but for BatchNorm's, which always are. A sum
                of parameters moves, and is pulled to 0, as these do together.
            fields: of its LayerParameter; a message as a dictionary.
        """
        name = self._free(name)
        tops = [name] if len(shapes) == 1 else [self._free(f"{name}.{index}") for index in range(len(shapes))]
        given = {field: value for field, value in fields.items() if value}
        layer = self.net.layer.add()
        layer.MergeFrom(LayerParameter(name=name, type=kind, bottom=[each.blob for each in bottoms], top=tops, **given))
        if blobs and kind != "BatchNorm" and not all(each.trained and each.movers == 1 for each in blobs):
            for blob in blobs:
                moves = float(blob.trained)
                layer.param.add(lr_mult=moves * blob.movers, decay_mult=moves / blob.movers)
        self._constants.append((layer, list(blobs)))
        self.shapes[name] = [tuple(shape) for shape in shapes]
        shares = kind in ("Slice", "Reshape", "Flatten", "Permute", "Dropout")  # the last in evaluation mode
        if kind == "Parameter" or (bottoms and all(self.is_fixed(each) for each in bottoms)):
            self._fixed.update(tops)
        for top in tops:
            self._root[top] = self._root[bottoms[0].blob] if shares else top
        return [Value(top, tuple(shape)) for top, shape in zip(tops, shapes, strict=True)]

    def _free(self, name: str) -> str:
        free, number = name, 2
        while free in self._used:
            free, number = f"{name}_{number}", number + 1
        self._used.add(free)
        return free

    def remembered(self, key: tuple[Any, ...], make: Callable[[], list[Value]]) -> list[Value]:
        """Return what was made for this key before, or make it."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]

    def remember(self, key: tuple[Any, ...], value: Value) -> None:
        """Note what `recalled` returns for this key."""
        self._remembered[key] = [value]

    def recalled(self, key: tuple[Any, ...]) -> Value | None:
        """Return the value that was noted for this key; None where there is none."""
        return self._remembered[key][0] if key in self._remembered else None

    def share_memory(self, view: Value, value: Value) -> None:
        """Note that PyTorch has a value in the memory of another one, where layers have it in their own."""
        self._root[view.blob] = self._root[value.blob]

    def views_of_the_same(self, value: Value) -> set[str]:
        """Return the other blobs that are the same memory as this one in PyTorch."""
        root = self._root[value.blob]
        return {blob for blob, its in self._root.items() if its == root and blob != value.blob}

    @property
    def items_move(self) -> bool:
        """Whether a layer, of something else than parameters alone, has tops with another axis 0 than the items'."""
        return any(moves_first_axis(each) and not self._fixed.issuperset(each.top) for each in self.net.layer)

    def is_fixed(self, value: Value) -> bool:
        """Return whether a value is computed from parameters alone, so that it has no batch axis."""
        return value.blob in self._fixed

    def learns(self, value: Value) -> bool:
        """Return whether a value depends on a parameter that is trained."""
        makers = {top: number for number, layer in enumerate(self.net.layer) for top in layer.top}
        waiting, seen = [value.blob], set[int]()
        while waiting:
            number = makers[waiting.pop()]
            if any(blob.trained for blob in self._constants[number][1]):
                return True
            if number not in seen:
                seen.add(number)
                waiting += self.net.layer[number].bottom
        return False

    def maker_of(self, value: Value) -> LayerParameter:
        """Return the layer that makes a value."""
        return next(layer for layer in self.net.layer if value.blob in layer.top)

    def drop_unread(self, outputs: Iterable[str]) -> None:
        """Take out layers that were made for values that nothing reads after all; Input layers stay."""
        read = set(outputs)
        kept = []
        for place in reversed(range(len(self.net.layer))):
            layer = self.net.layer[place]
            if layer.type == "Input" or read & set(layer.top):
                read |= set(layer.bottom)
                kept.append(place)
        for place in reversed(range(len(self.net.layer))):
            if place not in kept:
                del self.net.layer[place]
                del self._constants[place]

    def silence(self, outputs: Iterable[str]) -> None:
        """Let a Silence layer read the tops of layers with several that nothing else reads."""
        read = {bottom for layer in self.net.layer for bottom in layer.bottom} | set(outputs)
        unread = [top for layer in self.net.layer if layer.top[1:] for top in layer.top if top not in read]
        if unread:
            self.net.layer.add(name=self._free("silence"), type="Silence", bottom=unread)

    def share_parameters(self) -> None:
        """Give parameters that several layers read the name that makes Caffe's layers share them.

        Their shapes may differ. Where their counts do, an importer has repeated values: these are parameters apart.

        Raises:
            NetError: a recurrent layer holds one in the order of its own gates, or in a sum, and another layer has it.
        """
        self._refuse_two_forms()
        users = Counter((blob.name, blob.tensor.numel()) for _, blobs in self._constants for blob in blobs if blob.name)
        counts: dict[str, list[int]] = {}
        for name, count in users:
            counts.setdefault(name, []).append(count)
        shapes: dict[str, Shape] = {}
        for layer, blobs in self._constants:
            for index, blob in enumerate(blobs):
                count, shape = blob.tensor.numel(), tuple(blob.tensor.shape)
                if users[blob.name, count] > 1:
                    while len(layer.param) <= index:
                        layer.param.add()
                    number = counts[blob.name].index(count)
                    shared = f"{blob.name}.{number}" if number else blob.name
                    layer.param[index].name = shared
                    if shapes.setdefault(shared, shape) != shape:
                        layer.param[index].share_mode = ParamSpec.PERMISSIVE

    def _refuse_two_forms(self) -> None:
        forms: dict[str, tuple[str, Any]] = {}
        for layer, blobs in self._constants:
            for blob in blobs:
                own = tuple(blob.rows), tuple(blob.addends)
                for name, form in ((blob.name, own), *((each, (blob.name, own)) for each in blob.addends)):
                    first, known = forms.setdefault(name, (layer.name, form))
                    if name and known != form:
                        raise NetError(
                            f"layers '{first}' and '{layer.name}' both read '{name}', which a recurrent layer holds in"
                            " another order or in a sum of biases",
                            hint="give them parameters of their own",
                        )

    def weights(self) -> list[SavedLayer]:
        """Return the layers' parameters, which stay where they are."""
        return [
            SavedLayer(
                layer.name,
                {
                    number: SavedBlob(tuple(blob.tensor.shape), partial(_values, blob.tensor))
                    for number, blob in enumerate(blobs)
                },
            )
            for layer, blobs in self._constants
        ]

    def parameters(self) -> dict[tuple[str, int], Constant]:
        """Return the parameters that are trained, by layer and number of the blob."""
        return {
            (layer.name, number): blob
            for layer, blobs in self._constants
            for number, blob in enumerate(blobs)
            if blob.trained
        }

    def work_in_place(self, outputs: Iterable[str]) -> dict[str, str]:
        """Let activations and the like write over their bottoms where Caffe may, and return each blob's new name.

        The names are those of `caffe_side.value_names`: of values in one blob, all but the last are `blob@layer`.
        """
        readers = Counter(bottom for layer in self.net.layer for bottom in layer.bottom)
        readers.update(outputs)
        maker = {top: layer.type for layer in self.net.layer for top in layer.top}
        renamed: dict[str, str] = {}
        values: list[tuple[str, str, str]] = []
        for layer in self.net.layer:
            bottoms, tops = list(layer.bottom), list(layer.top)
            allowed = _MAY_BE_OVERWRITTEN | _ALSO_BEFORE.get(layer.type, set())
            may = layer.type in _IN_PLACE and len(bottoms) == 1 and readers[bottoms[0]] == 1
            if may and maker[bottoms[0]] in allowed:
                renamed[tops[0]] = renamed.get(bottoms[0], bottoms[0])
            for index, bottom in enumerate(bottoms):
                layer.bottom[index] = renamed.get(bottom, bottom)
            for index, top in enumerate(tops):
                layer.top[index] = renamed.get(top, top)
                values.append((top, layer.top[index], layer.name))
        last = {blob: top for top, blob, _ in values}
        return {top: blob if last[blob] == top else f"{blob}@{layer}" for top, blob, layer in values}


def _values(tensor: torch.Tensor) -> np.ndarray:
    """Return what a layer gets of a parameter: float32, and the tensor's own memory where it is that."""
    return tensor.detach().cpu().float().numpy()
