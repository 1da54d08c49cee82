"""The base of the layers that compute every value of the top from one value of the bottom.

    y = f(x)

Such a layer's top has the bottom's shape and memory format, and may be the bottom's blob. A layer whose slope
follows from y keeps y alone; it then works in place, and costs no memory where the next layer keeps y too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.types import Shape


class Neuron(Layer):
    """A layer whose slope needs x, or y where `keeps_tops` says so. Subclasses say `value` and `gradient`."""

    in_place = True
    diffs_share_tops = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        return [bottom_shapes[0]]

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """f(x), written to `out` (x itself) unless that is None."""
        raise NotImplementedError

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """f'(x) dy, written to `out` (dy itself) unless that is None. `kept` is y or x."""
        raise NotImplementedError

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep x or y, whichever the slope needs; write y over x only where x is not kept."""
        x = bottoms[0]
        keeps_x = self.keeps_bottoms and self.backward_follows
        y = self.value(x, x if self.may_overwrite_bottom and not keeps_x else None)
        self.saved = x if keeps_x else y if self.keeps_tops and self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hand `gradient` what forward kept."""
        if not wanted[0]:
            return [None]
        dy = top_diffs[0]
        return [self.gradient(dy, self.saved, dy if self.may_overwrite_top_diff[0] else None)]


class TopNeuron(Neuron):
    """A layer whose slope follows from y."""

    keeps_others = False
    keeps_bottoms = False
    keeps_tops = True


def affine(x: torch.Tensor, scale: float, shift: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """Give shift + scale x in one pass over memory."""
    if shift == 0:
        return torch.mul(x, scale, out=out)
    if out is not None:
        return torch.mul(x, scale, out=out).add_(shift)
    return torch.rsub(x, shift, alpha=-scale)
