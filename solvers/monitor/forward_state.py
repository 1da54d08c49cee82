"""What a forward pass changes beside blobs: data positions, BatchNorm's statistics and recurrent states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mgcaffe.engine import Net
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.exchange.ranks import changed_by_forward

if TYPE_CHECKING:
    from mgcaffe.engine.data.data_layer import DataLayer
    from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer


class InputState:
    """Where a net's data layers stand, and what its recurrent layers carry, at the moment when it is made."""

    def __init__(self, net: Net) -> None:
        self._positions: list[tuple[DataLayer, int]] = [(layer, layer.position()) for layer in net.data_layers]
        self._carried: list[tuple[RecurrentLayer, Sequence[torch.Tensor]]] = carried_state.snapshot(net)

    def restore(self) -> None:
        """Put it back."""
        for layer, position in self._positions:
            layer.seek(position)
        carried_state.put(self._carried)


class ForwardState:
    """The state before an iteration's forward pass, saved so that it can be put back.

    Args:
        net: the training net.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._inputs: InputState | None = None
        self._statistics = [(values, torch.empty_like(values)) for values in changed_by_forward(net)]

    def save(self) -> None:
        """Save the state as it is now."""
        self._inputs = InputState(self._net)
        for values, before in self._statistics:
            before.copy_(values)

    def keep_inputs(self) -> None:
        """Let the inputs' state of an iteration that has ended stay as it is, also in a later `restore`."""
        self._inputs = None

    def restore(self) -> None:
        """Put back what was saved.

        Statistics are put back in any case: a rank's death may have cut their averaging short.
        """
        if self._inputs is not None:
            self._inputs.restore()
        for values, before in self._statistics:
            values.copy_(before)
