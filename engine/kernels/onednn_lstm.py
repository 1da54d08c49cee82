"""An LSTM over all time steps in oneDNN's fused layer, for passes within which no sequence begins.

Shapes: T steps of N streams; input (T, N, D), weights (4 H, D) and (4 H, H), bias (4 H), states (N, H). Weights and
the bias have Caffe's order of gates (i, f, o, g), which becomes oneDNN's (i, f, g, o).

With 64 or 128 cells a training pass takes a third of the time of single steps, whose operators are then mostly calls;
with 256 or 384 up to a quarter less; with 512 as much, and with 1,000, where reading weights takes longest, more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

_LSTM = 2
"""The number of this kind of layer among oneDNN's."""

AVAILABLE = torch.backends.mkldnn.is_available() and all(
    hasattr(torch.ops.aten, name) for name in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
)
"""Whether this PyTorch has the layer."""


def serves(x: torch.Tensor) -> bool:
    """Return whether the layer can take this input."""
    return AVAILABLE and x.is_cpu and x.dtype == torch.float32 and x.numel() > 0


def swapped(gates: torch.Tensor) -> torch.Tensor:
    """Return rows of gates in the other order: the last two of four blocks change places."""
    input_, forget, third, fourth = gates.chunk(4)
    return torch.cat([input_, forget, fourth, third])


def add_swapped(total: torch.Tensor, gates: torch.Tensor, beta: float) -> None:
    """Total = beta total + `swapped(gates)`, in place, for beta 0 or 1."""
    size = len(gates) // 4
    for mine, its in ((0, 0), (1, 1), (2, 3), (3, 2)):
        rows, values = total[mine * size : (mine + 1) * size], gates[its * size : (its + 1) * size]
        rows.add_(values) if beta else rows.copy_(values)


class Gradients(NamedTuple):
    """Of the input (T, N, D) and of the parameters, these in oneDNN's order of gates: see `add_swapped`."""

    input: torch.Tensor
    weight: torch.Tensor
    recurrent: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True)
class Run:
    """One forward pass.

    Attributes:
        output: (T, N, H), h after each step.
    """

    _operands: tuple[torch.Tensor, ...]
    output: torch.Tensor
    _hidden: torch.Tensor
    _cell: torch.Tensor
    _workspace: torch.Tensor

    @property
    def state(self) -> list[torch.Tensor]:
        """h and c after the last step, (N, H) each."""
        return [self._hidden[0], self._cell[0]]

    def backward(self, doutput: torch.Tensor) -> Gradients:
        """Return the gradients; none flows into the states before the first step."""
        results = torch.ops.aten.mkldnn_rnn_layer_backward(
            *self._operands, self.output, self._hidden, self._cell, doutput.contiguous(),
            torch.zeros_like(self._hidden), torch.zeros_like(self._cell),
            **_options(self._hidden.shape[2]), train=True, workspace=self._workspace,
        )  # fmt: skip
        return Gradients(*results[:4])


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    recurrent: torch.Tensor,
    bias: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    *,
    train: bool,
) -> Run:
    """Compute all steps; `hidden` and `cell` are the states before the first one, `train`: backward may follow."""
    bias = swapped(bias)
    operands = (
        x.contiguous(), swapped(weight), swapped(recurrent), bias, torch.zeros_like(bias),
        hidden.unsqueeze(0), cell.unsqueeze(0),
    )  # fmt: skip
    results = torch.ops.aten.mkldnn_rnn_layer(*operands, **_options(hidden.shape[1]), train=train)
    return Run(operands, *results)


def _options(hidden_size: int) -> dict[str, Any]:
    return {
        "reverse": False, "batch_sizes": [], "mode": _LSTM, "hidden_size": hidden_size, "num_layers": 1,
        "has_biases": True, "bidirectional": False, "batch_first": False,
    }  # fmt: skip
