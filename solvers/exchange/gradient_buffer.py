"""A flat buffer of gradients as the exchange sees it: where each segment lies, and nothing of the net behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mgcaffe.comm import Segment
from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter


@dataclass(frozen=True)
class GradientBuffer:
    """The gradients that are averaged.

    Attributes:
        flat: all gradients; what lies behind the last segment is never sent.
        segments: the places in it, ascending; gradients become ready from the last to the first.
        is_divided: whether gradients are divided by the number of ranks before they are handed over.
    """

    flat: torch.Tensor
    segments: Sequence[Segment]
    is_divided: bool = False

    @classmethod
    def of_net(cls, net: Net, ranks: int) -> GradientBuffer:
        """Return a net's gradients, a segment for each layer that trains; for one rank, which sends none, all of them.

        Args:
            net: whose gradients of products have places apart already (`KeptProducts`).
            ranks: how many exchange them.
        """
        segments = net.arena.segments(of_data=ranks == 1)
        return cls(net.arena.diff, [Segment(name, offset, count) for name, _, offset, count in segments])

    @property
    def trainable(self) -> torch.Tensor:
        """The part that is sent."""
        last = self.segments[-1]
        return self.flat[: last.offset + last.count]

    @property
    def is_on_host(self) -> bool:
        """Whether the gradients lie in the host's memory."""
        return self.flat.device.type == "cpu"

    @property
    def dtype(self) -> str:
        """The gradients' type, such as `float32`."""
        return str(self.flat.dtype).removeprefix("torch.")


def want_frozen_gradients(param: SolverParameter, net: Net) -> None:
    """Have LSTM and RNN compute the gradients of their frozen parameters, where these count (`frozen_gradients`)."""
    if param.clip_gradients < 0:
        return
    for layer in net.layers:
        if layer.differentiates_frozen and layer.backward_follows:
            for parameter in layer.parameters:
                parameter.wanted = True


def frozen_gradients(param: SolverParameter, net: Net) -> list[torch.Tensor]:
    """Return the gradients of frozen parameters, flat, where they count; else an empty list.

    They do for the norm of clipping where Caffe computes them too, since ClipGradients adds up all there are (net.cpp,
    sgd_solver.cpp): with `force_backward`, of LSTM and RNN, and of a shared parameter for each use whose layer does not
    give the `lr_mult: 0` itself. Statistics that forward changes have none.
    """
    values = net.arena.diff[net.arena.kept_together :]
    uses = (parameter for layer in net.layers for parameter in layer.parameters)
    are_computed = any(use.wanted and use.lr_mult == 0 for use in uses)
    return [values] if param.clip_gradients >= 0 and are_computed and values.numel() else []
