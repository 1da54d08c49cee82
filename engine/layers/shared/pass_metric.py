"""Metrics of a whole test, over all of its batches on all ranks, which are no mean of the batches' scores.

A test asks such a layer for its statistics instead of averaging its top: `begin_pass` before the first batch,
`end_pass` behind the last one, and, with the rows of all ranks put together, `score`. Outside of a test nothing is
collected. The top is the score of the batch alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.layers.shared.labels import read_labels
from mgcaffe.engine.types import Shape

Statistics = NDArray[np.float64]
_CLASSES = 2


class PassMetric(Layer):
    """A metric of predictions and labels of 0 or 1; subclasses say `statistics` and `score`.

    Attributes:
        columns: how many numbers a row of statistics has.
    """

    only_once = "it collects what a test is scored by"
    bottoms = exactly(2)
    keeps_bottoms = False
    columns: ClassVar[int]
    _collected: list[torch.Tensor] | None = None

    def statistics(self, predictions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return what the score follows from, (any number of rows, `columns`).

        Args:
            predictions: of a batch, (N,).
            labels: 0 or 1, (N,), int64.
        """
        raise NotImplementedError

    def score(self, statistics: Statistics) -> float:
        """Return the score of rows that may come from many batches and ranks; NaN where it is not defined."""
        raise NotImplementedError

    def begin_pass(self) -> None:
        """Collect statistics from now on."""
        self._collected = []

    def end_pass(self) -> Statistics:
        """Return the statistics since `begin_pass`, (rows, `columns`), and collect no more."""
        collected, self._collected = self._collected or [], None
        if not collected:
            return np.zeros((0, self.columns))
        joined: Statistics = torch.cat(collected).double().cpu().numpy()
        return joined

    def differentiable(self, bottom: int) -> bool:
        """Never."""
        return False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        predictions, labels = bottom_shapes
        if math.prod(predictions) != math.prod(labels):
            self.fail(f"predictions of shape {predictions} need as many labels, not a bottom 1 of shape {labels}")
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the statistics if a test collects them."""
        predictions = bottoms[0].reshape(-1)
        scores = torch.Size((len(predictions), _CLASSES))
        labels = read_labels(self, bottoms[1].reshape(-1), scores, 1, None).classes.reshape(-1)
        statistics = self.statistics(predictions, labels)
        if self._collected is not None:
            self._collected.append(statistics)
        return [predictions.new_tensor(self.score(statistics.double().cpu().numpy()))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing."""
        return [None, None]
