"""LSTM: long short-term memory over T time steps of N streams.

    (i, f, o, g)_t = W_xc x_t + b_c + W_xc_static x_static + W_hc (cont_t h_{t-1})
    c_t = cont_t sigmoid(f_t) c_{t-1} + sigmoid(i_t) tanh(g_t)          y_t = h_t = sigmoid(o_t) tanh(c_t)

For a cont other than 0 and 1 the gradient of f_t is that of c_t times c_{t-1} F (1 - F) with F = cont_t sigmoid(f_t),
as in Caffe on a CPU, and so not the derivative, c_{t-1} F (1 - sigmoid(f_t)).

Fields of `recurrent_param` (default): num_output H; weight_filler, bias_filler (constant 0); expose_hidden (false): the
states h and c come from bottoms and go to tops; debug_info (false): logs mean absolute values step by step.
Bottoms: x (T, N, ...); cont (T, N), 0 where a sequence begins and else 1; optionally a static input (N, ...); with
`expose_hidden` h_0 and c_0, each (1, N, H).
Tops: y (T, N, H); with `expose_hidden` h_T and c_T, each (1, N, H). Without it the states go on from one forward pass
to the next. No gradient flows through exposed or carried states.
Parameters: with D values of x and S of the static input for each stream: W_xc (4 H, D); b_c (4 H); with a static input
W_xc_static (4 H, S); W_hc (4 H, H). More in recurrent.py.
Differences from Caffe: T and N may change from pass to pass, where Caffe unrolls the net for one T. On a GPU Caffe
takes the derivative for any cont.
(Caffe: lstm_layer.cpp, lstm_unit_layer.cpp, recurrent_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import linear, linear_ways, lstm, onednn_lstm
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
        """Run all steps at once where that is possible and faster, else one after the other."""
        first, keep = self._factors(bottoms[1])
        if keep is None and self._is_fused(bottoms[0]):
            return self._forward_at_once(bottoms, first)
        return self._forward_in_steps(bottoms, first, keep)

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Back through time, as forward went."""
        self._warn_of_dropped_gradient(top_diffs, wanted)
        if isinstance(self.saved[-1], onednn_lstm.Run):
            return self._backward_at_once(top_diffs, wanted)
        return self._backward_in_steps(top_diffs, wanted)

    def _is_fused(self, x: torch.Tensor) -> bool:
        """Return whether oneDNN's layer computes a pass in which no sequence begins after the first step."""
        is_plain = not (self.has_static or self.param.recurrent_param.debug_info)
        serves = onednn_lstm.serves(self._operand(x))
        return is_plain and serves and not linear_ways.is_large(self.parameters[-1].data)

    def _forward_at_once(self, bottoms: Sequence[torch.Tensor], first: torch.Tensor | float) -> list[torch.Tensor]:
        weight, bias, recurrent = (parameter.data for parameter in self.parameters)
        hidden, cell = (values * first for values in self._begin(bottoms))
        x = bottoms[0].reshape(*bottoms[0].shape[:2], -1)
        run = onednn_lstm.forward(x, weight, recurrent, bias, hidden, cell, train=self.backward_follows)
        self.saved = (list(bottoms), run) if self.backward_follows else None
        return [run.output, *self._end(run.state)]

    def _backward_at_once(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        bottoms, run = self.saved
        gradients = run.backward(top_diffs[0])
        for parameter, gradient in zip(
            self.parameters, (gradients.weight, gradients.bias, gradients.recurrent), strict=True
        ):
            if parameter.wanted:
                onednn_lstm.add_swapped(parameter.diff, gradient, parameter.beta())
        diffs: list[torch.Tensor | None] = [None] * len(wanted)
        if wanted[0]:
            diffs[0] = gradients.input.view(bottoms[0].shape)
        return self._none_to_states(diffs, bottoms, wanted)

    def _forward_in_steps(
        self, bottoms: Sequence[torch.Tensor], first: torch.Tensor | float, keep: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """Keep the gates' values, the cells, their tanh and the outputs."""
        gates = self._transform(bottoms)
        steps, streams = gates.shape[:2]
        # One more step than there are: what the first one begins with.
        hiddens, cells = (gates.new_empty(steps + 1, streams, self.hidden) for _ in range(2))
        squashed = gates.new_empty(steps, streams, self.hidden)
        for state, values in zip((hiddens, cells), self._begin(bottoms), strict=True):
            torch.mul(values, first, out=state[0])
        weight = self._operand(self.parameters[-1].data)
        hidden, cell = hiddens[0], cells[0]
        for step, now in enumerate(gates.unbind()):
            goes_on = None if keep is None else keep[step]
            linear.add_forward(now, self._operand(hidden if goes_on is None else hidden * goes_on), weight)
            after = cells[step + 1], squashed[step], hiddens[step + 1]
            lstm.step(now, now, cell, goes_on, *after)
            cell, _, hidden = after
        self._log_steps("Forward", {"c": cells[1:], "h": hiddens[1:]})
        self.saved = (list(bottoms), keep, gates, hiddens, cells, squashed) if self.backward_follows else None
        return [hiddens[1:], *self._end([hidden, cell])]

    def _backward_in_steps(
        self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Make the weights' gradients of one product each over all steps."""
        bottoms, keep, gates, hiddens, cells, squashed = self.saved
        weight = self.parameters[-1]
        recurrent = self._operand(weight.data)
        derivatives = lstm.derivatives(gates, cells[:-1], keep, squashed)
        dhidden: torch.Tensor | None = None
        dcell: torch.Tensor | None = None
        for step in reversed(range(len(gates))):
            dy = top_diffs[0][step]
            total = derivatives.through_step(step, dy if dhidden is None else dhidden.add_(dy), dcell)
            if step:
                dgates = self._operand(derivatives.gates[step])
                dhidden = widened(linear.backward_data(dgates, recurrent))
                if keep is not None:
                    dhidden.mul_(keep[step])
                dcell = total.mul_(derivatives.cell_of_cell[step])
        self._log_steps("Backward", {"gate_input": derivatives.gates})
        kept_hiddens = hiddens[:-1] if keep is None else hiddens[:-1] * keep
        self._add_product(weight, derivatives.gates.view(-1, 4 * self.hidden), kept_hiddens.view(-1, self.hidden))
        return self._transform_backward(derivatives.gates, bottoms, wanted)
