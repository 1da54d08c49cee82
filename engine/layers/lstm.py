"""LSTM: long short-term memory over T time steps of N streams.

    (i, f, o, g)_t = W_xc x_t + b_c + W_xc_static x_static + W_hc (cont_t h_{t-1})
    c_t = cont_t sigmoid(f_t) c_{t-1} + sigmoid(i_t) tanh(g_t)          y_t = h_t = sigmoid(o_t) tanh(c_t)

Fields of `recurrent_param` (default): num_output H; weight_filler, bias_filler (constant 0); expose_hidden (false): the
states h and c come from bottoms and go to tops; debug_info (false): logs mean absolute values step by step.
Bottoms: x (T, N, ...); cont (T, N), 0 where a sequence begins and else 1; optionally a static input (N, ...); with
`expose_hidden` h_0 and c_0, each (1, N, H).
Tops: y (T, N, H); with `expose_hidden` h_T and c_T, each (1, N, H). Without it the states go on from one forward pass
to the next. No gradient flows through exposed or carried states.
Parameters: with D values of x and S of the static input for each stream: W_xc (4 H, D); b_c (4 H); with a static input
W_xc_static (4 H, S); W_hc (4 H, H). More in recurrent.py.
Differences from Caffe: T and N may change from pass to pass, where Caffe unrolls the net for one T.
(Caffe: lstm_layer.cpp, recurrent_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import linear, lstm
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("LSTM")
class LSTM(RecurrentLayer):
    """The layer; see the module's text."""

    state_names = ("h", "c")
    gates = 4

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare W_hc behind the parameters of the inputs."""
        super().setup(bottom_shapes)
        self.add_parameter((4 * self.hidden, self.hidden), self.param.recurrent_param.weight_filler)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the gates' values, the cells, their tanh and the outputs."""
        gates = self._transform(bottoms)
        keep = bottoms[1].unsqueeze(2)
        hidden_0, cell_0 = hidden, cell = self._begin(bottoms)
        hiddens, cells, squashed = (gates.new_empty(*gates.shape[:2], self.hidden) for _ in range(3))
        weight = self._operand(self.parameters[-1].data)
        for now, goes_on, *after in zip(*map(torch.unbind, (gates, keep, cells, squashed, hiddens)), strict=True):
            linear.add_forward(now, self._operand(hidden * goes_on), weight)
            lstm.step(now, now, cell, goes_on, *after)
            cell, _, hidden = after
        self._show("Forward", "unit", {"c": cells, "h": hiddens})
        kept = (list(bottoms), keep, gates, hidden_0, hiddens, cell_0, cells, squashed)
        self.saved = kept if self.backward_follows else None
        return [hiddens, *self._end([hidden, cell])]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Back through time; the weights' gradients are one product each over all steps."""
        self._told_of_dropped(top_diffs, wanted)
        bottoms, keep, gates, hidden_0, hiddens, cell_0, cells, squashed = self.saved
        weight = self.parameters[-1]
        recurrent = self._operand(weight.data)
        derivatives = lstm.derivatives(gates, self._before(cell_0, cells), keep, squashed)
        dhidden: torch.Tensor | None = None
        dcell: torch.Tensor | None = None
        for step in reversed(range(len(gates))):
            dy = top_diffs[0][step]
            total = derivatives.through_step(step, dy if dhidden is None else dhidden.add_(dy), dcell)
            if step:
                dgates = self._operand(derivatives.gates[step])
                dhidden = widened(linear.backward_data(dgates, recurrent)).mul_(keep[step])
                dcell = total.mul_(derivatives.cell_of_cell[step])
        self._show("Backward", "unit", {"gate_input": derivatives.gates})
        kept_hiddens = (self._before(hidden_0, hiddens) * keep).view(-1, self.hidden)
        self._add_product(weight, derivatives.gates.view(-1, 4 * self.hidden), kept_hiddens)
        return self._transform_backward(derivatives.gates, bottoms, wanted)
