"""MVN: shifts every channel of every item to mean 0, and scales it to variance 1.

    y = (x - mean) / (deviation + eps)                dx = (dy - mean(dy) - y mean(y dy)) / (deviation + eps)
    without normalize_variance: y = x - mean          dx = dy - mean(dy)

The deviation is that of the values themselves (the sum of squares divided by their number n, not n - 1).

Fields of `mvn_param` (default): normalize_variance (true); across_channels (false): over all channels of an item
together; eps (1e-9).
Bottom: (N, C, H, W), or fewer axes, those that are missing being of size 1; or more axes, (N, C, ...). Top: the same
with at least four axes, so that of (N, C) it is (N, C, 1, 1); may be the bottom's blob.
Differences from Caffe: any number of axes, where Caffe takes up to four. In place a blob of fewer than four keeps its
axes, of which a warning tells; in Caffe it then has four. (Caffe: mvn_layer.cpp.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

AXES = 4

_log = logging.getLogger("mgcaffe.engine")


@register("MVN")
class MVN(Layer):
    """The layer; see the module's text."""

    capturable = True
    in_place = True
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields; without the variance the slope is the same everywhere."""
        param = self.param.mvn_param
        self.eps: float = param.eps
        self.divides: bool = param.normalize_variance
        self.keeps_tops = self.divides
        self.is_in_place = list(self.param.bottom) == list(self.param.top)
        if self.is_in_place and len(bottom_shapes[0]) < AXES:
            warn_once(
                _log,
                f"layer '{self.name}': blob '{self.param.top[0]}' keeps its {len(bottom_shapes[0])} axes; in Caffe an"
                f" MVN layer in place gives it {AXES}. Give the top a name of its own, and it has them here as well",
            )

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape, with four axes at least unless in place."""
        self.bottom_shape = shape = bottom_shapes[0]
        if not self.is_in_place:
            shape = (*shape, *[1] * (AXES - len(shape)))
        self.top_shape = shape
        together = 1 if self.param.mvn_param.across_channels else 2
        self.axes = tuple(range(together, len(shape)))
        self.count = math.prod(shape[together:])
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep y and what each row was divided by."""
        x = bottoms[0].reshape(self.top_shape)
        y = x - self._mean(x)
        if not self.divides:
            return [y]
        divisor = self._mean(y.square()).sqrt_().add_(self.eps)
        y.div_(divisor)
        self.saved = (y, divisor) if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Take out of dy what a change of mean and variance would take out."""
        if not wanted[0]:
            return [None]
        dy = top_diffs[0]
        dx = dy - self._mean(dy)
        if self.divides:
            y, divisor = self.saved
            dx.addcmul_(y, self._mean(y * dy), value=-1).div_(divisor)
        return [dx.reshape(self.bottom_shape)]

    def _mean(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of every channel or item, with axes of size 1; of nothing, 0 over 0."""
        return x.sum(self.axes, keepdim=True).div_(self.count) if self.axes else x / self.count
