"""ArgMax: where the largest values are.

    y = the numbers of the top_k largest x, largest first, or (with out_max_val) the values themselves

Of equal values the one with the larger number comes first, as in Caffe.

Fields of `argmax_param` (default): top_k (1); out_max_val (false); axis (none). Along `axis` y holds numbers, or values
with out_max_val. Without it all values of an item count together, and out_max_val adds the values behind the numbers.
Bottom: any shape (N, ...).
Top: with `axis` the bottom's shape with that axis of size top_k; else (N, 1, top_k), or (N, 2, top_k) with out_max_val,
and axes of size 1 up to the bottom's number. No gradient.
No differences from Caffe. (Caffe: argmax_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("ArgMax")
class ArgMax(Layer):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Never."""
        return False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """See the module's text."""
        param, shape = self.param.argmax_param, bottom_shapes[0]
        self.top_k: int = param.top_k
        self.with_values: bool = param.out_max_val
        self.axis: int | None = None
        if param.HasField("axis"):
            self.axis = self.canonical_axis(param.axis, len(shape), "argmax_param.axis")
        elif not shape:
            self.fail("the bottom needs an axis")
        candidates = math.prod(shape[1:]) if self.axis is None else shape[self.axis]
        if not 1 <= param.top_k <= candidates:
            self.fail(
                f"top_k has to be from 1 to {candidates}, the number of values to choose from, not {param.top_k}",
                "argmax_param.top_k",
            )
        if self.axis is None:
            self.rows = (shape[0], candidates)
            ones = [1] * (len(shape) - 3)
            self.top_shape: Shape = (shape[0], 2 if param.out_max_val else 1, param.top_k, *ones)
        else:
            self.top_shape = (*shape[: self.axis], param.top_k, *shape[self.axis + 1 :])
        return [self.top_shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        if self.axis is not None:
            values, indices = self._largest(bottoms[0], self.axis)
            return [indices if values is None else values]
        values, indices = self._largest(bottoms[0].reshape(self.rows), 1)
        chosen = indices if values is None else torch.stack([indices, values], 1)
        return [chosen.reshape(self.top_shape)]

    def _largest(self, x: torch.Tensor, axis: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the top_k largest values along `axis`, if they are wanted, and their indices, in x's type."""
        turned = x.flip(axis)  # in reversed order, the first of equals is the one with the larger index
        values = None
        if self.top_k == 1 and not self.with_values:
            places = turned.argmax(axis, keepdim=True)
        else:
            values, places = _first_largest(turned, self.top_k, axis)
        return values if self.with_values else None, (x.shape[axis] - 1 - places).to(x.dtype)

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing."""
        return [None]


def _first_largest(x: torch.Tensor, count: int, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` largest values along `axis`, largest first, and their places; of equals the first."""
    if count == 1:
        values, places = x.max(axis, keepdim=True)
        return values, places
    candidates = min(count + 1, x.shape[axis])
    values, places = x.topk(candidates, axis)
    if not bool((values.narrow(axis, 0, candidates - 1) > values.narrow(axis, 1, candidates - 1)).all()):
        # Equal values (or NaN), whose order topk leaves open: a stable sort keeps it.
        values, places = x.sort(dim=axis, descending=True, stable=True)
    return values.narrow(axis, 0, count).contiguous(), places.narrow(axis, 0, count)
