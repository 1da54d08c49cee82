"""InfogainLoss: a softmax loss in which every pair of label and class has a weight of its own.

    p = softmax(x) along `axis`
    loss = -sum over positions and classes k of H[label, k] log(max(p_k, 1e-20)) / Z
    dx_k = w (p_k sum_j H[label, j] - H[label, k]) / Z

With the identity as H this is SoftmaxWithLoss. w is the loss weight, Z as in loss.py.

Fields of `infogain_loss_param` (default): axis (1); source: a BlobProto file with H, if it is no bottom; if it is one,
source has no effect, which a warning says.
Fields of `loss_param` (default): ignore_label (none), normalization (VALID); normalize is refused, as in Caffe,
and so is SegNet's weight_by_label_freqs (false), without which its class_weighting has no effect.
Bottoms: scores x, any shape with that axis (N, C, ...); labels, one a position (N, 1, ...); H, C x C values, unless it
comes from a file.
Tops: the loss (), and, if named, p.
No differences from Caffe. (Caffe: infogain_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from mgcaffe.engine.layer import between
from mgcaffe.engine.layers.shared import labels
from mgcaffe.engine.layers.shared.fields import warn_of_idle_field
from mgcaffe.engine.layers.shared.loss import NormalizedLoss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError, PrototxtError
from mgcaffe.errors.file_names import found_name
from mgcaffe.prototxt import BlobProto, blob_array, read_binary

MIN_PROBABILITY = 1e-20


@register("InfogainLoss")
class InfogainLoss(NormalizedLoss):
    """The layer; see the module's text.

    Attributes:
        matrix: H, if it comes from a file.
    """

    bottoms = between(2, 3)
    tops = between(1, 2)
    keeps_bottoms = False
    matrix: torch.Tensor | None = None

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read H."""
        super().setup(bottom_shapes)
        if self.param.loss_param.HasField("normalize"):
            self.fail(
                "this loss has no normalize", "loss_param.normalize", hint="give normalization: VALID or BATCH_SIZE"
            )
        source = self.param.infogain_loss_param.source
        if len(bottom_shapes) < 3:
            if not source:
                self.fail("the matrix H has to be bottom 2 or infogain_loss_param.source", "infogain_loss_param")
            self.matrix = self._read(found_name(source))
        elif source:
            warn_of_idle_field(self, "infogain_loss_param.source", "where the matrix H is bottom 2")
        self.keeps_tops = len(self.param.top) > 1

    def _read(self, source: str) -> torch.Tensor:
        field = "infogain_loss_param.source"
        if not Path(source).is_file():
            self.fail(
                f"the matrix file '{source}' does not exist",
                field,
                hint=f"relative paths start from the working directory, {Path.cwd()}",
                error=DataError,
            )
        try:
            values = blob_array(read_binary(source, BlobProto))
        except PrototxtError as error:
            self.fail(f"the matrix file '{source}' is no BlobProto: {error.message}", field, error=DataError)
        return torch.tensor(values, dtype=self.context.dtype, device=self.context.device)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number, and the scores' shape for the probabilities."""
        scores, given = bottom_shapes[:2]
        axis = self.param.infogain_loss_param.axis
        self.axis = self.canonical_axis(axis, len(scores), "infogain_loss_param.axis")
        labels.check_shapes(self, scores, self.axis, given)
        self.classes = scores[self.axis]
        matrix = tuple(self.matrix.shape) if self.matrix is not None else bottom_shapes[2]
        if math.prod(matrix) != self.classes**2:
            self.fail(
                f"the matrix H has shape {matrix}; {self.classes} classes need {self.classes} x {self.classes} values"
            )
        return [(), scores] if len(self.param.top) > 1 else [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the probabilities, each label's row of H, and Z."""
        scores, given = bottoms[:2]
        shape, axis = scores.shape, self.axis
        index, valid = labels.read_labels(self, given, shape, axis, self.ignore_label)
        matrix = (bottoms[2] if self.matrix is None else self.matrix).reshape(self.classes, self.classes)
        probabilities = torch.softmax(scores, axis)
        weights = matrix[index.squeeze(axis)].movedim(-1, axis)  # H[label, k] in the scores' shape
        losses = probabilities.clamp(min=MIN_PROBABILITY).log_().mul_(weights)
        if valid is not None:
            losses.masked_fill_(~valid, 0)
        divisor = self.divisor(math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), valid)
        if self.backward_follows:
            self.saved = (probabilities, weights, valid, divisor)
        loss = losses.sum().div_(-divisor).add_(0)  # 0, as in Caffe, not -0
        return [loss, probabilities] if len(self.param.top) > 1 else [loss]

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to labels or H."""
        return bottom == 0

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the scores' gradient; the probabilities' own is left out, as in Caffe."""
        nothing = [None] * (len(wanted) - 1)
        if not wanted[0]:
            return [None, *nothing]
        probabilities, weights, valid, divisor = self.saved
        scale = top_diffs[0] / divisor
        if valid is not None:
            scale = scale * valid
        diff = probabilities * weights.sum(self.axis, keepdim=True)
        return [diff.sub_(weights).mul_(scale), *nothing]
