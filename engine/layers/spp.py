"""SPP: spatial pyramid pooling, a vector of one length whatever the image's size.

    level l = 0, 1, ..., pyramid_height - 1 pools each channel with 2^l x 2^l windows that cover the image:
        kernel = stride = ceil(H / 2^l),  pad = (2^l kernel - H + 1) / 2, rounded down; columns likewise
    y = the values of all levels, one level after the other, each with its channels one after the other

Fields of `spp_param` (default): pyramid_height, at least 1; pool (MAX): MAX, AVE or STOCHASTIC, as in Pooling.
Bottom: (N, C, H, W), whose H and W may change from batch to batch.
Top: (N, C (4^pyramid_height - 1) / 3); with a pyramid_height of 1 it is not flattened: (N, C, 1, 1).
Differences from Caffe: STOCHASTIC, which is for images that the windows cover without padding, as in Pooling also runs
on a CPU.
(Caffe: spp_layer.cpp; He et al. 2014.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.pooling import Pair
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.pooling import Pooling
from mgcaffe.engine.layers.shared.pooling_methods import POOLING_METHODS
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import LayerParameter

# The windows of a level double in each direction; more levels than this no image could have.
_MAX_LEVELS = 16


@register("SPP")
class SPP(Layer):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the fields."""
        param = self.param.spp_param
        if not 1 <= param.pyramid_height <= _MAX_LEVELS:
            self.fail(
                f"pyramid_height has to be from 1 to {_MAX_LEVELS}, not {param.pyramid_height}",
                "spp_param.pyramid_height",
            )
        self.method = param.PoolMethod.Name(param.pool)
        self.keeps_bottoms = POOLING_METHODS[self.method].reads_bottom(self.phase)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Make a pooling layer for each level of this image size, and return the shape of all values."""
        shape = bottom_shapes[0]
        if len(shape) != 4:
            self.fail(f"the bottom needs 4 axes (N, C, H, W), not shape {shape}")
        self.levels = [self._level(2**number, shape) for number in range(self.param.spp_param.pyramid_height)]
        self.shapes = [level.reshape([shape])[0] for level in self.levels]
        if len(self.shapes) == 1:
            return self.shapes
        self.sizes = [channels * rows * columns for _, channels, rows, columns in self.shapes]
        return [(shape[0], sum(self.sizes))]

    def _level(self, bins: int, shape: Shape) -> Pooling:
        kernel: Pair = (-(-shape[2] // bins), -(-shape[3] // bins))
        pad: Pair = ((kernel[0] * bins - shape[2] + 1) // 2, (kernel[1] * bins - shape[3] + 1) // 2)
        if any(amount >= size for amount, size in zip(pad, kernel, strict=True)):
            self.fail(
                f"{bins} x {bins} windows do not fit an image of {shape[2]} x {shape[3]}: padded by {pad}, they would"
                " lie outside it",
                "spp_param.pyramid_height",
                hint="lower pyramid_height, or give larger images",
            )
        if any(pad) and not POOLING_METHODS[self.method].takes_pad:
            self.fail(
                f"{bins} x {bins} windows cover an image of {shape[2]} x {shape[3]} with padding only, which"
                f" {self.method} pooling does not take",
                "spp_param.pool",
                hint="use MAX or AVE",
            )
        param = LayerParameter(name=self.name, phase=self.phase)
        fields = param.pooling_param
        fields.pool = fields.PoolMethod.Value(self.method)
        fields.kernel_h, fields.kernel_w = fields.stride_h, fields.stride_w = kernel
        fields.pad_h, fields.pad_w = pad
        level = Pooling(param, self.context, self.source)
        level.setup([shape])
        return level

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Pool at every level; each keeps what its backward needs."""
        values = []
        for level in self.levels:
            level.backward_follows = self.backward_follows
            values += level.forward(bottoms)
        if len(values) == 1:
            return values
        return [torch.cat([value.flatten(1) for value in values], 1)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the sum of the levels' gradients."""
        if not wanted[0]:
            return [None]
        parts = top_diffs if len(self.levels) == 1 else torch.split(top_diffs[0], self.sizes, 1)
        total: torch.Tensor | None = None
        for level, part, shape in zip(self.levels, parts, self.shapes, strict=True):
            (diff,) = level.backward([part.reshape(shape)], wanted)
            assert diff is not None
            total = diff if total is None else total.add_(diff)
        return [total]

    def release(self) -> None:
        """Drop what the levels kept."""
        for level in self.levels:
            level.release()
