"""Convolution: correlates each bottom with learned filters.

    y[n, o, p] = b[o] + sum over c, q of  x[n, c, s p + d q - pad] * W[o, c, q]     (x is 0 outside the image)

Fields of `convolution_param` (default): num_output; kernel_size, stride (1), pad (0), dilation (1), each one number or
one for each spatial axis; for two spatial axes also kernel_h and kernel_w, stride_h and stride_w, pad_h and pad_w;
hole, hole_h and hole_w, DeepLab's names of dilation;
group (1); bias_term (true); weight_filler, bias_filler (constant 0); axis (1): the channel axis, everything behind it
is spatial, everything before it is batch. force_nd_im2col does not change the result.
Bottoms: one or more of equal shape (N, C, in...), all with the same filters.
Tops: one for each bottom, (N, num_output, out...), out = floor((in + 2 pad - dilation (kernel - 1) - 1) / stride) + 1.
Where the filter is larger than the image with its padding, but by less than a stride, out is 1, since C cuts the
quotient off towards 0; what lies beyond the image is 0.
Parameters: W (num_output, C / group, kernel...), b (num_output).
No differences from Caffe. (Caffe: base_conv_layer.cpp, conv_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from mgcaffe.engine.kernels import convolution
from mgcaffe.engine.kernels.convolution_forward import favours_ordinary
from mgcaffe.engine.kernels.geometry import Geometry, cut, filled, grown
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.kernels.winograd_tiles import Tiles
from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.layers.shared.fields import refuse_empty_images, refuse_fork_fields
from mgcaffe.engine.layers.shared.geometry import read_geometry
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import has_field

MAX_NARROW_RANK = 3


class FilterLayer(Layer):
    """What Convolution and Deconvolution share: fields, parameters, shapes, bias.

    Attributes:
        make_bottom: set by the net where forward need not keep its bottom: returns it in backward.
        geometry: kernel, stride, pad, dilation and groups.
        channel_axis: the axis of the bottoms that holds the channels.
        channels, outputs: how many channels the bottoms and the tops have.
    """

    keeps_others = False
    bottoms = at_least(1)
    tops = at_least(1)
    one_top_per_bottom = True
    takes_narrow = True

    make_bottom: Callable[[], torch.Tensor] | None = None
    geometry: Geometry
    channel_axis: int
    channels: int
    outputs: int
    rank: int

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields and declare the filters and the bias."""
        param = self.param.convolution_param
        neutral = {"relu": False, "negative_slope": 0.0, "fusion_type": 0, "coeff": []}
        refuse_fork_fields(self, param, "convolution_param", neutral)
        self.rank = len(bottom_shapes[0])
        self.channel_axis = self.canonical_axis(param.axis, self.rank, "convolution_param.axis")
        self.channels = bottom_shapes[0][self.channel_axis]
        refuse_empty_images(self, bottom_shapes[0], axis=self.channel_axis)
        self.outputs = param.num_output
        self.geometry = read_geometry(self, self.rank - self.channel_axis - 1)
        if self.outputs < 1:
            self.fail("num_output has to be at least 1", "convolution_param.num_output")
        for what, count in (("channels of the bottom", self.channels), ("num_output", self.outputs)):
            if self.geometry.groups < 1 or count % self.geometry.groups:
                where = "convolution_param.group"
                self.fail(f"group {self.geometry.groups} does not divide the {what}, {count}", where)
        filters = self.add_parameter(self.weight_shape(), param.weight_filler)
        filters.memory_format = self._filter_format(filters, bottom_shapes[0])
        if param.bias_term:
            self.add_parameter((self.outputs,), param.bias_filler)

    def _filter_format(self, filters: Parameter, bottom_shape: Shape) -> torch.memory_format:
        """Return the order of the filters in memory: the blobs', since each pass would convert others.

        Filters that may be shared with blobs of other shapes stay in Caffe's order, and so do those of one pixel or
        channel, which have one order only.
        """
        count = filters.shape[1] * math.prod(self.geometry.kernel)
        is_alike = count in (filters.shape[1], math.prod(self.geometry.kernel))
        if self.rank != 4 or self.channel_axis != 1 or filters.name or is_alike:
            return torch.contiguous_format
        images = math.prod(bottom_shape) + bottom_shape[0] * self.outputs * math.prod(self.top_size(bottom_shape[2:]))
        if favours_ordinary(math.prod(filters.shape), images):
            return torch.contiguous_format
        return self.context.memory_format

    def weight_shape(self) -> Shape:
        """Return the filters' shape."""
        raise NotImplementedError

    def top_size(self, bottom_size: Sequence[int]) -> tuple[int, ...]:
        """Return the tops' spatial size."""
        raise NotImplementedError

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(N, num_output, out...) for every bottom."""
        first = bottom_shapes[0]
        if len(first) != self.rank or first[self.channel_axis] != self.channels:
            self.fail(f"the bottom changed to shape {first}; the filters need {self.channels} channels")
        for index, shape in enumerate(bottom_shapes):
            if shape != first:
                self.fail(f"bottom {index} has shape {shape}, but bottom 0 has {first}: they share the filters")
        out = self.top_size(first[self.channel_axis + 1 :])
        if min(out, default=1) < 1:
            small = next(axis for axis, size in enumerate(out) if size < 1)
            field, index = self._kernel_field(small)
            self.fail(f"the filter does not fit: bottom {first} would give a top of size {out}", field, index=index)
        return [(*first[: self.channel_axis], self.outputs, *out)] * len(bottom_shapes)

    def _kernel_field(self, axis: int) -> tuple[str, int]:
        """Return the field that says the kernel's size along a spatial axis, and which of its numbers does."""
        param = self.param.convolution_param
        for place, name in enumerate(("kernel_h", "kernel_w")):
            if has_field(param, name) and axis == place:
                return f"convolution_param.{name}", 0
        return "convolution_param.kernel_size", axis if len(param.kernel_size) > 1 else 0

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias, if there is one."""
        return self.parameters[1].data if len(self.parameters) > 1 else None

    def add_weight_gradient(self, dy: torch.Tensor, x: torch.Tensor, bias: Parameter | None = None) -> None:
        """Add the filters' gradient for one bottom to the parameter's, and to `bias` its own, if that is given.

        dy and x have one batch axis.
        """
        raise NotImplementedError

    def bottom_gradient(self, dy: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        """Return the gradient of a bottom of this spatial size; dy has one batch axis."""
        raise NotImplementedError

    def both_gradients(self, dy: torch.Tensor, x: torch.Tensor, bias: Parameter | None = None) -> torch.Tensor:
        """As `add_weight_gradient`, and return the bottom's gradient."""
        self.add_weight_gradient(dy, x, bias)
        return self.bottom_gradient(dy, x.shape[2:])

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the adjoints, bottom by bottom."""
        bottom_diffs: list[torch.Tensor | None] = []
        bottoms = self.saved if self.make_bottom is None else [self.make_bottom()]
        for top_diff, bottom, want in zip(top_diffs, bottoms, wanted, strict=True):
            x, whole = self.one_batch_axis(bottom), self.one_batch_axis(top_diff)
            dy = self.operand(whole)
            bias = self.bias_beside_filters(dy, x)
            if bias is None:
                self.add_bias_gradient(whole)
            dx = None
            if want and self.parameters[0].wanted:
                dx = self.both_gradients(dy, x, bias)
            elif want:
                dx = self.bottom_gradient(dy, x.shape[2:])
            elif self.parameters[0].wanted:
                self.add_weight_gradient(dy, x, bias)
            bottom_diffs.append(None if dx is None else self.all_batch_axes(dx, bottom))
        return bottom_diffs

    def bias_beside_filters(self, dy: torch.Tensor, x: torch.Tensor) -> Parameter | None:
        """Return the bias if its gradient comes from the same call as the filters'; dy and x as for both."""
        return None

    def add_bias_gradient(self, top_diff: torch.Tensor) -> None:
        """Add the sum of `top_diff` over everything but its channels to the bias's gradient."""
        if len(self.parameters) > 1 and self.parameters[1].wanted:
            convolution.add_backward_bias(self.parameters[1], top_diff)

    def operand(self, x: torch.Tensor) -> torch.Tensor:
        """x as the products take it; over more axes than PyTorch's operators have they are in float32."""
        return self.context.precision.narrow(x) if self.geometry.rank <= MAX_NARROW_RANK else widened(x)

    def one_batch_axis(self, x: torch.Tensor) -> torch.Tensor:
        """x as (N, C, spatial...), with all axes before the channels as N."""
        if self.channel_axis == 1:
            return x
        return x.reshape(math.prod(x.shape[: self.channel_axis]), *x.shape[self.channel_axis :])

    def all_batch_axes(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return the inverse of `one_batch_axis`, with the batch axes of `like`."""
        if self.channel_axis == 1:
            return x
        return x.reshape(*like.shape[: self.channel_axis], *x.shape[1:])


@register("Convolution")
class Convolution(FilterLayer):
    """The layer; see the module's text.

    Attributes:
        tiles: the transformed tiles of the bottom, kept for the filters' gradient where there are few.
        missing: how many zeros are put behind the bottoms, along each spatial axis.
    """

    capturable = True
    tiles: Tiles | None = None
    missing: tuple[int, ...] = ()

    def weight_shape(self) -> Shape:
        """(num_output, C / group, kernel...)."""
        return (self.outputs, self.channels // self.geometry.groups, *self.geometry.kernel)

    def top_size(self, bottom_size: Sequence[int]) -> tuple[int, ...]:
        """(in + 2 pad - extent) / stride + 1, the quotient cut off towards 0."""
        return self.geometry.output_size(grown(bottom_size, self.geometry.missing(bottom_size)))

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Find out whether zeros are missing as well."""
        top_shapes = super().reshape(bottom_shapes)
        self.missing = self.geometry.missing(bottom_shapes[0][self.channel_axis + 1 :])
        return top_shapes

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Compute one convolution per bottom; keep the bottoms."""
        operands = [self.operand(x) for x in bottoms]
        keeps = self.backward_follows and self.make_bottom is None
        self.saved = operands if keeps else None
        tops = []
        for bottom, operand in zip(bottoms, operands, strict=True):
            x = self.forward_operand(bottom, operand)
            top = self.convolve(self.one_batch_axis(x), keeps=keeps and x is operand)
            tops.append(self.all_batch_axes(top, bottom))
        return tops

    def convolve(self, x: torch.Tensor, relu: bool = False, *, keeps: bool = False) -> torch.Tensor:
        """Return the top for an operand with one batch axis, and with `relu` what is positive of it.

        `keeps`: tiles may be kept, since backward follows with the same operand.
        """
        weight, choices = self.parameters[0].data, self.context.choices
        is_only = len(self.param.bottom) == 1 and self.parameters[0].wanted
        # Measuring times each direction by itself.
        keeps = keeps and is_only and self.context.frees_blobs and not choices.measures
        self.tiles = Tiles() if keeps else None
        return convolution.forward(filled(x, self.missing), weight, self.bias, self.geometry, relu, choices, self.tiles)

    def release(self) -> None:
        """Drop the tiles as well."""
        super().release()
        self.tiles = None

    def bias_beside_filters(self, dy: torch.Tensor, x: torch.Tensor) -> Parameter | None:
        """With filters that see one channel each it may."""
        if self.geometry.groups == 1 or any(self.missing) or not all(each.wanted for each in self.parameters):
            return None
        weight, *biases = self.parameters
        choices = self.context.choices
        adds = biases and convolution.adds_bias(biases[0], weight, dy, x, self.geometry, choices)
        return biases[0] if adds else None

    def add_weight_gradient(self, dy: torch.Tensor, x: torch.Tensor, bias: Parameter | None = None) -> None:
        """Add that of a convolution."""
        x, choices = filled(x, self.missing), self.context.choices
        convolution.add_backward_weight(self.parameters[0], dy, x, self.geometry, choices, self.tiles, bias)

    def bottom_gradient(self, dy: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        """Return that of a convolution, cut to what the bottom has."""
        weight, size = self.parameters[0].data, grown(size, self.missing)
        return cut(convolution.backward_data(dy, weight, size, self.geometry, self.context.choices), self.missing)

    def both_gradients(self, dy: torch.Tensor, x: torch.Tensor, bias: Parameter | None = None) -> torch.Tensor:
        """Do both for a convolution, which may share work between them."""
        x, choices = filled(x, self.missing), self.context.choices
        dx = convolution.backward(self.parameters[0], dy, x, self.geometry, choices, self.tiles, bias)
        return cut(dx, self.missing)

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Return one filter's size for every value of the tops."""
        return sum(math.prod(shape) for shape in top_shapes) * math.prod(self.weight_shape()[1:])
