"""The three ways to pool a window, behind the layers Pooling and SPP: MAX, AVE and STOCHASTIC.

A method keeps nothing itself: what its backward needs, `forward` returns beside the tops, for the layer's `saved`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from mgcaffe.engine.kernels import pooling, stochastic_pooling
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.engine.layer import TEST, Layer
from mgcaffe.prototxt import Phase


class PoolingMethod:
    """Base of the three.

    Args:
        layer: the layer that pools; its phase, its tops and its net's random stream are read.

    Attributes:
        takes_pad: the windows may reach beyond the image.
        has_mask: there may be a second top.
        draws: random numbers are drawn.
        place_bytes: of a place that backward needs for each value of the top; 0: it needs none.
    """

    takes_pad: ClassVar[bool] = True
    has_mask: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    place_bytes: ClassVar[int] = 0

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    @staticmethod
    def reads_bottom(phase: Phase) -> bool:
        """Return whether backward needs the bottom's values."""
        return False

    def forward(self, x: torch.Tensor, window: Window, keep: bool) -> tuple[list[torch.Tensor], Any]:
        """Return the tops of x (N, C, H, W), and what backward needs; `keep`: backward follows."""
        raise NotImplementedError

    def backward(self, dy: torch.Tensor, saved: Any, window: Window) -> torch.Tensor:
        """Return the gradient of x for that of the first top and what forward returned to keep."""
        raise NotImplementedError


class MaxPooling(PoolingMethod):
    """The maximum; its place in the second top."""

    has_mask = True
    place_bytes = 8

    def forward(self, x: torch.Tensor, window: Window, keep: bool) -> tuple[list[torch.Tensor], Any]:
        """Keep the places of the maxima."""
        y, places = pooling.max_forward(x, window)
        saved = (x.shape, format_of(x), places if keep else None)
        if len(self.layer.param.top) < 2:
            return [y], saved
        return [y, pooling.mask_of(places, y, x.shape[2:], window).to(y.dtype)], saved

    def backward(self, dy: torch.Tensor, saved: Any, window: Window) -> torch.Tensor:
        """Hand each window's gradient to its maximum."""
        shape, memory_format, places = saved
        return pooling.max_backward(dy, places, shape, memory_format, window)


class AveragePooling(PoolingMethod):
    """The mean."""

    def forward(self, x: torch.Tensor, window: Window, keep: bool) -> tuple[list[torch.Tensor], Any]:
        """Keep the bottom's shape and format."""
        return [pooling.average_forward(x, window)], (x.shape, format_of(x))

    def backward(self, dy: torch.Tensor, saved: Any, window: Window) -> torch.Tensor:
        """Spread each window's gradient over it."""
        shape, memory_format = saved
        return pooling.average_backward(dy, shape, memory_format, window)


class StochasticPooling(PoolingMethod):
    """A pixel drawn by its value in training, the mean weighted by the values in a test."""

    takes_pad = False
    draws = True
    place_bytes = 8

    @staticmethod
    def reads_bottom(phase: Phase) -> bool:
        """Return whether backward is that of the weighted mean."""
        return phase == TEST

    def forward(self, x: torch.Tensor, window: Window, keep: bool) -> tuple[list[torch.Tensor], Any]:
        """Keep the numbers of the pixels drawn, or the bottom."""
        if self.layer.phase == TEST:
            return [stochastic_pooling.weighted_forward(x, window)], x if keep else None
        y, chosen = stochastic_pooling.sampled_forward(x, window, self.layer.context.generator)
        return [y], (x.shape, chosen) if keep else None

    def backward(self, dy: torch.Tensor, saved: Any, window: Window) -> torch.Tensor:
        """Hand each window's gradient to the pixel drawn, or to all by the formula's derivative."""
        if self.layer.phase == TEST:
            return stochastic_pooling.weighted_backward(dy, saved, window)
        shape, chosen = saved
        return stochastic_pooling.sampled_backward(dy, chosen, shape, window)


POOLING_METHODS: Mapping[str, type[PoolingMethod]] = {
    "MAX": MaxPooling,
    "AVE": AveragePooling,
    "STOCHASTIC": StochasticPooling,
}
"""By the name of the value of `pool`."""
