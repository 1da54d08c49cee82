"""BatchNorm: gives every channel mean 0 and variance 1.

    y = (x - mean) / sqrt(variance + eps)

In training, mean and biased variance are those of the batch, over all axes but the channels, and are added to
the stored sums:  W2 = f W2 + 1,  W0 = f W0 + mean,  W1 = f W1 + variance m / (m - 1)   (f: moving_average_fraction,
m: values a channel; the last factor is 1 if m = 1). With global statistics mean = W0 / W2, variance = W1 / W2, or
0 while W2 is 0.

Fields of `batch_norm_param` (default): use_global_stats (true in the TEST phase, else false);
moving_average_fraction (0.999); eps (1e-5). A learned scale and bias are a Scale layer's.
Bottom: (N, C, ...), two axes or more. Top: the same shape; may be the bottom's blob.
Parameters: W0, the sum of means (C); W1, the sum of variances (C); W2, the sum of weights (1); all zero at first.
The forward pass itself changes them, so their lr_mult is 0. (Caffe: batch_norm_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.batch_norm import Statistics
from mgcaffe.engine.layer import TEST, Layer
from mgcaffe.engine.layers.fields import refuse_fork_fields
from mgcaffe.engine.parameter import Shape
from mgcaffe.engine.registry import register


@register("BatchNorm")
class BatchNorm(Layer):
    """The layer; see the module's text.

    Attributes:
        use_global: whether the stored statistics are used, not the batch's.
        eps: what is added to the variance.
    """

    in_place = True
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declares the three sums, which no solver may touch."""
        param = self.param.batch_norm_param
        neutral = {"scale_bias": False, "use_weight_bias": False, "relu": False, "stats_batch_size": 0}
        refuse_fork_fields(self, param, "batch_norm_param", neutral)
        shape = bottom_shapes[0]
        if len(shape) < 2:
            self.fail(f"the bottom needs a channel axis: two axes or more, not shape {shape}")
        self.eps = param.eps
        self.use_global = param.use_global_stats if param.HasField("use_global_stats") else self.phase == TEST
        self.keeps_tops = not self.use_global
        self.channels = shape[1]
        for index, spec in enumerate(self.param.param):
            if spec.HasField("lr_mult") and spec.lr_mult != 0:
                message = f"lr_mult {spec.lr_mult:g} of blob {index}: the statistics cannot be learned"
                self.fail(message, "param.lr_mult", hint="set lr_mult to 0, or leave `param` away")
        for size in (self.channels, self.channels, 1):
            parameter = self.add_parameter((size,))
            parameter.lr_mult, parameter.decay_mult, parameter.wanted = 0.0, 0.0, False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """The bottom's shape."""
        shape = bottom_shapes[0]
        if len(shape) < 2 or shape[1] != self.channels:
            self.fail(f"the bottom changed to shape {shape}; the statistics have {self.channels} channels")
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Normalises; keeps the top and the deviations."""
        x = bottoms[0]
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
        """The derivative through the value and, in training, through mean and variance."""
        if not wanted[0]:
            return [None]
        y, inverse_std = self.saved
        if self.use_global:
            return [top_diffs[0] * batch_norm.channel_view(inverse_std, top_diffs[0])]
        return [batch_norm.backward_from_top(top_diffs[0], y, inverse_std)]

    def stored_statistics(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and 1 / sqrt(variance + eps) from the parameters, each (C)."""
        means, variances, total = (parameter.data for parameter in self.parameters)
        factor = torch.where(total == 0, torch.zeros_like(total), 1 / total)
        return means * factor, (variances * factor + self.eps).rsqrt()

    def store(self, statistics: Statistics) -> None:
        """Adds a batch's statistics to the parameters; called once for every training forward pass."""
        fraction = self.param.batch_norm_param.moving_average_fraction
        means, variances, total = (parameter.data for parameter in self.parameters)
        means.mul_(fraction).add_(statistics.mean)
        variances.mul_(fraction).add_(statistics.unbiased_variance)
        total.mul_(fraction).add_(1)
