"""One training step of both sides of a conversion in float64: the second half of the proof, for nets that train.

The loss is the softmax loss of one output and seeded labels; BatchNorm normalizes by the batch, dropout is off.
Gradients belong to a layer and the number of its parameter, as in a caffemodel. Those of the first side wait in a file,
so that only one of the two nets is in memory.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np

from mgcaffe.engine.layer import Layer
from mgcaffe.errors import DataError
from mgcaffe.tools.convert.proof import Difference, Measure, difference, rows_of, table

TOLERANCE = 1e-9
"""The largest relative difference of a gradient, or of the losses, that is accepted."""
_SHOWN = 5
_LEAST = 1e-6
_ROUNDING = 1e-12
"""Gradients of a loss of about 1 that are no larger are rounding errors of zero."""
_CHUNK = 1 << 20

Place = tuple[str, int]
Scores = tuple[str, tuple[int, ...]]
"""What a net calls the output that the loss is of, and its shape (N, C, ...)."""
Take = Callable[[Place, np.ndarray], None]


def places_of(layers: Iterable[Layer]) -> dict[int, Place]:
    """Return the place of each parameter of a net's layers, by the parameter's identity.

    Layers of one name, which Caffe allows, count on: where the first has two parameters, the second begins at 2.
    """
    found: dict[int, Place] = {}
    counts: Counter[str] = Counter()
    for layer in layers:
        for parameter in layer.parameters:
            found[id(parameter)] = layer.name, counts[layer.name]
            counts[layer.name] += 1
    return found


class CannotTrain(Exception):
    """There is no training step that could be compared; says why."""


class TrainingSide(Protocol):
    """A model that can compute a training step."""

    def step(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray, output: str, take: Take) -> float:
        """Compute the loss, and the gradients of all parameters that are trained; called once.

        Args:
            inputs: by the names that the net has for them.
            labels: for scores of shape (N, C, ...) whole numbers below C of shape (N, ...).
            output: what the net calls the scores.
            take: is given each gradient in float64, by layer and number, and is done with it when it returns.

        Returns:
            The loss.

        Raises:
            CannotTrain: it has none.
        """


@dataclass(frozen=True)
class TrainingStep:
    """How far apart two training steps are.

    Attributes:
        losses: of the model that was converted, and of the result.
        gradients: called layer/number, the worst first; relative to the largest gradient of the layer, since a bias
            that a later normalization takes out again has a gradient of 0 but for rounding, and to a millionth of the
            largest of all at least, since a whole layer may have none but such.
    """

    losses: tuple[float, float]
    gradients: tuple[Difference, ...]

    @property
    def loss_apart(self) -> float:
        """The relative difference of the losses."""
        one, two = map(np.asarray, self.losses)
        return difference("loss", one, two).largest_relative

    @property
    def largest_relative(self) -> float:
        """The largest relative difference of the losses and of the gradients."""
        return max(self.loss_apart, *(each.largest_relative for each in self.gradients))

    @property
    def holds(self) -> bool:
        """Whether it is accepted."""
        return self.largest_relative <= TOLERANCE

    def __str__(self) -> str:
        """Return the losses and the worst gradients as text."""
        one, two = (f"{loss:.10g}" for loss in self.losses)
        head = f"one training step in float64: losses {one} and {two}, relative difference {self.loss_apart:.2e}"
        return f"{head}\n{table(self.gradients, 'gradient', _SHOWN)}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it; null stands for what is not finite."""
        loss = [each if math.isfinite(each) else None for each in self.losses]
        worst = self.largest_relative
        return {
            "loss": loss,
            "largest_relative": worst if math.isfinite(worst) else None,
            "gradients": rows_of(self.gradients),
        }


def compare_steps(
    ours: Callable[[], TrainingSide],
    theirs: Callable[[], TrainingSide],
    inputs: Mapping[str, np.ndarray],
    scores: Scores,
    seed: int = 0,
) -> TrainingStep:
    """Compute a training step of both sides, one after the other, and compare loss and gradients.

    A gradient that one side lacks counts as zeros: a parameter that is frozen, or that the loss does not depend on.

    Args:
        ours, theirs: make the sides; the first one is dropped before the second is made.
        inputs: by the names that the net has for them.
        scores: the output that the loss is of.
        seed: of the labels.

    Raises:
        CannotTrain: one of them has no such step, or nothing in it is trained, or all gradients are rounding errors.
        DataError: a gradient has another size on the other side.
    """
    output, shape = scores
    labels = np.random.default_rng(seed + 2).integers(0, shape[1], (shape[0], *shape[2:])).astype(np.float32)
    with tempfile.TemporaryFile(prefix="mgcaffe-") as file:
        gradients = _Gradients(file)
        first = ours().step(inputs, labels, output, gradients.keep)
        second = theirs().step(inputs, labels, output, gradients.compare)
        found = gradients.differences()
    if not found:
        raise CannotTrain("the loss depends on no parameter that is trained")
    step = TrainingStep((first, second), tuple(found))
    if gradients.largest <= _ROUNDING and step.loss_apart <= TOLERANCE:
        raise CannotTrain(f"no gradient is above {_ROUNDING}: they are rounding errors of zero, or not finite")
    return step


class _Gradients:
    """The gradients of one side in a file, and how far those of the other are from them.

    Args:
        file: empty, for reading and writing.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._kept: dict[Place, tuple[int, int]] = {}
        self._measures: dict[Place, Measure] = {}

    def keep(self, place: Place, values: np.ndarray) -> None:
        """Write the first side's."""
        self._kept[place] = (self._file.seek(0, 2), values.size)
        self._file.write(np.ascontiguousarray(values, np.float64).reshape(-1).view(np.uint8).data)

    def compare(self, place: Place, values: np.ndarray) -> None:
        """Compare the second side's."""
        offset, count = self._kept.get(place, (None, values.size))
        if count != values.size:
            raise DataError(f"gradient {place[0]}/{place[1]} has {count} values, on the other side {values.size}")
        measure, flat = Measure(), values.reshape(-1)
        for start in range(0, count, _CHUNK):
            part = flat[start : start + _CHUNK]
            measure.add(np.zeros(part.size) if offset is None else self._read(offset, start, part.size), part)
        self._measures[place] = measure

    def _read(self, offset: int, start: int, count: int) -> np.ndarray:
        self._file.seek(offset + 8 * start)
        return np.frombuffer(self._file.read(8 * count), np.float64)

    @property
    def largest(self) -> float:
        """The largest gradient or difference of two; infinite where one side alone is not finite."""
        return max((max(each.largest, each.apart) for each in self._measures.values()), default=0.0)

    def differences(self) -> list[Difference]:
        """Return all of them, the worst first."""
        for place in self._kept.keys() - self._measures.keys():
            self.compare(place, np.zeros(self._kept[place][1]))
        least = _LEAST * max((measure.largest for measure in self._measures.values()), default=0.0)
        scales: dict[str, float] = {}
        for (layer, _), measure in self._measures.items():
            scales[layer] = max(scales.get(layer, least), measure.largest)
        found = [
            measure.difference(f"{layer}/{number}", scales[layer])
            for (layer, number), measure in self._measures.items()
        ]
        return sorted(found, key=lambda each: -each.largest_relative)
