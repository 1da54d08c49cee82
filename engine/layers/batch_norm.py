"""BatchNorm: gives every channel mean 0 and variance 1.

    y = (x - mean) / sqrt(variance + eps)

In training, mean and biased variance are those of the batch, over all axes but the channels, and are added to the
stored sums: W2 = f W2 + 1, W0 = f W0 + mean, W1 = f W1 + variance m / (m - 1) (f: moving_average_fraction, m: values a
channel; the last factor is 1 if m = 1). With global statistics mean = W0 / W2, variance = W1 / W2, or 0 while W2 is 0.

Fields of `batch_norm_param` (default): use_global_stats (true in the TEST phase, else false); moving_average_fraction
(0.999); eps (1e-5). A learned scale and bias are a Scale layer's, or, with NVIDIA's scale_bias (false; true where one
of the fillers is given), this layer's own: y becomes scale y + bias, with scale_filler (constant 1) and bias_filler
(constant 0).
Bottom: (N, C, ...), two axes or more. Top: the same shape; may be the bottom's blob.
Parameters: W0, the sum of means (C); W1, the sum of variances (C); W2, the sum of weights (1); all zero at first. The
forward pass itself changes them, so their lr_mult is 0. With scale_bias also scale (C) and bias (C).
Differences from Caffe: every rank has the statistics of its own batches; they are averaged over the ranks before a test
and a snapshot. A batch of no items leaves the statistics as they are, where Caffe's become NaN. NVIDIA's Caffe stores
averages instead of sums, with W2 = 1, and reads them likewise: its weights give the same results here until training
goes on, when they count as the statistics of one batch.
(Caffe: batch_norm_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import batch_norm, channels
from mgcaffe.engine.kernels.batch_norm import Statistics
from mgcaffe.engine.layer import TEST, Layer
from mgcaffe.engine.layers.shared.fields import filler_or_constant, refuse_fork_fields, refuse_missing_channels
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("BatchNorm")
class BatchNorm(Layer):
    """The layer; see the module's text.

    Attributes:
        use_global: whether the stored statistics are used, not the batch's.
        scale_bias: whether a scale and a bias of its own follow.
        eps: what is added to the variance.
    """

    capturable = True
    in_place = True
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the three sums, which no solver may touch."""
        param = self.param.batch_norm_param
        # Intel's use_weight_bias, whose default is true there, is scale_bias by another name where it is given.
        neutral = {"use_weight_bias": False, "relu": False, "stats_batch_size": 0, "bias_term": True, "filler": None}
        refuse_fork_fields(self, param, "batch_norm_param", neutral)
        shape = bottom_shapes[0]
        refuse_missing_channels(self, shape)
        self.eps = param.eps
        self.use_global = param.use_global_stats if param.HasField("use_global_stats") else self.phase == TEST
        self.scale_bias: bool = param.scale_bias or param.HasField("scale_filler") or param.HasField("bias_filler")
        self.keeps_tops = not self.use_global and not self.scale_bias
        self.keeps_bottoms = self.scale_bias
        self.channels = shape[1]
        for index, spec in enumerate(self.param.param[:3]):
            if spec.HasField("lr_mult") and spec.lr_mult != 0:
                message = f"lr_mult {spec.lr_mult:g} of blob {index}: the statistics cannot be learned"
                self.fail(message, "param.lr_mult", hint="set lr_mult to 0, or leave `param` away")
        for size in (self.channels, self.channels, 1):
            parameter = self.add_parameter((size,))
            parameter.freeze()
            parameter.measured = True
        if self.scale_bias:
            self.add_parameter((self.channels,), filler_or_constant(param, "scale_filler", 1))
            self.add_parameter((self.channels,), param.bias_filler)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        shape = bottom_shapes[0]
        if len(shape) < 2 or shape[1] != self.channels:
            self.fail(f"the bottom changed to shape {shape}; the statistics have {self.channels} channels")
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Normalise; keep the top and the deviations, or with scale and bias the bottom and the statistics."""
        x = bottoms[0]
        if self.scale_bias:
            return [self._forward_scaled(x)]
        if self.use_global:
            mean, inverse_std = self.stored_statistics()
            shift = batch_norm.channel_view(-mean * inverse_std, x)
            y = torch.addcmul(shift, x, batch_norm.channel_view(inverse_std, x))
            self.saved = (None, inverse_std)
            return [y]
        y, statistics = batch_norm.forward(x, None, None, self.eps)
        self.store(statistics)
        self.saved = (y if self.backward_follows else None, statistics.inverse_std)
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the derivative through the value and, in training, through mean and variance."""
        if self.scale_bias:
            return [self._backward_scaled(top_diffs[0], wanted[0])]
        if not wanted[0]:
            return [None]
        y, inverse_std = self.saved
        if self.use_global:
            return [top_diffs[0] * batch_norm.channel_view(inverse_std, top_diffs[0])]
        return [batch_norm.backward_from_top(top_diffs[0], y, inverse_std)]

    def _forward_scaled(self, x: torch.Tensor) -> torch.Tensor:
        scale, bias = (parameter.data for parameter in self.parameters[3:])
        if self.use_global:
            mean, inverse_std = self.stored_statistics()
            y = channels.scale(x, scale * inverse_std, bias - mean * scale * inverse_std)
        else:
            y, statistics = batch_norm.forward(x, scale, bias, self.eps)
            self.store(statistics)
            mean, inverse_std = statistics.mean, statistics.inverse_std
        self.saved = (x, mean, inverse_std) if self.backward_follows else None
        return y

    def _backward_scaled(self, dy: torch.Tensor, wants_bottom: bool) -> torch.Tensor | None:
        x, mean, inverse_std = self.saved
        scale, bias = self.parameters[3:]
        wants = (wants_bottom, scale.wanted, bias.wanted)
        if self.use_global:
            if scale.wanted:
                x = (x - batch_norm.channel_view(mean, x)).mul_(batch_norm.channel_view(inverse_std, x))
            dx, dscale, dbias = channels.scale_backward(dy, x, scale.data * inverse_std, wants)
        else:
            dx, dscale, dbias = batch_norm.backward(dy, x, scale.data, mean, inverse_std, wants)
        if dscale is not None:
            scale.accumulate(dscale)
        if dbias is not None:
            bias.accumulate(dbias)
        return dx

    def stored_statistics(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and 1 / sqrt(variance + eps) from the parameters, each (C)."""
        means, variances, total = (parameter.data for parameter in self.parameters[:3])
        factor = torch.where(total == 0, torch.zeros_like(total), 1 / total)
        return means * factor, (variances * factor + self.eps).rsqrt()

    def store(self, statistics: Statistics) -> None:
        """Add a batch's statistics to the parameters; called in every training forward pass."""
        if not statistics.values or self.context.runs_again:
            return
        fraction = self.param.batch_norm_param.moving_average_fraction
        sums = [parameter.data for parameter in self.parameters[:3]]
        torch._foreach_mul_(sums, fraction)
        torch._foreach_add_(sums[:2], [statistics.mean, statistics.unbiased_variance])
        sums[2].add_(1)
