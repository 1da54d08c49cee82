"""Embed: looks up a row of learned values for every number of the bottom.

    y[...] = W[x[...]] + b                            dW[i] = sum of dy where x = i,  db = sum of dy

Fields of `embed_param` (default): input_dim, num_output, both at least 1; bias_term (true); weight_filler, bias_filler
(constant 0).
Bottom: whole numbers from 0 to input_dim - 1, any shape; no gradient flows to it.
Top: the bottom's shape and an axis of size num_output.
Parameters: W (input_dim, num_output); b (num_output).
Differences from Caffe: a number that is no row is an error, which Caffe looks for in debug builds only.
(Caffe: embed_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.rows import add_rows, read_rows
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Embed")
class Embed(Layer):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the table and the bias."""
        param = self.param.embed_param
        for field in ("input_dim", "num_output"):
            if getattr(param, field) < 1:
                self.fail(f"{field} has to be at least 1", "embed_param")
        self.add_parameter((param.input_dim, param.num_output), param.weight_filler)
        if param.bias_term:
            self.add_parameter((param.num_output,), param.bias_filler)

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to row numbers."""
        return False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return one axis more."""
        return [(*bottom_shapes[0], self.param.embed_param.num_output)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the row numbers."""
        table = self.parameters[0].data
        rows = read_rows(self, bottoms[0], len(table), 0)
        self.saved = rows if self.backward_follows else None
        y = table.index_select(0, rows)
        if len(self.parameters) > 1:
            y.add_(self.parameters[1].data)
        return [y.view(*bottoms[0].shape, table.shape[1])]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add to the rows of the table's gradient in place."""
        table = self.parameters[0]
        dy = top_diffs[0].reshape(-1, table.shape[1])
        if table.wanted:
            if not table.beta():
                table.diff.zero_()
            add_rows(table.diff, self.saved, dy)
        if len(self.parameters) > 1 and self.parameters[1].wanted:
            self.parameters[1].accumulate(dy.sum(0))
        return [None]
