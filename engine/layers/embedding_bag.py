"""EmbeddingBag: looks up the rows of a table for every bag of ids, and adds them up or averages them.

    y[n] = sum of W[id] over the ids of bag n           dW[id] = sum of dy[n] over every place of id in a bag n
    MEAN: both divided by the number of ids in bag n; a bag without ids gives 0

Fields of `embedding_bag_param` (default): input_dim, num_output, both at least 1; mode (SUM): SUM or MEAN; bags
(OFFSETS): OFFSETS or LENGTHS, what the second bottom gives; weight_filler (uniform within +-1 / sqrt(input_dim)).
Bottoms: ids, whole numbers from 0 to input_dim - 1. Alone: N x any shape, the bag n being all ids of item n. With a
second bottom of N whole numbers: any shape, read in order; bag n begins at offset n (the first is 0, none is below the
one before, the last bag ends with the ids), or has length n (together as many as there are ids). No gradient flows to
either.
Top: N x num_output.
Parameters: W (input_dim, num_output), whose gradient and update are those of the rows that were looked up.
No differences from Caffe. (In no Caffe: nn.EmbeddingBag in PyTorch. docs/solvers.md says how solvers update the table,
and with which fields they can.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.layers.shared.rows import read_rows
from mgcaffe.engine.registry import register
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.tables.access import PassLookUps
from mgcaffe.engine.tables.bags import Bags, pooled
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError
from mgcaffe.prototxt import FillerParameter

_EXACT_IN_FLOAT32 = 2**24


@register("EmbeddingBag")
class EmbeddingBag(Layer):
    """The layer; see the module's text.

    Attributes:
        is_mean: whether bags are averaged.
        gives_lengths: whether the second bottom holds lengths, not offsets.
        table: the layer's parameter.
        ids_expected: how many rows a pass looks up, by the shape of the ids' blob.
        elsewhere: looks rows up that lie in other processes; None: all rows lie here.
    """

    only_once = "its look-ups are made once for the whole pass"
    bottoms = between(1, 2)
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the table."""
        param = self.param.embedding_bag_param
        for field in ("input_dim", "num_output"):
            if getattr(param, field) < 1:
                self.fail(f"{field} has to be at least 1", f"embedding_bag_param.{field}")
        if len(bottom_shapes) == 1 and param.HasField("bags"):
            self.fail(
                "bags says what a second bottom gives, and there is only one bottom: each item's ids are a bag",
                "embedding_bag_param.bags",
                hint="give the offsets or lengths as a second bottom, or remove bags",
            )
        if self.context.dtype == torch.float32 and param.input_dim > _EXACT_IN_FLOAT32:
            self.fail(
                f"input_dim is {param.input_dim}; ids come in a blob of float32, which holds whole numbers exactly up"
                f" to {_EXACT_IN_FLOAT32}",
                "embedding_bag_param.input_dim",
                hint="take the ids modulo a smaller table, or split the table over several layers",
            )
        self.is_mean = param.mode == param.MEAN
        self.gives_lengths = param.bags == param.LENGTHS
        bound = 1 / math.sqrt(param.input_dim)
        uniform = FillerParameter(type="uniform", min=-bound, max=bound)
        filler = param.weight_filler if param.HasField("weight_filler") else uniform
        table = self.add_parameter((param.input_dim, param.num_output), filler, by_rows=True)
        assert isinstance(table, RowParameter)
        self.table = table
        self.elsewhere: PassLookUps | None = None
        self.ids_expected = math.prod(bottom_shapes[0])

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to ids, offsets or lengths."""
        return False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return one vector for each bag."""
        shape = bottom_shapes[-1]
        if not shape:
            what = "ids" if len(bottom_shapes) == 1 else "lengths" if self.gives_lengths else "offsets"
            self.fail(f"the blob of {what} has no axis to count bags by", "bottom", index=len(bottom_shapes) - 1)
        bags = math.prod(shape) if len(bottom_shapes) == 2 else shape[0]
        return [(bags, self.table.shape[1])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the ids and how many each bag has."""
        if self.elsewhere is None:
            bags = self.read_bags(bottoms)
            top = pooled(self.table.data, bags, is_mean=self.is_mean)
        else:
            bags, top = self.elsewhere.take(self)
            if self.is_mean:
                top = bags.averaged(top)
        self.saved = bags if self.backward_follows else None
        return [top]

    def read_bags(self, bottoms: Sequence[torch.Tensor]) -> Bags:
        """Return the bags that the bottoms hold.

        Raises:
            DataError: an id is no row, or offsets or lengths are none of these ids.
        """
        ids = read_rows(self, bottoms[0], self.table.shape[0], 0)
        if len(bottoms) == 2:
            offsets, lengths = self._bags(bottoms[1], ids.numel())
            return Bags(ids, lengths.numel(), lengths, offsets)
        bags = bottoms[0].shape[0]
        each = ids.numel() // bags if bags else 0
        if each == 1:
            return Bags(ids, bags)
        offsets = torch.arange(0, bags * each, each, device=ids.device) if each else ids.new_zeros(bags)
        return Bags(ids, bags, torch.full((bags,), each, device=ids.device), offsets)

    def _bags(self, values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the offsets and lengths of the bags.

        Raises:
            DataError: they are none of `count` ids.
        """
        given = values.reshape(-1).long()
        name = self.bottom_names[1]
        if self.gives_lengths:
            lengths = given
            wrong = (lengths < 0).nonzero()
            if wrong.numel():
                bag = int(wrong[0, 0])
                self.fail(f"length {int(lengths[bag])} of bag {bag} in blob '{name}' is negative", error=DataError)
            if (total := int(lengths.sum())) != count:
                self.fail(
                    f"the lengths in blob '{name}' add up to {total}, and blob '{self.bottom_names[0]}' holds {count}"
                    " ids",
                    error=DataError,
                )
            return lengths.cumsum(0).sub_(lengths), lengths
        ends = torch.cat([given[1:], given.new_full((1,), count)]) if given.numel() else given
        lengths = ends - given
        if given.numel() and int(given[0]) != 0:
            self.fail(f"offset {int(given[0])} of bag 0 in blob '{name}' has to be 0", error=DataError)
        if not given.numel() and count:
            self.fail(f"blob '{name}' holds no offsets, and blob '{self.bottom_names[0]}' {count} ids", error=DataError)
        wrong = (lengths < 0).nonzero()
        if wrong.numel():
            bag = int(wrong[0, 0])
            last = bag + 1 == len(given)
            at, offset = (bag, int(given[bag])) if last else (bag + 1, int(ends[bag]))
            what = f"beyond the {count} ids of blob '{self.bottom_names[0]}'" if last else "below the one before"
            self.fail(f"offset {offset} of bag {at} in blob '{name}' is {what}", error=DataError)
        return given, lengths

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hand over the gradients of the rows that were looked up."""
        if self.table.wanted:
            bags: Bags = self.saved
            dy = top_diffs[0]
            if self.is_mean and bags.lengths is not None:
                dy = bags.averaged(dy)
            elif not self.may_overwrite_top_diff[0]:
                dy = dy.clone()  # the table keeps it until the update
            if self.elsewhere is None:
                self.table.add_rows(bags.ids, dy.contiguous(), bags.items())
            else:
                self.elsewhere.give(self, dy)
        return [None] * len(wanted)
