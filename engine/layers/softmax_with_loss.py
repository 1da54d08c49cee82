"""SoftmaxWithLoss: the negative log-likelihood of the labels under a softmax of the scores.

    p = softmax(x) along `axis`                       loss = -sum over positions of log(max(p_label, tiny)) / Z
    dx_k = w (p_k - [k = label]) / Z                  0 at positions that are ignored

With label_smoothing s and K classes the label counts for 1 - s only, and every class for s / K more:

    loss = -sum over positions of ((1 - s) log(max(p_label, tiny)) + s / K sum over k of log(max(p_k, tiny))) / Z
    dx_k = w (p_k - (1 - s) [k = label] - s / K) / Z

tiny is 1.2e-38, so that a net that has diverged shows a loss of 87.3; w is the loss weight, Z as in loss.py.

Fields of `softmax_param` (default): axis (1).
Fields of `loss_param` (default): ignore_label (none), normalization (VALID), and, if that is not given, normalize: true
for VALID, false for BATCH_SIZE; label_smoothing (0; a field of NVIDIA's and Intel's). The batch size is the number of
positions before the axis. SegNet's weight_by_label_freqs (false) is refused, and without it
its class_weighting has no effect, as there.
Bottoms: scores x, any shape with that axis (N, C, ...); labels, one a position (N, 1, ...).
Tops: the loss (), and, if named, p.
Differences from Caffe: one loss_weight is enough where p is a second top, which then has none; Caffe wants two. A label
that is no class is an error, which Caffe looks for in debug builds only. Label smoothing is that of Szegedy et al.,
"Rethinking the Inception Architecture", 2016, section 7; Intel's leaves s / K out at the label, and out of the loss
that it shows.
(Caffe: softmax_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import processor
from mgcaffe.engine.kernels.formats import from_pixel_rows, pixel_rows
from mgcaffe.engine.kernels.softmax import has_rows
from mgcaffe.engine.layer import between
from mgcaffe.engine.layers.shared import labels
from mgcaffe.engine.layers.shared.loss import NormalizedLoss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

TINY = torch.finfo(torch.float32).tiny


@register("SoftmaxWithLoss")
class SoftmaxWithLoss(NormalizedLoss):
    """The layer; see the module's text.

    Attributes:
        pixels: batch, height and width of scores that are taken as the matrix of their pixels, without a copy, which
            takes 0.8 of the time, both ways, over 8x21x64x64 on one core of an Intel Xeon (family 6, model 85). On an
            AMD EPYC (family 26, model 2) the softmax of rows of 21 values takes longer than that of a copy.
    """

    tops = between(1, 2)
    keeps_bottoms = False
    smooths_labels = True
    capturable = True

    pixels: tuple[int, ...] | None = None

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read `loss_param`; where the probabilities are a top, backward reads them there."""
        super().setup(bottom_shapes)
        self.keeps_tops = len(self.param.top) > 1

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number, and the scores' shape for the probabilities."""
        scores, given = bottom_shapes
        self.axis = self.canonical_axis(self.param.softmax_param.axis, len(scores), "softmax_param.axis")
        labels.check_shapes(self, scores, self.axis, given)
        return [(), scores] if len(self.param.top) > 1 else [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the probabilities, the class numbers and Z."""
        scores, given = bottoms
        shape, axis = scores.shape, self.axis
        index, valid = labels.read_labels(self, given, shape, axis, self.ignore_label)
        self.pixels = (shape[0], *shape[2:]) if has_rows(scores, axis) and processor.is_intels() else None
        if self.pixels is not None:
            scores, index = pixel_rows(scores), index.reshape(-1, 1)
            valid = None if valid is None else valid.reshape(-1, 1)
        probabilities = torch.softmax(scores, axis)
        logarithms = probabilities.gather(axis, index).clamp_(min=TINY).log_()
        if self.smoothing:
            of_all = probabilities.clamp(min=TINY).log_().mean(axis, keepdim=True)
            logarithms.lerp_(of_all, self.smoothing)
        if valid is not None:
            logarithms.masked_fill_(~valid, 0)
        divisor = self.divisor(math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), valid)
        if self.backward_follows:
            self.saved = (probabilities, index, valid, divisor)
        loss = logarithms.sum().div_(-divisor).add_(0)  # 0, as in Caffe, not -0
        return [loss, self._as_scores(probabilities)] if len(self.param.top) > 1 else [loss]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the scores' gradient; the probabilities' own is left out, as in Caffe."""
        if not wanted[0]:
            return [None, None]
        diff, index, valid, divisor = self.saved
        if self.context.frees_blobs and not self.keeps_tops:
            self.saved = None  # the gradient is written over the probabilities
        else:
            diff = diff.clone()
        scale = top_diffs[0] / divisor
        if valid is not None:
            scale = scale * valid
        diff.scatter_add_(self.axis, index, diff.new_full(index.shape, self.smoothing - 1))
        if self.smoothing:
            diff.sub_(self.smoothing / diff.shape[self.axis])
        return [self._as_scores(diff.mul_(scale)), None]

    def _as_scores(self, values: torch.Tensor) -> torch.Tensor:
        """Return one value for each score in the scores' shape."""
        return values if self.pixels is None else from_pixel_rows(values, *self.pixels)
