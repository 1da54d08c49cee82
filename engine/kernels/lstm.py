"""The arithmetic of an LSTM's unit, one time step forward, all steps' derivatives at once (Caffe: lstm_unit_layer.cpp).

    c' = k sigmoid(f) c + sigmoid(i) tanh(g)          h' = sigmoid(o) tanh(c')

Shapes: cells c and outputs h (N, H); the gates' inputs (N, 4 H), in Caffe's order i, f, o, g; k (N, 1) is 0 where a
sequence begins and 1 where it goes on, or None where all do. Backward takes T steps together, with a first axis of
size T.

On a CPU Caffe takes F = k sigmoid(f) for the forget gate, and c F (1 - F) for the slope of c' to f: the derivative
where k is 0 or 1, and another number for any other k. Here it is that number, on every device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


def step(
    inputs: torch.Tensor,
    gates: torch.Tensor,
    cell: torch.Tensor,
    keep: torch.Tensor | None,
    next_cell: torch.Tensor,
    squashed: torch.Tensor,
    hidden: torch.Tensor,
) -> None:
    """Compute one time step.

    Args:
        inputs: (N, 4 H), the gates' inputs.
        gates: (N, 4 H), filled with the gates' values; may be `inputs`.
        cell: (N, H), c before the step.
        keep: (N, 1), or None for ones.
        next_cell, squashed, hidden: (N, H), filled with c', tanh(c') and h'.
    """
    sizes = [3 * cell.shape[1], cell.shape[1]]
    (to_sigmoid, to_tanh), (sigmoids, tanhs) = inputs.split(sizes, 1), gates.split(sizes, 1)
    torch.sigmoid(to_sigmoid, out=sigmoids)
    torch.tanh(to_tanh, out=tanhs)
    input_, forget, output, candidate = gates.chunk(4, 1)
    kept = cell if keep is None else torch.mul(cell, keep, out=next_cell)
    torch.mul(kept, forget, out=next_cell).addcmul_(input_, candidate)
    torch.mul(torch.tanh(next_cell, out=squashed), output, out=hidden)


@dataclass(frozen=True)
class Derivatives:
    """How each step's gates, output and cell depend on each other, for T steps.

    Attributes:
        gates: (T, N, 4 H): of c' with respect to the inputs of i, f (Caffe's slope) and g, and of h' to that of o.
        cell_of_hidden: (T, N, H): of h' with respect to c'.
        cell_of_cell: (T, N, H): of c' with respect to c.
    """

    gates: torch.Tensor
    cell_of_hidden: torch.Tensor
    cell_of_cell: torch.Tensor

    def through_step(self, step: int, dhidden: torch.Tensor, dcell: torch.Tensor | None) -> torch.Tensor:
        """Turn step `step` of `gates` into the gradient of the gates' inputs; call it once a step.

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


def derivatives(
    gates: torch.Tensor, cells: torch.Tensor, keep: torch.Tensor | None, squashed: torch.Tensor
) -> Derivatives:
    """Return the derivatives of T steps.

    Args:
        gates: (T, N, 4 H), the gates' values as `step` left them.
        cells: (T, N, H), c before each step.
        keep: (T, N, 1), or None for ones.
        squashed: (T, N, H), tanh(c') of each step.
    """
    aten = torch.ops.aten
    input_, forget, output, candidate = gates.chunk(4, 2)
    inputs = torch.empty_like(gates)
    of_input, of_forget, of_output, of_candidate = inputs.chunk(4, 2)
    aten.sigmoid_backward.grad_input(candidate, input_, grad_input=of_input)
    kept = forget if keep is None else forget * keep
    aten.sigmoid_backward.grad_input(cells, kept, grad_input=of_forget)
    aten.sigmoid_backward.grad_input(squashed, output, grad_input=of_output)
    aten.tanh_backward.grad_input(input_, candidate, grad_input=of_candidate)
    return Derivatives(inputs, aten.tanh_backward(output, squashed), kept)
