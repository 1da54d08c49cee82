"""Eltwise: adds, multiplies or compares blobs of one shape, value by value.

    SUM:   y = sum_i coeff_i x_i                      dx_i = coeff_i dy
    PROD:  y = prod_i x_i                             dx_i = dy prod_{j != i} x_j
    MAX:   y = max_i x_i                              dx_i = dy where x_i is the largest, else 0

Fields of `eltwise_param` (default): operation (SUM); coeff (1), one a bottom, for SUM: PROD takes none, and with MAX
they have no effect, which a warning says; stable_prod_grad (true): if false, PROD's gradient is dy y / x_i: faster with
many bottoms, NaN where x_i is 0. Among equal values MAX takes bottom 1 before bottom 0, and both before later ones.
Bottoms: two or more of one shape. Top: that shape.
Differences from Caffe: it is refused in place. In Caffe SUM and MAX on a CPU begin with writing over the top, and so
lose the bottom of its name, and PROD's gradients read what has been written over. (Caffe: eltwise_layer.cpp.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.elementwise import add_
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.precision import is_narrow, widened
from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.layers.shared.fields import four_axes_hint, warn_of_idle_field
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

PROD, SUM, MAX = 0, 1, 2


@register("Eltwise")
class Eltwise(Layer):
    """The layer; see the module's text."""

    capturable = True
    bottoms = at_least(2)

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the coefficients."""
        param = self.param.eltwise_param
        self.operation: int = param.operation
        given, count = list(param.coeff), len(bottom_shapes)
        if given and len(given) != count:
            self.fail(f"{len(given)} coefficients for {count} bottoms", "eltwise_param.coeff")
        if given and self.operation == PROD:
            self.fail("coefficients go with the operation SUM only", "eltwise_param.coeff")
        if given and self.operation == MAX:
            warn_of_idle_field(self, "eltwise_param.coeff", "with the operation MAX")
            given = []
        self.coefficients: list[float] = given or [1.0] * count
        self.divides = self.operation == PROD and not param.stable_prod_grad
        self.keeps_bottoms = self.operation == PROD
        self.keeps_tops = self.divides
        self.takes_narrow = self.operation == SUM
        self.keeps_others = self.operation == MAX
        self.diffs_share_tops = self.operation == SUM and all(each == 1 for each in self.coefficients)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottoms' common shape."""
        for index, shape in enumerate(bottom_shapes):
            if shape != bottom_shapes[0]:
                names = self.bottom_names
                self.fail(
                    f"all bottoms have to be of one shape: bottom 0 ('{names[0]}') has {bottom_shapes[0]},"
                    f" bottom {index} ('{names[index]}') has {shape}",
                    "bottom",
                    index=index,
                    hint=four_axes_hint(bottom_shapes, names, index) if shape[:2] == bottom_shapes[0][:2] else None,
                )
        return [bottom_shapes[0]]

    def can_reuse(self, bottom: int) -> bool:
        """Return whether the sum can grow in a bottom's storage, with the bits that it has in a storage of its own."""
        is_first_or_second = bottom < 2 and self.coefficients[0] == self.coefficients[bottom] == 1
        return self.operation == SUM and is_first_or_second

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """SUM keeps nothing, PROD its bottoms (and its top), MAX the numbers of the largest."""
        if self.operation == SUM:
            return [self._sum(bottoms)]
        if self.operation == MAX:
            return [self._largest(bottoms)]
        y = bottoms[0] * bottoms[1]
        for x in bottoms[2:]:
            y.mul_(x)
        self.saved = (list(bottoms), y if self.divides else None) if self.backward_follows else None
        return [y]

    def _sum(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        exact = all(abs(coefficient) == 1 for coefficient in self.coefficients)  # others are rounded to 16 bits too
        if len(bottoms) > 2 or not exact or not all(map(is_narrow, bottoms)):
            bottoms = [widened(x) for x in bottoms]  # two in 16 bits make a sum that is rounded once
        # The sum has bottom 0's format, whether there is a bottom to spare or not.
        if self.spare_bottom is not None and format_of(bottoms[self.spare_bottom]) == format_of(bottoms[0]):
            y = bottoms[self.spare_bottom]
            for index, (x, coefficient) in enumerate(zip(bottoms, self.coefficients, strict=True)):
                if index != self.spare_bottom:
                    add_(y, x, coefficient)
            return y
        first = bottoms[0] if self.coefficients[0] == 1 else bottoms[0] * self.coefficients[0]
        y = torch.add(first, bottoms[1], alpha=self.coefficients[1])
        for x, coefficient in zip(bottoms[2:], self.coefficients[2:], strict=True):
            y.add_(x, alpha=coefficient)
        return y

    def _largest(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        y = torch.maximum(bottoms[0], bottoms[1])
        # Later bottoms win only if they are larger, so the winner is the largest number that ever won.
        winner = (bottoms[1] >= bottoms[0]).to(torch.uint8 if len(bottoms) <= 256 else torch.int32)
        for index, x in enumerate(bottoms[2:], 2):
            torch.maximum(winner, (x > y).to(winner.dtype).mul_(index), out=winner)
            torch.maximum(y, x, out=y)
        self.saved = winner if self.backward_follows else None
        return y

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """With coefficients of 1, all bottoms get the same tensor."""
        gradient = {SUM: self._sum_gradient, PROD: self._product_gradient, MAX: self._largest_gradient}
        compute = gradient[self.operation]
        return [compute(top_diffs[0], index) if want else None for index, want in enumerate(wanted)]

    def _sum_gradient(self, dy: torch.Tensor, index: int) -> torch.Tensor:
        coefficient = self.coefficients[index]
        return dy if coefficient == 1 else dy * coefficient

    def _product_gradient(self, dy: torch.Tensor, index: int) -> torch.Tensor:
        bottoms, y = self.saved
        if y is not None:
            quotient: torch.Tensor = y / bottoms[index]
            return quotient.mul_(dy)
        others = [x for other, x in enumerate(bottoms) if other != index]
        return functools.reduce(torch.Tensor.mul, others, dy)

    def _largest_gradient(self, dy: torch.Tensor, index: int) -> torch.Tensor:
        winner: torch.Tensor = self.saved
        return dy * (winner == index).view(torch.uint8)
