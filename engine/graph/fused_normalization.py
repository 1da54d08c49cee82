"""BatchNorm, Scale and ReLU as one layer, alone or together with the Convolution that reads what they make."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.graph.fused_layer import FusedLayer, through_relu
from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.elementwise import relu_
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.layers.scale import Scale


class BatchNormScale(FusedLayer):
    """y = s (x - mean) / sqrt(variance + eps) + b, and with a ReLU behind it max(y, 0).

    Where x comes in 16 bits so do y and the gradients; the statistics are computed and kept in float32.

    Attributes:
        top_is_kept: set by `fuse`: whether a layer that reads y keeps it anyway. If none does, y is made again from x
            in backward, where that is cheap.
    """

    takes_narrow = True
    keeps_others = False

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[0], BatchNorm)
        assert isinstance(members[1], Scale)
        self.norm, self.scale = members[0], members[1]
        self.relu = len(members) > 2
        self.keeps_tops = self.relu
        self.top_is_kept = True

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom, the statistics and, with a ReLU that masks gradients here, the top."""
        x = bottoms[0]
        factor, bias = self.factor_and_bias()
        if self.norm.use_global:
            return [self._with_stored_statistics(widened(x), factor, bias)]
        y, statistics = batch_norm.forward(x, factor, bias, self.norm.eps, relu=self.relu)
        self.norm.store(statistics)
        if self.backward_follows:
            keeps_top = self.relu and self.masks and (self.top_is_kept or not batch_norm.suits_pieces(x))
            self.saved = (x, y if keeps_top else None, statistics.mean, statistics.inverse_std)
        return [y]

    def factor_and_bias(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the Scale's parameters."""
        return self.scale.parameters[0].data, None if self.scale.bias is None else self.scale.bias.data

    def _with_stored_statistics(self, x: torch.Tensor, factor: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        mean, inverse_std = self.norm.stored_statistics()
        y = batch_norm.normalize(x, factor, bias, mean, inverse_std)
        return relu_(y) if self.relu else y

    def top(self) -> torch.Tensor:
        """Return y between forward and backward: what was kept, or else made again."""
        y: torch.Tensor | None
        x, y, mean, inverse_std = self.saved
        if y is None:
            y = batch_norm.normalize(x, *self.factor_and_bias(), mean, inverse_std, self.relu)
            self.saved = (x, y, mean, inverse_std)
        return y

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Mask the gradient by the ReLU, unless that is done, and return all three gradients."""
        y = self.top() if self.relu and self.masks else None
        x, _, mean, inverse_std = self.saved
        dy = top_diffs[0].to(x.dtype)
        if y is not None:
            dy = through_relu(dy, y, self.may_overwrite_top_diff[0] or dy is not top_diffs[0])
        factor, bias = self.scale.parameters[0], self.scale.bias
        wants = (wanted[0], factor.wanted, bias is not None and bias.wanted)
        dx, dfactor, dbias = batch_norm.backward(dy, x, factor.data, mean, inverse_std, wants)
        if dfactor is not None:
            factor.accumulate(dfactor)
        if bias is not None and dbias is not None:
            bias.accumulate(dbias)
        return [dx]


class NormalizedConvolution(FusedLayer):
    """y = W * max(s (x - mean) / sqrt(variance + eps) + b, 0) + c.

    What the convolution reads is not kept for backward where it is cheap to make it again: a pass over x, while each of
    the two convolutions that need it or its ReLU's mask takes many times as long.
    """

    takes_narrow = True
    keeps_others = False

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[3], Convolution)
        self.normalization, self.convolution = BatchNormScale(members[:3]), members[3]
        self.normalization.top_is_kept = False

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom, the statistics and, where it is not cheap to make, what the convolution reads."""
        self.normalization.backward_follows = self.backward_follows
        tops = self.convolution.forward(self.normalization.forward(bottoms))
        self.saved, self.normalization.saved = self.normalization.saved, None
        self.convolution.release()
        return tops

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the convolution's adjoints, then the ReLU's mask and the normalization's."""
        norm, convolution = self.normalization, self.convolution
        norm.saved = self.saved
        convolution.saved = [convolution.operand(norm.top())]
        dy = convolution.backward(top_diffs, [True])
        convolution.release()
        norm.may_overwrite_top_diff = [True]
        assert dy[0] is not None
        diffs = norm.backward([dy[0]], wanted)
        norm.release()
        return diffs
