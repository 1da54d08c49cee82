"""MatMul: the products of two bottoms' matrices, as attention takes them of queries, keys and values.

    C = A B          dA = dC B',  dB = A' dC          for each pair of matrices; ' transposes

Fields of `matmul_param` (default): transpose_a (false), transpose_b (false): that bottom's matrices are transposed
first.
Bottoms: A (..., M, K), with transpose_a (..., K, M); B (..., K, N), with transpose_b (..., N, K). The axes before are
those of the matrices, and the same in both.
Top: (..., M, N).
No differences from Caffe. (In no Caffe: torch.matmul, without broadcasting.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.precision import needs_float32, widened
from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("MatMul")
class MatMul(Layer):
    """The layer; see the module's text.

    Attributes:
        transposed: whether A's matrices are transposed, and whether B's are.
    """

    capturable = True
    bottoms = exactly(2)
    keeps_others = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Check that the matrices fit together."""
        param = self.param.matmul_param
        self.transposed = bool(param.transpose_a), bool(param.transpose_b)
        for number, shape in enumerate(bottom_shapes):
            if len(shape) < 2:
                self.fail(f"bottom {number} has shape {shape}, which holds no matrices", "bottom", index=number)
        (*before, _, _), (*others, _, _) = bottom_shapes
        if before != others:
            self.fail(
                f"bottom 1 has shape {bottom_shapes[1]}, and bottom 0 {bottom_shapes[0]}: the axes before the last two"
                " have to be the same",
                "bottom",
                index=1,
            )
        (rows, inner), (inner_too, columns) = (
            shape[:-3:-1] if transposed else shape[-2:]
            for shape, transposed in zip(bottom_shapes, self.transposed, strict=True)
        )
        if inner != inner_too:
            self.fail(
                f"its matrices are {rows} x {inner} and {inner_too} x {columns}, which have no product",
                "matmul_param" if any(self.transposed) else "bottom",
            )
        self.inner = inner
        return [(*before, rows, columns)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep both bottoms."""
        self.saved = list(bottoms) if self.backward_follows else None
        return [self._product(*(_turned(x, turn) for x, turn in zip(bottoms, self.transposed, strict=True)))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Multiply the gradient by the other bottom, in the order that gives the bottom's own form."""
        (dy,), (transpose_a, transpose_b) = top_diffs, self.transposed
        a, b = (_turned(x, turn) for x, turn in zip(self.saved, self.transposed, strict=True))
        da = db = None
        if wanted[0]:
            da = self._product(b, dy.mT) if transpose_a else self._product(dy, b.mT)
        if wanted[1]:
            db = self._product(dy.mT, a) if transpose_b else self._product(a.mT, dy)
        return [da, db]

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the products in float32 (or float64), of operands that are rounded as `--precision` says."""
        left, right = map(self.context.precision.narrow, (left, right))
        if needs_float32(left):
            left, right = left.float(), right.float()
        return widened(torch.matmul(left, right))

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """One for each value of a row of A and of a column of B."""
        return math.prod(top_shapes[0]) * self.inner


def _turned(x: torch.Tensor, transposed: bool) -> torch.Tensor:
    return x.mT if transposed else x
