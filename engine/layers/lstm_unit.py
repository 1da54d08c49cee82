"""LSTMUnit: one time step of an LSTM, given the gates' inputs.

    c' = k sigmoid(f) c + sigmoid(i) tanh(g)          h' = sigmoid(o) tanh(c')

For a k other than 0 and 1 the gradient of f is that of c' times c F (1 - F) with F = k sigmoid(f), as in Caffe on a
CPU, and so not the derivative, c F (1 - sigmoid(f)).

No fields.
Bottoms: c (1, N, H); the gates' inputs (1, N, 4 H), in the order i, f, o, g; the sequence indicators k (1, N), 0 where
a sequence begins and else 1, to which no gradient flows.
Tops: c' and h', each (1, N, H).
Differences from Caffe: on a GPU Caffe takes the derivative for any k. (Caffe: lstm_unit_layer.cpp, lstm_unit_layer.cu.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import lstm
from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("LSTMUnit")
class LSTMUnit(Layer):
    """The layer; see the module's text."""

    bottoms = exactly(3)
    tops = exactly(2)

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the sequence indicators."""
        return bottom != 2

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Twice the shape of c."""
        cell, gates, indicators = bottom_shapes
        if len(cell) != 3 or cell[0] != 1:
            self.fail(f"bottom 0 has to have shape (1, N, H), not {cell}")
        wanted = (1, cell[1], 4 * cell[2])
        if gates != wanted:
            self.fail(f"bottom 1 has to have shape {wanted}, four times the cell's {cell}, not {gates}")
        if indicators != wanted[:2]:
            self.fail(f"bottom 2 has to have shape {wanted[:2]}, one number a stream, not {indicators}")
        return [cell, cell]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the gates' values and tanh(c')."""
        cell, inputs, indicators = bottoms
        gates, keep = torch.empty_like(inputs, memory_format=torch.contiguous_format), indicators.unsqueeze(2)
        next_cell, squashed, hidden = (torch.empty_like(cell, memory_format=torch.contiguous_format) for _ in range(3))
        lstm.step(inputs[0], gates[0], cell[0], keep[0], next_cell[0], squashed[0], hidden[0])
        self.saved = (gates, cell, keep, squashed) if self.backward_follows else None
        return [next_cell, hidden]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Through both tops."""
        if not any(wanted):
            return [None, None, None]
        dcell, dhidden = top_diffs
        derivatives = lstm.derivatives(*self.saved)
        total = derivatives.through_step(0, dhidden[0], dcell[0])
        before = derivatives.cell_of_cell.mul_(total) if wanted[0] else None
        return [before, derivatives.gates if wanted[1] else None, None]

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Two for each value of c, one for each of h."""
        return 3 * math.prod(top_shapes[0])
