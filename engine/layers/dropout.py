"""Dropout: sets values to zero at random while training.

    TRAIN: y = x m / (1 - dropout_ratio)              dx = dy m / (1 - dropout_ratio)
    TEST:  y = x                                      dx = dy

    m is 1 with probability 1 - dropout_ratio, else 0; every value has its own.

    With scale_train: false
    TRAIN: y = x m                                    dx = dy m
    TEST:  y = x (1 - dropout_ratio)                  dx = dy (1 - dropout_ratio)

Fields of `dropout_param` (default): dropout_ratio (0.5), in [0, 1), or 1 where the phase is TEST; scale_train (true),
of the Caffe of Fast and Faster R-CNN; sample_weights_test, of SegNet's, is refused unless false. The phase is the
layer's own where the prototxt gives it one. The random numbers come from the net's stream.
Bottom: any shape. Top: the same; may be the bottom's blob.
Differences from Caffe: a dropout_ratio of 0 is allowed. The values dropped are others, since the random numbers are not
Caffe's.
(Caffe: dropout_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Dropout")
class Dropout(Neuron):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the ratio."""
        param = self.param.dropout_param
        refuse_fork_fields(self, param, "dropout_param", {"random_seed": -1, "sample_weights_test": False})
        self.ratio: float = param.dropout_ratio
        if not 0 <= self.ratio < 1 and (self.ratio != 1 or self.phase == TRAIN):
            self.fail(
                f"dropout_ratio has to be at least 0 and below 1, not {self.ratio:g}",
                "dropout_param.dropout_ratio",
            )
        self.active = self.phase == TRAIN and self.ratio > 0
        kept = 1 - self.ratio
        self.factor = (1 / kept if self.active else 1) if param.scale_train else (1 if self.active else kept)
        self.tops_share_bottoms = not self.active and self.factor == 1

    def others_bytes(self, top_shapes: Sequence[Shape]) -> int:
        """Return the mask's: one byte a value."""
        return math.prod(top_shapes[0]) if self.active else 0

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the mask, one byte a value."""
        x = bottoms[0]
        if not self.active:
            return [self._scaled(x, self.may_overwrite_bottom)]
        noise = torch.empty_like(x).uniform_(generator=self.context.generator)
        # As numbers, not truth values: PyTorch multiplies with them in half the time.
        mask = (noise >= self.ratio).view(torch.uint8)
        del noise
        self.saved = mask if self.backward_follows else None
        return [self._apply(mask, x, self.may_overwrite_bottom)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Drop the gradients of what forward dropped."""
        if not wanted[0]:
            return [None]
        dy = top_diffs[0]
        in_place = self.may_overwrite_top_diff[0]
        return [self._apply(self.saved, dy, in_place) if self.active else self._scaled(dy, in_place)]

    def _apply(self, mask: torch.Tensor, values: torch.Tensor, in_place: bool) -> torch.Tensor:
        kept = torch.mul(values, mask, out=values if in_place else None)
        return self._scaled(kept, True)

    def _scaled(self, values: torch.Tensor, in_place: bool) -> torch.Tensor:
        if self.factor == 1:
            return values
        return torch.mul(values, self.factor, out=values if in_place else None)
