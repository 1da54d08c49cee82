"""DotInteraction: the dot products of all pairs of vectors of an item, behind the first of them.

    T = the vectors as rows,  Z = T T'                y = (t_0, Z[1, 0], Z[2, 0], Z[2, 1], Z[3, 0], ...)
    dT = (dZ + dZ') T,  dt_0 also gets the first part of dy        Z, dZ: below the diagonal, row by row

Fields of `dot_interaction_param` (default): diagonal (false): Z[i, i] counts as well, behind Z[i, i - 1].
Bottoms: each a vector an item (N, d) or k of them (N, k, d), d the same in all; together F of them, in the order of the
bottoms. In DLRM the first is the dense features', the others are those of the embedding tables.
Top: (N, d + F (F - 1) / 2), with diagonal (N, d + F (F + 1) / 2).
No differences from Caffe. (In no Caffe: DLRM, dlrm_s_pytorch.py, interact_features.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("DotInteraction")
class DotInteraction(Layer):
    """The layer; see the module's text.

    Attributes:
        counts: how many vectors each bottom has.
        size: their size d.
        places: for every column of the top the place in Z (F x F, row by row) that it comes from; the first d, which do
            not come from there, have any.
        columns: for every place in dZ + dZ' the column of dy that it comes from (on the diagonal, any or twice).
    """

    bottoms = at_least(1)
    keeps_bottoms = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Check that the vectors fit together, and return d values more than pairs."""
        first = bottom_shapes[0]
        for number, shape in enumerate(bottom_shapes):
            if len(shape) not in (2, 3):
                self.fail(
                    f"bottom {number} has shape {shape}, not (N, d), a vector an item, or (N, k, d)",
                    "bottom",
                    index=number,
                )
            if (shape[0], shape[-1]) != (first[0], first[-1]):
                self.fail(
                    f"bottom {number} has shape {shape}, which differs from bottom 0's, {first}, in the number of items"
                    " or the size of vectors",
                    "bottom",
                    index=number,
                )
        self.counts = [shape[1] if len(shape) == 3 else 1 for shape in bottom_shapes]
        self.size = first[-1]
        self.joined = [len(shape) == 3 for shape in bottom_shapes]
        vectors = sum(self.counts)
        self.has_diagonal: bool = self.param.dot_interaction_param.diagonal
        first_row, second_row = torch.tril_indices(vectors, vectors, 0 if self.has_diagonal else -1)
        pairs = first_row * vectors + second_row
        self.places = torch.cat([pairs.new_zeros(self.size), pairs]).to(self.context.device)
        columns = torch.zeros(vectors, vectors, dtype=torch.int64)
        columns[first_row, second_row] = columns[second_row, first_row] = self.size + torch.arange(len(pairs))
        self.columns = columns.flatten().to(self.context.device)
        if not len(pairs):
            self.fail(f"the bottoms hold {vectors} vector(s) an item, of which there are no pairs", "bottom")
        return [(first[0], len(self.places))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the vectors."""
        vectors = torch.cat([x if x.ndim == 2 else x.flatten(1) for x in bottoms], 1).view(
            len(bottoms[0]), sum(self.counts), self.size
        )
        self.saved = vectors if self.backward_follows else None
        y = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.places)
        y[:, : self.size] = vectors[:, 0]
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Put the pairs' gradients into both halves of a matrix."""
        vectors, (dy,) = self.saved, top_diffs
        both = dy.index_select(1, self.columns).view(len(dy), vectors.shape[1], vectors.shape[1])
        on_diagonal = both.diagonal(dim1=1, dim2=2)
        if self.has_diagonal:
            on_diagonal.mul_(2)
        else:
            on_diagonal.zero_()
        diff = torch.bmm(both, vectors)
        diff[:, 0].add_(dy[:, : self.size])
        parts = torch.split(diff, self.counts, 1) if any(self.joined) else diff.unbind(1)
        return [
            (part if joined or part.ndim == 2 else part.squeeze(1)) if wants else None
            for part, joined, wants in zip(parts, self.joined, wanted, strict=True)
        ]

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """One a value of each vector of a pair."""
        return top_shapes[0][0] * (top_shapes[0][1] - self.size) * self.size
