"""RNN: a plain recurrent layer over T time steps of N streams.

    h_t = tanh(W_xh x_t + b_h + W_xh_static x_static + W_hh (cont_t h_{t-1}))          y_t = tanh(W_ho h_t + b_o)

Fields of `recurrent_param` (default): num_output H; weight_filler, bias_filler (constant 0); expose_hidden (false): the
state h comes from a bottom and goes to a top; debug_info (false): logs mean absolute values step by step.
Bottoms: x (T, N, ...); cont (T, N), 0 where a sequence begins and else 1; optionally a static input (N, ...); with
`expose_hidden` h_0 (1, N, H).
Tops: y (T, N, H); with `expose_hidden` h_T (1, N, H). Without it the state goes on from one forward pass to the next.
No gradient flows through an exposed or carried state.
Parameters: with D values of x and S of the static input for each stream: W_xh (H, D); b_h (H); with a static input
W_xh_static (H, S); W_hh (H, H); W_ho (H, H); b_o (H). More in recurrent.py.
Differences from Caffe: T and N may change from pass to pass, where Caffe unrolls the net for one T.
(Caffe: rnn_layer.cpp, recurrent_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import linear
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("RNN")
class RNN(RecurrentLayer):
    """The layer; see the module's text."""

    state_names = ("h",)

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare W_hh, W_ho and b_o behind the parameters of the inputs."""
        super().setup(bottom_shapes)
        param = self.param.recurrent_param
        self.add_parameter((self.hidden, self.hidden), param.weight_filler)
        self.add_parameter((self.hidden, self.hidden), param.weight_filler)
        self.add_parameter((self.hidden,), param.bias_filler)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the hidden values and the tops."""
        hiddens = self._transform(bottoms)
        recurrent, outward, bias = (parameter.data for parameter in self.parameters[-3:])
        recurrent, outward = self._operand(recurrent), self._operand(outward)
        factor, keep = self._factors(bottoms[1])
        first = hidden = self._begin(bottoms)[0] * factor
        for step, now in enumerate(hiddens.unbind()):
            linear.add_forward(now, self._operand(hidden if keep is None else hidden * keep[step]), recurrent)
            hidden = now.tanh_()
        y = widened(linear.forward(self._operand(hiddens.view(-1, self.hidden)), outward, bias))
        y = y.tanh_().view(hiddens.shape)
        self._log_steps("Forward", {"h": hiddens, "o": y})
        self.saved = (list(bottoms), keep, first, hiddens, y) if self.backward_follows else None
        return [y, *self._end([hidden])]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Back through time; the weights' gradients are one product each over all steps."""
        self._warn_of_dropped_gradient(top_diffs, wanted)
        bottoms, keep, first, hiddens, y = self.saved
        recurrent, outward, bias = self.parameters[-3:]
        douter = torch.mul(y, y).neg_().add_(1).mul_(top_diffs[0]).view(-1, self.hidden)
        self._add_product(outward, douter, hiddens.view(-1, self.hidden))
        if bias.wanted:
            bias.accumulate(douter.sum(0))
        dhiddens = widened(linear.backward_data(self._operand(douter), outward.data)).view(hiddens.shape)
        recurrent_data = self._operand(recurrent.data)
        through = torch.mul(hiddens, hiddens).neg_().add_(1)
        dnext: torch.Tensor | None = None
        for step in reversed(range(len(hiddens))):
            dhidden = dhiddens[step] if dnext is None else dhiddens[step].add_(dnext)
            dhidden.mul_(through[step])
            if step:
                dnext = widened(linear.backward_data(self._operand(dhidden), recurrent_data))
                if keep is not None:
                    dnext.mul_(keep[step])
        self._log_steps("Backward", {"h_neuron_input": dhiddens})
        before = torch.cat([first.unsqueeze(0), hiddens])[: len(hiddens)]  # what each step began with
        kept_hiddens = before if keep is None else before * keep
        self._add_product(recurrent, dhiddens.view(-1, self.hidden), kept_hiddens.view(-1, self.hidden))
        return self._transform_backward(dhiddens, bottoms, wanted)
