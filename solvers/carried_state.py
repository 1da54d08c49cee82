"""The state that recurrent layers carry from batch to batch, across a snapshot and over the ranks.

Caffe does not save it: a resumed training there begins with zeros. Every rank's training and test nets have their own,
so a snapshot holds one set of arrays per rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import BlobProto, NetParameter, blob_array, fill_blob
from mgcaffe.solvers.events import Emit, Warned

# One rank's arrays by a name that says net, layer number and layer name.
RankState = Mapping[str, Sequence[NDArray[Any]]]

_TYPES = ("LSTM", "RNN")
_KEY = re.compile(r"recurrent_state/(\d+)/(\d+)/(.*)", re.DOTALL)


def reads_sequences(net: NetParameter) -> bool:
    """Return whether a NetParameter message has recurrent layers, for which the order within a batch is time."""
    return any(layer.type in _TYPES for layer in net.layer)


def carries_state(net: NetParameter) -> bool:
    """Return whether a NetParameter message has layers whose state goes on from batch to batch."""
    return any(layer.type in _TYPES and not layer.recurrent_param.expose_hidden for layer in net.layer)


def gather(train_nets: Sequence[Net], test_nets: Sequence[Net], communicator: Communicator) -> list[RankState]:
    """Gather the state of all ranks, by rank, on rank 0 (empty elsewhere, and where nothing is carried); collective.

    Args:
        train_nets: the training nets of a rank's workers, worker 0's first. Each counts as a rank in what is returned.
        test_nets: the test nets, which are worker 0's.
        communicator: the ranks.
    """
    mine = [
        {name: [_to_array(part) for part in layer.state()] for name, layer in layers}
        for layers in _of_workers(train_nets, test_nets)
    ]
    if not any(mine):
        return []
    return [state for states in communicator.gather(mine) or [] for state in states]


def put_back(
    train_nets: Sequence[Net], test_nets: Sequence[Net], states: Sequence[RankState], rank: int, ranks: int, emit: Emit
) -> None:
    """Give this rank's layers the state that they had; those whose state is not known begin with zeros.

    Args:
        train_nets, test_nets: the nets, as for `gather`.
        states: what `gather` gave; empty in a snapshot that Caffe wrote.
        rank, ranks: this rank and how many there are.
        emit: takes the warning that some begin with zeros, and why.
    """
    workers = len(train_nets)
    zeros: dict[str, None] = {}
    for worker, layers in enumerate(_of_workers(train_nets, test_nets)):
        mine = states[rank * workers + worker] if len(states) == ranks * workers else {}
        for name, layer in layers:
            layer.reset_state()
            if not layer.set_state([torch.from_numpy(np.array(values)) for values in mine.get(name, ())]):
                zeros[f"'{layer.name}'"] = None
    if not zeros:
        return
    if states and len(states) != ranks * workers:
        kind = "rank(s)" if workers == 1 else "worker(s)"
        reason = f"the snapshot holds the recurrent state of {len(states)} {kind}, and now there are {ranks * workers}"
    else:
        reason = "the snapshot holds no recurrent state that fits"
    emit(Warned(f"{reason}: zeros for {', '.join(zeros)}"))


@contextmanager
def kept(net: Net) -> Iterator[None]:
    """Put the state of a net's layers back afterwards."""
    before = snapshot(net)
    yield
    put(before)


def snapshot(net: Net) -> list[tuple[RecurrentLayer, Sequence[torch.Tensor]]]:
    """Return the state of a net's layers, for `put`."""
    return [(layer, layer.state()) for _, layer in _named(net, ())]


def put(states: Sequence[tuple[RecurrentLayer, Sequence[torch.Tensor]]]) -> None:
    """Put back what `snapshot` gave."""
    for layer, state in states:
        layer.set_state(state)


def warn_of_ranks(net: NetParameter, ranks: int, workers: int, emit: Emit) -> None:
    """Warn of what several ranks, or workers of each, do to a training net (a NetParameter message) with state."""
    readers, kind = ranks * workers, "rank" if workers == 1 else "worker"
    if readers > 1 and carries_state(net):
        emit(
            Warned(
                f"recurrent layers carry their state from batch to batch, and each {kind} reads one batch in"
                f" {readers}: a sequence must not go on beyond its batch (cont 0 in each batch's first step)"
            )
        )


def to_entries(states: Sequence[RankState]) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of every array, for `EngineState.extra`."""
    for rank, state in enumerate(states):
        for name, arrays in state.items():
            for index, values in enumerate(arrays):
                blob = BlobProto()
                fill_blob(blob, values)
                yield f"recurrent_state/{rank}/{index}/{name}", blob.SerializeToString()


def from_entries(entries: Iterable[tuple[str, bytes]]) -> list[RankState]:
    """Read what `to_entries` was given; entries with other keys are skipped.

    Raises:
        DecodeError, PrototxtError: a value is damaged.
    """
    found: dict[int, dict[str, list[NDArray[Any]]]] = {}
    for key, value in entries:
        match = _KEY.fullmatch(key)
        if match:
            rank, _, name = match.groups()
            found.setdefault(int(rank), {}).setdefault(name, []).append(blob_array(BlobProto.FromString(value)))
    if any(rank >= len(found) for rank in found):
        raise PrototxtError(f"there is recurrent state of rank {max(found)}, and only of {len(found)} rank(s) in all")
    return [found[rank] for rank in range(len(found))]


def _of_workers(train_nets: Sequence[Net], test_nets: Sequence[Net]) -> Iterator[list[tuple[str, RecurrentLayer]]]:
    """Yield what `_named` does for each worker's training net; the test nets are worker 0's."""
    for worker, net in enumerate(train_nets):
        yield list(_named(net, () if worker else test_nets))


def _named(train_net: Net, test_nets: Sequence[Net]) -> Iterator[tuple[str, RecurrentLayer]]:
    """Yield (name in a snapshot, layer) of all layers that carry state; layers may share a name."""
    for place, net in [("train", train_net), *((f"test {index}", net) for index, net in enumerate(test_nets))]:
        for number, layer in net.recurrent_layers:
            if layer.carries_state:
                yield f"{place}/{number}/{layer.name}", layer


def _to_array(values: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.cpu().numpy()
    return array
