"""Look-ups and gradients of tables that embedding servers hold, for one net of a trainer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mgcaffe.comm.tables.client import TableClient
from mgcaffe.comm.tables.messages import Bags, Request
from mgcaffe.comm.tables.pending import PendingLookUp
from mgcaffe.engine.tables.access import LookUp


class ServerAccess:
    """Reads the tables of one net by requests to embedding servers, and keeps gradients until the update.

    Args:
        client: of this trainer; its nets, those of all Hogwild workers and of tests, share it.
        device: of the net.
    """

    def __init__(self, client: TableClient, device: torch.device) -> None:
        self.device = device
        self.client = client
        self._given: list[tuple[PendingLookUp, Sequence[torch.Tensor | None]]] = []

    def look_up(self, look_ups: Sequence[LookUp]) -> ServerLookedUp:
        """Send the requests."""
        return ServerLookedUp(self, self.client.look_up([_request(each) for each in look_ups]))

    def gradients(self) -> Sequence[torch.Tensor]:
        """Return the gradients that wait for the update."""
        return [each for _, gradients in self._given for each in gradients if each is not None]

    def keep(self, look_up: PendingLookUp, gradients: Sequence[torch.Tensor | None]) -> None:
        """Keep the gradients of a look-up's sums until the update."""
        self._given.append((look_up, gradients))

    def forget_gradients(self) -> None:
        """Forget them, and let the servers forget the look-ups."""
        for look_up, _ in self._given:
            self.client.forget(look_up)
        self._given.clear()

    def update(self, rate: float, scale: float) -> None:
        """Send the gradients to the servers, which update their rows: the solver's rate, and a factor on gradients."""
        if self._given:
            given = [(look_up, [_array(each) for each in gradients]) for look_up, gradients in self._given]
            self.client.update(given, rate, scale)
            self._given.clear()


class ServerLookedUp:
    """Look-ups that were made at once; see `LookedUp`."""

    def __init__(self, access: ServerAccess, pending: PendingLookUp) -> None:
        self._access = access
        self._pending = pending

    def sums(self) -> list[torch.Tensor]:
        """Wait for the servers."""
        return [torch.from_numpy(vectors).to(self._access.device) for vectors in self._pending.wait()]

    def add_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Keep them until the update."""
        self._access.keep(self._pending, gradients)

    def drop(self) -> None:
        """Let the servers forget what was looked up."""
        self._access.client.forget(self._pending)


def _request(look_up: LookUp) -> Request:
    lengths = look_up.bags.lengths
    return Request(
        look_up.table, Bags(_host(look_up.bags.ids), None if lengths is None else _host(lengths)), look_up.trains
    )


def _host(values: torch.Tensor) -> np.ndarray:
    array: np.ndarray = values.cpu().contiguous().numpy()
    return array


def _array(gradient: torch.Tensor | None) -> np.ndarray | None:
    return None if gradient is None else _host(gradient)
