"""The arithmetic of an LSTM's unit, one time step forward, all steps' derivatives at once (Caffe: lstm_unit_layer.cpp).

    c' = k sigmoid(f) c + sigmoid(i) tanh(g)          h' = sigmoid(o) tanh(c')

Shapes: cells c and outputs h (N, H); the gates' inputs (N, 4 H), in Caffe's order i, f, o, g; k (N, 1) is 0 where a
sequence begins and 1 where it goes on. Backward takes T steps together, with a first axis of size T.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


def step(
    gates: torch.Tensor, cell: torch.Tensor, keep: torch.Tensor, next_cell: torch.Tensor, hidden: torch.Tensor
) -> None:
    """One time step.

    Args:
        gates: (N, 4 H), the gates' inputs; overwritten by the gates' values.
        cell: (N, H), c before the step.
        keep: (N, 1).
        next_cell, hidden: (N, H), filled with c' and h'.
    """
    size = cell.shape[1]
    gates[:, : 3 * size].sigmoid_()
    gates[:, 3 * size :].tanh_()
    input_, forget, output, candidate = gates.split(size, 1)
    torch.mul(cell, keep, out=next_cell).mul_(forget).addcmul_(input_, candidate)
    torch.tanh(next_cell, out=hidden).mul_(output)


@dataclass(frozen=True)
class Derivatives:
    """How each step's gates, output and cell depend on each other, for T steps.

    Attributes:
        gates: (T, N, 4 H): of c' with respect to the inputs of i, f and g, and of h' to that of o.
        cell_of_hidden: (T, N, H): of h' with respect to c'.
        cell_of_cell: (T, N, H): of c' with respect to c.
    """

    gates: torch.Tensor
    cell_of_hidden: torch.Tensor
    cell_of_cell: torch.Tensor

    def through_step(self, step: int, dhidden: torch.Tensor, dcell: torch.Tensor | None) -> torch.Tensor:
        """Turns step `step` of `gates` into the gradient of the gates' inputs; call it once a step.

        Args:
            step: its number.
            dhidden: (N, H), the gradient of h'.
            dcell: (N, H), the gradient of c' apart from that through h'; None for zeros.

        Returns:
            The whole gradient of c', (N, H).
        """
        streams, size = dhidden.shape
        through = self.cell_of_hidden[step]
        total = dhidden * through if dcell is None else torch.addcmul(dcell, dhidden, through)
        gates = self.gates[step].view(streams, 4, size)
        gates[:, :2].mul_(total.unsqueeze(1))
        gates[:, 2].mul_(dhidden)
        gates[:, 3].mul_(total)
        return total


def derivatives(gates: torch.Tensor, cells: torch.Tensor, keep: torch.Tensor, next_cells: torch.Tensor) -> Derivatives:
    """The derivatives of T steps.

    Args:
        gates: (T, N, 4 H), the gates' values as `step` left them.
        cells, next_cells: (T, N, H), c before and after each step.
        keep: (T, N, 1).
    """
    size = next_cells.shape[2]
    input_, forget, output, candidate = gates.split(size, 2)
    squashed = torch.tanh(next_cells)
    inputs = torch.empty_like(gates)
    of_input, of_forget, of_output, of_candidate = inputs.split(size, 2)
    # s (1 - s) and 1 - t^2 are what sigmoid and tanh, whose values are s and t, let through.
    torch.mul(input_, 1 - input_, out=of_input).mul_(candidate)
    torch.mul(forget, 1 - forget, out=of_forget).mul_(cells).mul_(keep)
    torch.mul(output, 1 - output, out=of_output).mul_(squashed)
    torch.mul(candidate, candidate, out=of_candidate).neg_().add_(1).mul_(input_)
    return Derivatives(inputs, squashed.square_().neg_().add_(1).mul_(output), forget * keep)
