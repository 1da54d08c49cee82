"""SmoothL1Loss: the squared difference where it is small, the absolute difference where it is large.

    d = w_in (a - b)         f(d) = (sigma d)^2 / 2        where |d| < 1 / sigma^2
                                    |d| - 1 / (2 sigma^2)  elsewhere
    loss = sum w_out f(d) / N                  da = w w_out w_in f'(d) / N,  db = -da

N is the size of the first axis, w the loss weight; w_in and w_out are 1 where they are no bottoms.

Fields of `smooth_l1_loss_param` (default): sigma (1).
Bottoms: a (N, ...); b; optionally w_in; optionally w_out: all of one shape. Nothing flows to the weights.
Top: the loss ().
Differences from Caffe: SSD's has three bottoms at most and leaves w_in out of the gradient, which is the same for
weights of 0 and 1.
(Fast R-CNN's Caffe: smooth_L1_loss_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import between
from mgcaffe.engine.layers.shared.loss import Loss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("SmoothL1Loss")
class SmoothL1Loss(Loss):
    """The layer; see the module's text."""

    bottoms = between(2, 4)
    drops_gradients = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read sigma; of the bottoms backward needs the weights alone."""
        param = self.param.smooth_l1_loss_param
        if not 0 < param.sigma < float("inf"):
            self.fail(f"sigma has to be above 0, not {param.sigma:g}", "smooth_l1_loss_param.sigma")
        self.sharpness: float = param.sigma**2
        self.keeps_bottoms = len(bottom_shapes) > 2

    def differentiable(self, bottom: int) -> bool:
        """Return True for the first two bottoms, the scores."""
        return bottom < 2

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        first = bottom_shapes[0]
        for index, shape in enumerate(bottom_shapes):
            if not shape or shape != first:
                names = self.bottom_names
                self.fail(
                    f"the bottoms have to be of one shape with at least one axis: bottom 0 ('{names[0]}') has shape"
                    f" {first}, bottom {index} ('{names[index]}') has {shape}"
                )
        self.count = max(1, first[0])
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the difference and the weights."""
        difference = bottoms[0] - bottoms[1]
        if len(bottoms) > 2:
            difference.mul_(bottoms[2])
        self.saved = (difference, bottoms[2:]) if self.backward_follows else None
        errors = torch.ops.aten.smooth_l1_loss(difference, difference.new_zeros(()), 0, 1 / self.sharpness)
        if len(bottoms) > 3:
            errors.mul_(bottoms[3])
        return [errors.sum().div_(self.count)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """f' is sigma^2 d, cut off at -1 and 1."""
        difference, weights = self.saved
        slope = (difference * self.sharpness).clamp_(-1, 1)
        for weight in weights:
            slope.mul_(weight)
        slope.mul_(top_diffs[0] / self.count)
        first = slope if wanted[0] else None
        second = -slope if wanted[1] else None
        return [first, second, *[None] * len(weights)]
