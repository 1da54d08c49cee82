"""Im2col: writes what a filter meets at each of its positions one below the other.

    y[n, c k + p, i, j] = the pixel of x[n, c] that lies below point p when the filter, of k points, is at (i, j)
    dx = for every pixel the sum of dy over all points and positions that met it

Pixels of the padding are 0, and so are those beyond the image that a filter meets which is larger than image and
padding, by less than a stride: as for Convolution, out is 1 then.

Fields of `convolution_param`: kernel_size, stride, pad, dilation and axis, as for Convolution; num_output, group and
what else Convolution has are not looked at.
Bottom: (N, C, in...) with any number of spatial axes. Top: (N, C k, out...), k = the product of the kernel's sizes.
No differences from Caffe. (Caffe: im2col_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import windows
from mgcaffe.engine.kernels.geometry import cut, filled, grown
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.geometry import read_geometry
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Im2col")
class Im2col(Layer):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the filter's geometry."""
        rank = len(bottom_shapes[0])
        self.axis = self.canonical_axis(self.param.convolution_param.axis, rank, "convolution_param.axis")
        self.geometry = read_geometry(self, rank - self.axis - 1)
        self.points = math.prod(self.geometry.kernel)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """More channels, and the positions of the filter."""
        self.shape = shape = bottom_shapes[0]
        if len(shape) != self.axis + 1 + self.geometry.rank:
            self.fail(f"the bottom changed to shape {shape}; it had {self.axis + 1 + self.geometry.rank} axes")
        self.images, size = math.prod(shape[: self.axis + 1]), shape[self.axis + 1 :]
        self.missing = self.geometry.missing(size)
        self.grown = grown(size, self.missing)
        self.out = self.geometry.output_size(self.grown)
        if min(self.out, default=1) < 1:
            self.fail(f"the filter does not fit: bottom {shape} would give a top of size {self.out}")
        self.top_shape = (*shape[: self.axis], shape[self.axis] * self.points, *self.out)
        return [self.top_shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        x = bottoms[0].reshape(self.images, *self.shape[self.axis + 1 :])
        return [windows.columns(filled(x, self.missing), self.geometry).reshape(self.top_shape)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add up what comes from all points."""
        if not wanted[0]:
            return [None]
        columns = top_diffs[0].reshape(self.images, self.points, *self.out)
        return [cut(windows.add_columns(columns, self.grown, self.geometry), self.missing).reshape(self.shape)]
