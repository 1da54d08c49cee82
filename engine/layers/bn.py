"""BN: gives every channel mean 0 and variance 1, then a learned slope and bias.

    y = slope (x - mean) / sqrt(variance + eps) + bias

There are two Caffes that call a layer BN, with fields of different names, which tell them apart.

With slope_filler, bias_filler, momentum, eps or frozen (PSPNet's, TSN's), in training mean and biased variance are
those of the batch over all axes but the channels, and the parameters that hold moving averages follow them: average =
momentum average + (1 - momentum) value. In the TEST phase, and with `frozen`, which also fixes slope and bias, the
averages are used.

With scale_filler, shift_filler or bn_mode (SegNet's), mean and biased variance are always those of the batch, also in
the TEST phase. With bn_mode INFERENCE there are none: y = slope x + bias, with statistics that a script has merged into
slope and bias.

Fields of `bn_param` (default): of the first: slope_filler (constant 1), bias_filler (constant 0), momentum (0.9), eps
(1e-5), frozen (false).
Fields of `bn_param` (default): of the second: scale_filler (constant 1), shift_filler (constant 0), bn_mode (LEARN;
INFERENCE); eps is 1e-9.
Bottom: (N, C, ...), two axes or more. Top: the same shape; may be the bottom's blob.
Parameters: of the first: slope, bias, mean (zeros at first), variance (zeros, or ones with frozen), each (1, C, 1, 1).
The last two are changed by the forward pass, so their lr_mult is 0.
Parameters: of the second: slope, bias, each (1, C, 1, 1).
Differences from Caffe: a slope without a filler is 1; in the forks it is 0, which lets nothing through. SegNet's
second and third top, the batch's mean and variance, are not made. A batch of no items leaves the averages as they are.
(Caffe: bn_layer.cpp of the forks.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import batch_norm, channels
from mgcaffe.engine.layer import TEST, Layer
from mgcaffe.engine.layers.shared.fields import filler_or_constant, refuse_missing_channels
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import FillerParameter, has_field

_MOVING = ("slope_filler", "bias_filler", "momentum", "eps", "frozen")
_SEGNET = ("scale_filler", "shift_filler", "bn_mode")
_SEGNET_EPS = 1e-9


@register("BN")
class BN(Layer):
    """The layer; see the module's text.

    Attributes:
        moving: whether there are moving averages.
        uses_batch: whether mean and variance are the batch's.
    """

    capturable = True
    in_place = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Tell the two kinds apart and declare the parameters."""
        param, shape = self.param.bn_param, bottom_shapes[0]
        refuse_missing_channels(self, shape)
        self.moving = self._is_moving()
        slope_filler, bias_filler = (_MOVING if self.moving else _SEGNET)[:2]
        self.channels = shape[1]
        blob = (1, self.channels, 1, 1)
        self.add_parameter(blob, filler_or_constant(param, slope_filler, 1))
        self.add_parameter(blob, filler_or_constant(param, bias_filler, 0))
        if not self.moving:
            self.eps, self.uses_batch = _SEGNET_EPS, param.bn_mode == param.LEARN
            return
        self.eps, self.uses_batch = param.eps, self.phase != TEST and not param.frozen
        if not 0 <= param.momentum <= 1:
            self.fail(f"momentum has to be from 0 to 1, not {param.momentum:g}", "bn_param.momentum")
        for value in (0, 1 if param.frozen else 0):
            self.add_parameter(blob, FillerParameter(type="constant", value=value)).measured = True
        for parameter in self.parameters[0 if param.frozen else 2 :]:
            parameter.freeze()

    def _is_moving(self) -> bool:
        param = self.param.bn_param
        moving = [name for name in _MOVING if has_field(param, name)]
        segnet = [name for name in _SEGNET if has_field(param, name)]
        if bool(moving) == bool(segnet):
            found = f"{moving[0]} and {segnet[0]} are fields of different Caffes" if moving else "no field is given"
            self.fail(
                f"{found}, so it is not clear which Caffe's BN is meant",
                f"bn_param.{segnet[0]}" if segnet else "bn_param",
                hint=f"give {', '.join(_MOVING)} for the one with moving averages (four parameters),"
                f" or {', '.join(_SEGNET)} for SegNet's (two)",
            )
        return bool(moving)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        shape = bottom_shapes[0]
        refuse_missing_channels(self, shape)
        if shape[1] != self.channels:
            self.fail(f"the bottom changed to shape {shape}; there are {self.channels} slopes")
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep x and the statistics."""
        x = bottoms[0]
        slope, bias = (parameter.data.reshape(-1) for parameter in self.parameters[:2])
        if self.uses_batch:
            return [self._normalise_by_batch(x, slope, bias)]
        if not self.moving:
            self.saved = (x, None, None) if self.backward_follows else None
            return [channels.scale(x, slope, bias)]
        mean, variance = (parameter.data.reshape(-1) for parameter in self.parameters[2:])
        inverse_std = (variance + self.eps).rsqrt()
        # Copies, since the averages may be loaded anew before backward.
        self.saved = (x, mean.clone(), inverse_std) if self.backward_follows else None
        factor = slope * inverse_std
        return [channels.scale(x, factor, bias - mean * factor)]

    def _normalise_by_batch(self, x: torch.Tensor, slope: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y, statistics = batch_norm.forward(x, slope, bias, self.eps)
        self.saved = (x, statistics.mean, statistics.inverse_std) if self.backward_follows else None
        if self.moving and statistics.values and not self.context.runs_again:
            biased = statistics.unbiased_variance * ((statistics.values - 1) / statistics.values)
            for parameter, value in zip(self.parameters[2:], (statistics.mean, biased), strict=True):
                parameter.data.lerp_(value.reshape(parameter.shape), 1 - self.param.bn_param.momentum)
        return y

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Through the batch's statistics where they were used, else through a scale and a shift."""
        dy, (x, mean, inverse_std) = top_diffs[0], self.saved
        slope, bias = self.parameters[:2]
        wants = (wanted[0], slope.wanted, bias.wanted)
        factor = slope.data.reshape(-1)
        if self.uses_batch:
            dx, dslope, dbias = batch_norm.backward(dy, x, factor, mean, inverse_std, wants)
        elif not self.moving:
            dx, dslope, dbias = channels.scale_backward(dy, x, factor, wants)
        else:
            if slope.wanted:
                x = (x - batch_norm.channel_view(mean, x)).mul_(batch_norm.channel_view(inverse_std, x))
            dx, dslope, dbias = channels.scale_backward(dy, x, factor * inverse_std, wants)
        if dslope is not None:
            slope.accumulate(dslope)
        if dbias is not None:
            bias.accumulate(dbias)
        return [dx]
