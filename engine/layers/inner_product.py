"""InnerProduct: every output is a weighted sum of all values from `axis` on.

    y[m, n] = b[n] + sum over k of  x[m, k] * W[n, k]        (W[k, n] with `transpose`)

Fields of `inner_product_param` (default): num_output; bias_term (true); weight_filler, bias_filler (constant 0); axis
(1): the first axis that is summed over; transpose (false). A fork's negative_slope counts with its relu only, which is
refused.
Bottom: any shape; M = product of the axes before `axis`, K = product of the others.
Top: the axes before `axis`, then num_output.
Parameters: W (num_output, K), or (K, num_output) with `transpose`; b (num_output).
No differences from Caffe. (Caffe: inner_product_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import linear
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields
from mgcaffe.engine.product_gradient import add_product
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

_MANY_ROWS = 32


@register("InnerProduct")
class InnerProduct(Layer):
    """The layer; see the module's text."""

    takes_narrow = True
    keeps_others = False
    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the weight and the bias."""
        param = self.param.inner_product_param
        refuse_fork_fields(self, param, "inner_product_param", {"relu": False, "negative_slope": 0.0})
        if param.num_output < 1:
            self.fail("num_output has to be at least 1", "inner_product_param.num_output")
        shape = bottom_shapes[0]
        self.axis = self.canonical_axis(param.axis, len(shape), "inner_product_param.axis")
        self.inputs = math.prod(shape[self.axis :])
        self.outputs = param.num_output
        self.transpose = param.transpose
        weight_shape = (self.outputs, self.inputs)
        self.add_parameter(weight_shape[::-1] if self.transpose else weight_shape, param.weight_filler)
        if param.bias_term:
            self.add_parameter((self.outputs,), param.bias_filler)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's axes before `axis`, then num_output."""
        shape = bottom_shapes[0]
        if math.prod(shape[self.axis :]) != self.inputs:
            self.fail(f"the bottom changed to shape {shape}; the weight needs {self.inputs} inputs")
        return [(*shape[: self.axis], self.outputs)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Compute one matrix product; keep the bottom."""
        bottom = bottoms[0]
        rows = bottom.reshape(math.prod(bottom.shape[: self.axis]), self.inputs)
        operand = self._operand(rows)
        self.saved = (operand if len(rows) >= _MANY_ROWS else rows, bottom.shape) if self.backward_follows else None
        bias = self.parameters[1].data if len(self.parameters) > 1 else None
        x = self.forward_operand(rows, operand)
        y = linear.forward(x, self._weight(), bias, choices=self.context.choices)
        return [y.view(*bottom.shape[: self.axis], self.outputs)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add the weight's gradient in its place, or keep what it is the product of (`ProductGradient`)."""
        x, bottom_shape = self.saved
        dy = top_diffs[0].reshape(len(x), self.outputs)
        weight = self.parameters[0]
        if len(self.parameters) > 1 and self.parameters[1].wanted:
            self.parameters[1].accumulate_sum(widened(dy))
        if weight.wanted:
            # This product does not read the weight, so its operands are rounded over few rows as well.
            left, right = map(self.context.precision.narrow, (x, dy) if self.transpose else (dy, x))
            add_product(weight, left, right, self.context.choices)
        if not wanted[0]:
            return [None]
        return [linear.backward_data(self._operand(dy), self._weight(), self.context.choices).view(bottom_shape)]

    def _operand(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, or dy, as the products with the weight take it.

        Over few rows, reading the weight takes most of the time, and rounding it first would take longer than it saves.
        """
        return self.context.precision.narrow(x) if len(x) >= _MANY_ROWS else widened(x)

    def _weight(self) -> torch.Tensor:
        """Return the weight as (num_output, K), whichever way it is stored."""
        data = self.parameters[0].data
        return data.t() if self.transpose else data

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """M x K x num_output."""
        return math.prod(top_shapes[0]) * self.inputs
