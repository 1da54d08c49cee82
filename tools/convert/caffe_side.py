"""Our own engine as one side of a proof: every layer's tops, also those that a layer in place writes over."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
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

    Of rows that the net compares with whole numbers, as with padding, a quarter are such numbers, or those on both
    sides of a limit. An input of which the net tells whether it is a number, and that looks up no rows, gets whole
    numbers from 0 to that number + 1; so does one that is compared with whole limits and read by nothing else.
    """
    values = seeded_inputs({name: tuple(net.blobs[name].shape) for name in net.inputs}, seed)
    generator = np.random.default_rng(seed + 1)
    origins = {name: {name} for name in net.inputs}
    kinds: dict[str, _Kind | int] = {}
    compared: dict[str, set[int]] = defaultdict(set)
    alone: dict[str, int] = {}
    limited: dict[str, int] = {}
    read_otherwise: set[str] = set()
    functions: dict[str, tuple[set[str], Any]] = {}
    for node in net.nodes:
        read = [origins.get(blob.name, set()) for blob in node.bottoms]
        if node.layer.type in _MOVING:
            origins.update((top.name, set().union(*read)) for top in node.tops)
            continue
        if node.layer.type == "Power":
            functions[node.tops[0].name] = read[0], node.layer.param.power_param
        if node.layer.type == "Threshold":
            names, power = functions.get(node.bottoms[0].name, (read[0], None))
            limit = node.layer.param.threshold_param.threshold
            numbers = _told_apart(power, limit)
            if not numbers or (numbers[1:] and not limit.is_integer()):
                read_otherwise.update(names)
            for name in names:
                compared[name].update(numbers)
                ends = alone if len(numbers) == 1 else limited
                ends[name] = max(ends.get(name, 0), *(each + 2 for each in numbers), 2)
        elif node.layer.type != "Power":
            read_otherwise.update(*read, *(functions[each.name][0] for each in node.bottoms if each.name in functions))
        for number, names in enumerate(read):
            kind = _wanted_kind(node, number) if names else None
            if kind is None:
                continue
            for name in names:
                known = kinds.get(name)
                kinds[name] = min(kind, known) if isinstance(kind, int) and isinstance(known, int) else kind
    for name, end in alone.items():
        kinds.setdefault(name, end)
    for name in limited.keys() - read_otherwise:
        kinds.setdefault(name, limited[name])
    for name, kind in kinds.items():
        shape = values[name].shape
        found = generator.integers(0, kind, shape) if isinstance(kind, int) else kind(generator, shape)
        numbers = [each for each in sorted(compared[name]) if isinstance(kind, int) and 0 <= each < kind]
        if numbers:
            taken = generator.random(shape) < 0.25
            found = np.where(taken, generator.choice(numbers, shape) if numbers[1:] else numbers[0], found)
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


def _told_apart(power: Any, limit: float) -> list[int]:
    """Return the number that a Threshold tells from all others, or the two whole numbers on both sides of its limit.

    Args:
        power: the power_param of what it reads, (x - n)^2 or -x; None where it reads x itself.
        limit: its threshold.
    """
    if not math.isfinite(limit):
        return []
    if power is None:
        return [math.floor(limit), math.floor(limit) + 1]
    if (power.power, power.scale) == (2, 1) and float(power.shift).is_integer():
        return [-int(power.shift)]
    if (power.power, power.scale, power.shift) == (1, -1, 0):
        return [math.ceil(-limit) - 1, math.ceil(-limit)]
    return []


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
