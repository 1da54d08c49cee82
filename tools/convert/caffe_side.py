"""Our own engine as one side of a proof: every layer's tops, also those that a layer in place writes over."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.net import Net
from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.proof import seeded_inputs


def value_names(net: Net) -> list[list[str]]:
    """Return a name for each top of each node: the blob's, but for values that a later layer writes over in place.

    Those are called `blob@layer`, after the layer that makes them, so that no two values share a name.
    """
    left = Counter(blob.name for node in net.nodes for blob in node.tops)
    taken = set(left)
    names = []
    for node in net.nodes:
        row = []
        for blob in node.tops:
            left[blob.name] -= 1
            name = blob.name
            if left[blob.name]:
                name = wished = f"{blob.name}@{node.layer.name}"
                number = 2
                while name in taken:  # of layers that have one name, or a blob that is called so
                    name, number = f"{wished}#{number}", number + 1
                taken.add(name)
            row.append(name)
        names.append(row)
    return names


def fitting_inputs(net: Net, seed: int = 0) -> dict[str, np.ndarray]:
    """Return seeded inputs that the net can read: noise, but whole numbers where layers want classes, rows or flags.

    A row that the net tells from all others, as it does padding, is as good as never among so many: a quarter are it.
    What is told from others, and is no row, is such flags or the like.
    """
    values = seeded_inputs({name: tuple(net.blobs[name].shape) for name in net.inputs}, seed)
    generator = np.random.default_rng(seed + 1)
    origins = {name: {name} for name in net.inputs}
    kinds: dict[str, _Kind | int] = {}
    told_apart: dict[str, int] = {}
    squares: dict[str, tuple[set[str], int]] = {}
    for node in net.nodes:
        read = [origins.get(blob.name, set()) for blob in node.bottoms]
        if node.layer.type in _MOVING:
            origins.update((top.name, set().union(*read)) for top in node.tops)
            continue
        subtracted = _subtracted(node.layer)
        if subtracted is not None:
            squares[node.tops[0].name] = read[0], subtracted
        if node.layer.type == "Threshold" and node.bottoms[0].name in squares:
            names, subtracted = squares[node.bottoms[0].name]
            told_apart.update(dict.fromkeys(names, subtracted))
        for number, names in enumerate(read):
            kind = _wanted_kind(node, number) if names else None
            if kind is None:
                continue
            for name in names:
                known = kinds.get(name)
                kinds[name] = min(kind, known) if isinstance(kind, int) and isinstance(known, int) else kind
    for name, row in told_apart.items():
        kinds.setdefault(name, max(row, 0) + 2)
    for name, kind in kinds.items():
        shape = values[name].shape
        found = generator.integers(0, kind, shape) if isinstance(kind, int) else kind(generator, shape)
        if isinstance(kind, int) and 0 <= told_apart.get(name, -1) < kind:
            found = np.where(generator.random(shape) < 0.25, told_apart[name], found)
        values[name] = found.astype(np.float32)
    return values


_MOVING = ("Split", "Reshape", "Flatten", "Slice", "Permute", "Concat", "Tile")
"""Layers whose tops hold values of their bottoms, and no others."""
_Kind = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _wanted_kind(node: Node, number: int) -> _Kind | int | None:
    """Return how to make values for a layer's bottom, or below what they are whole numbers; None: any values do."""
    layer: Any = node.layer
    shapes = node.shapes
    last = number == len(shapes) - 1
    if (layer.type in ("LSTM", "RNN") and number == 1) or (layer.type == "LSTMUnit" and number == 2):
        return 2
    if (layer.type == "Filter" and last) or (layer.type == "ContrastiveLoss" and number == 2):
        return 2
    if layer.type == "Embed":
        return int(layer.param.embed_param.input_dim)
    if layer.type == "EmbeddingBag" and number == 0:
        return int(layer.table.shape[0])
    if layer.type == "EmbeddingBag":
        return partial(_bags, math.prod(shapes[0]) if layer.gives_lengths else 0)
    if layer.type == "BatchReindex" and number == 1:
        return int(shapes[0][0])
    if layer.type in ("SoftmaxWithLoss", "InfogainLoss", "Accuracy") and number == 1:
        return int(shapes[0][layer.axis])
    if layer.type in ("HingeLoss", "MultinomialLogisticLoss") and number == 1:
        return int(layer.rows[1])
    if layer.type == "ROIPooling" and number == 1:
        return partial(_rectangles, shapes[0], layer.scale)
    return None


def _subtracted(layer: Any) -> int | None:
    """Return n where a layer computes (x - n)^2, as before a Threshold that tells n from others; None elsewhere."""
    if layer.type != "Power":
        return None
    param = layer.param.power_param
    fits = (param.power, param.scale) == (2, 1) and float(param.shift).is_integer()
    return -int(param.shift) if fits else None


def _bags(first: int, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return lengths of bags of which the first has all `first` ids; offsets of which the last has all, with 0."""
    values = np.zeros(shape)
    values.flat[:1] = first
    return values


def _rectangles(image: Shape, scale: float, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return rectangles (image number, x1, y1, x2, y2) within images of shape (N, C, H, W)."""
    count = shape[0]
    width, height = image[3] / scale, image[2] / scale
    columns = np.sort(generator.uniform(0, width, (count, 2)), 1)
    rows = np.sort(generator.uniform(0, height, (count, 2)), 1)
    numbers = generator.integers(0, image[0], count)
    found = np.stack([numbers, columns[:, 0], rows[:, 0], columns[:, 1], rows[:, 1]], 1)
    return found.reshape(shape)


class CaffeSide:
    """A net of ours; see `proof.Side`. Values are named as `value_names` does.

    Args:
        net: in its TEST phase, made to keep its blobs.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._names = value_names(net)

    @property
    def outputs(self) -> Sequence[str]:
        """The blobs that nothing reads."""
        return self._net.outputs

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The blobs of the Input layers."""
        return {name: tuple(self._net.blobs[name].shape) for name in self._net.inputs}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run layer by layer; the net's own blobs go when the last layer has read them."""
        net = self._net
        last = {id(blob): node.index for node in net.nodes for blob in (*node.bottoms, *node.tops)}
        values: dict[str, np.ndarray] = {}
        for node in net.nodes:
            if isinstance(node.layer, Input):
                node.layer.values = [torch.from_numpy(inputs[blob.name]).to(net.dtype) for blob in node.tops]
        for node, names in zip(net.nodes, self._names, strict=True):
            net.forward(node.index, node.index + 1)
            for blob, name in zip(node.tops, names, strict=True):
                if blob.data is not None and name not in inputs:
                    values[name] = blob.data.detach().cpu().numpy().copy()
            for blob in (*node.bottoms, *node.tops):
                if last[id(blob)] == node.index:
                    blob.data = None
        return values
