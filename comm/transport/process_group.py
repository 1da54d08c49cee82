"""The communicator over torch.distributed: process groups of gloo, which needs no MPI and no GPU.

    ranks = ProcessGroupCommunicator(group)            an existing group; None: the default one
    ranks = ProcessGroupCommunicator(place=place)      ranks that share a store (`rendezvous.py`)

Every duplicate and every part is a gloo group of its own, made of the store that the ranks share. So the existing
group is asked for its store and its ranks alone, whatever its backend, and no call of ours gets between two of its
user's. Unlike `torch.distributed.new_group`, which all ranks of the job have to call, only members take part.

gloo's own threads make its calls go on. A waiting rank sleeps until they are done: there is one way to wait, and it
takes no core from the computation. Of `Waiting` only `at_once` has a meaning here, for all-reduces that were started.

Messages between two ranks go over connections of our own (`connections.py`), which all duplicates and parts share.
"""

from __future__ import annotations

import itertools
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy
import torch
import torch.distributed as dist

from mgcaffe.comm.transport.buffers import on_host
from mgcaffe.comm.transport.communicator import Operation, Waiting
from mgcaffe.comm.transport.connections import Connections
from mgcaffe.comm.transport.gloo_group import GlooGroup
from mgcaffe.comm.transport.host_addresses import addresses_of_gloo
from mgcaffe.comm.transport.listener import Listener
from mgcaffe.comm.transport.meetings import Meetings
from mgcaffe.comm.transport.rendezvous import StorePlace, place_of_group
from mgcaffe.comm.transport.socket_messages import SocketMessages, SocketSending
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    from mgcaffe.comm.transport.messages import Envelope, Message

T = TypeVar("T")

TIMEOUT_S = 1800.0
"""After how many seconds of waiting for another rank a call fails; torch.distributed's own default."""

LONG_S = 24 * 3600.0
"""The same for training: a rank may wait for another one for long, and `--stall_timeout` says how long."""


def _options(operation: dist.ReduceOp.RedOpType) -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    options.reduceOp = operation  # type: ignore[assignment]
    return options


# To start an all-reduce with these takes 70 us on a thread that computes, and with a ReduceOp 120 us.
_OPTIONS = {
    "sum": _options(dist.ReduceOp.SUM),
    "max": _options(dist.ReduceOp.MAX),
    "min": _options(dist.ReduceOp.MIN),
}


class ProcessGroupCommunicator:
    """A group of ranks over gloo; see `Communicator` for the methods.

    Making one is a collective call of its ranks.

    Args:
        group: a process group of torch.distributed, of any backend; None: the default one.
        place: the ranks and their store, in place of a group.
        timeout_s: after how many seconds of waiting for another rank a call fails.

    Attributes:
        connections: over which messages travel.

    Raises:
        CommError: torch.distributed was not initialised, or this rank is no member of the group.
        PeerFailure: another rank has not come.
    """

    transport = "gloo"
    has_shrunk = False

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        place: StorePlace | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._begin(place if place is not None else place_of_group(group), timeout_s)
        listener = Listener(addresses_of_gloo())
        known = self.allgather((self.host, listener.address))
        self._take_hosts([host for host, _ in known])
        self._connect(Connections(self.rank, listener, [address for _, address in known], timeout_s))

    def _begin(self, place: StorePlace, timeout_s: float) -> None:
        self.place = place
        self.rank, self.size = place.rank, place.size
        self.host = socket.gethostname()
        self.library = f"gloo of PyTorch {torch.__version__}"
        self._timeout_s = timeout_s
        self._children = itertools.count()
        self._meetings = Meetings(place)
        self._group = self._starting = GlooGroup(place, timeout_s)
        self._groups = {1: self._group}

    def _connect(self, connections: Connections) -> None:
        self.connections = connections
        self._messages = SocketMessages(connections, self.place, self._timeout_s)

    def _take_hosts(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        neighbours = [rank for rank, host in enumerate(hosts) if host == self.host]
        self.local_rank, self.local_size = neighbours.index(self.rank), len(neighbours)

    def allreduce(self, buffer: Any, op: Operation = "sum") -> None:
        """Reduce the buffer in place over all ranks; a device tensor travels through pinned host memory."""
        with on_host(buffer) as array:
            tensor = _tensor(array)
            self._group.run(lambda group: group.allreduce([tensor], _OPTIONS[op]))

    def start_allreduce(self, buffer: numpy.ndarray, op: Operation = "sum") -> Callable[[], None]:
        """Start to reduce the buffer in place over all ranks; return what waits for the end.

        Several may have been started, in the same order on all ranks; `Waiting.at_once` of them travel at a time.
        """
        tensor, group = _tensor(buffer), self._starting
        return partial(group.wait, group.start(lambda gloo: gloo.allreduce([tensor], _OPTIONS[op])))

    def reduce(self, buffer: Any, root: int = 0) -> None:
        """Sum the buffers on the root."""
        options = dist.ReduceOptions()
        options.rootRank = root
        with on_host(buffer) as array:
            tensor = _tensor(array)
            self._group.run(lambda group: group.reduce([tensor], options))

    def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Replace the buffer by the root's."""
        with on_host(buffer) as array:
            self._broadcast(_bytes(array), root)

    def alltoallv(
        self, send: numpy.ndarray, send_counts: Sequence[int], receive: numpy.ndarray, receive_counts: Sequence[int]
    ) -> None:
        """Send each rank its part and receive one of each."""
        sent, received = _bytes(send), _bytes(receive)
        out = [count * send.itemsize for count in send_counts]
        back = [count * receive.itemsize for count in receive_counts]
        self._group.run(lambda group: group.alltoall_base(received, sent, back, out))

    def allgatherv(self, send: numpy.ndarray, receive: numpy.ndarray, counts: Sequence[int]) -> None:
        """Gather the parts of all ranks on all of them.

        Each sends its own to every other one by one collective call, for which alone a waiting rank can be interrupted:
        gloo closes a connection on which it has waited for a message of its own kind until a time-out.
        """
        sent = numpy.tile(send.reshape(-1), self.size)
        self.alltoallv(sent, [send.size] * self.size, receive, counts)

    def gather(self, value: T) -> list[T] | None:
        """Return the values of all ranks on rank 0."""
        values = self.allgather(value)
        return values if self.rank == 0 else None

    def allgather(self, value: T) -> list[T]:
        """Return the (pickled) values of all ranks."""
        own = numpy.frombuffer(bytearray(pickle.dumps(value)), numpy.uint8)
        lengths = numpy.zeros(self.size, numpy.int64)
        lengths[self.rank] = own.size
        self.allreduce(lengths)
        contents = numpy.empty(int(lengths.sum()), numpy.uint8)
        self.allgatherv(own, contents, lengths.tolist())
        ends = numpy.cumsum(lengths).tolist()
        return [
            pickle.loads(contents[end - length : end].tobytes())
            for end, length in zip(ends, lengths.tolist(), strict=True)
        ]

    def broadcast_object(self, value: T, root: int = 0) -> T:
        """Return the root's (pickled) value."""
        message = bytearray(pickle.dumps(value)) if self.rank == root else bytearray()
        length = torch.tensor([len(message)])
        self._broadcast(length, root)
        content = numpy.frombuffer(message, numpy.uint8) if message else numpy.empty(int(length), numpy.uint8)
        self._broadcast(torch.from_numpy(content), root)
        return value if self.rank == root else pickle.loads(content.tobytes())

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._group.run(lambda group: group.barrier())

    def send(self, buffer: Any, to: int, tag: int = 0) -> None:
        """Send a rank a buffer; returns when it is on its way."""
        self.start_send(buffer, to, tag).wait()

    def start_send(self, buffer: Any, to: int, tag: int = 0) -> SocketSending:
        """Send a rank a buffer without waiting."""
        return self._messages.start_send(buffer, to, tag)

    def receive(self, buffer: Any, source: int, tag: int = 0) -> None:
        """Fill a buffer by a rank's next message."""
        self._messages.receive(buffer, source, tag)

    def receive_any(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Message | None:
        """Return the next message."""
        return self._messages.receive_any(source, tag, patience_s)

    def probe(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Envelope | None:
        """Return what the next message is."""
        return self._messages.probe(source, tag, patience_s)

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that are gone, as far as that is tolerated and was noticed."""
        return self._messages.lost

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Let messages go on when one of these ranks is gone."""
        self._messages.tolerate(ranks)

    def shrink(self) -> None:
        """Do nothing: collective calls without a rank that is gone are not possible."""

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Exchange messages through the store, until `patience_s` is over or another rank has given up."""
        return self._group.guarded(lambda: self._meetings.meet(message, patience_s))

    def duplicate(self, waiting: Waiting | None = None) -> ProcessGroupCommunicator:
        """Return the same ranks on a gloo group of their own."""
        return self._made(self.new_place(), self._hosts)

    def new_place(self) -> StorePlace:
        """Return the same ranks' place with keys of their own, for another group of any backend; alike on all ranks."""
        return self.place.part(f"{next(self._children)}", range(self.size))

    def split(self, color: int | None) -> ProcessGroupCommunicator | None:
        """Return the ranks of the same number on a gloo group of their own."""
        colors, number = self.allgather(color), next(self._children)
        if color is None:
            return None
        members = [rank for rank, theirs in enumerate(colors) if theirs == color]
        return self._made(self.place.part(f"{number}, {color}", members), [self._hosts[rank] for rank in members])

    def set_busy_polling(self, enabled: bool) -> None:
        """Do nothing: gloo's threads wake the one that waits."""

    def set_waiting(self, waiting: Waiting) -> None:
        """Let so many all-reduces that are started from now on travel at a time."""
        if waiting.at_once not in self._groups:
            self._groups[waiting.at_once] = GlooGroup(self.new_place(), self._timeout_s, waiting.at_once)
        self._starting = self._groups[waiting.at_once]

    def abort(self, code: int) -> NoReturn:
        """End this process; the others' calls fail then, and the launcher ends them."""
        os._exit(code)

    def close(self) -> None:
        """Give up the group; its connections are closed once all ranks have given it up."""
        for group in self._groups.values():
            group.close()
        self._messages.close()

    def _made(self, place: StorePlace, hosts: Sequence[str]) -> ProcessGroupCommunicator:
        made = object.__new__(ProcessGroupCommunicator)
        made._begin(place, self._timeout_s)
        made._take_hosts(hosts)
        made._connect(self.connections)
        return made

    def _broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = root
        self._group.run(lambda group: group.broadcast([tensor], options))


def _tensor(array: numpy.ndarray) -> torch.Tensor:
    """Return a tensor over the same memory, of a type that gloo adds up.

    Raises:
        CommError: gloo adds up no numbers of this type.
    """
    if array.dtype.name not in ("float32", "float64", "int8", "uint8", "int32", "int64"):
        raise CommError(f"gloo cannot reduce buffers of type {array.dtype}")
    return torch.from_numpy(array)


def _bytes(array: numpy.ndarray) -> torch.Tensor:
    """Return a tensor of the array's bytes over the same memory, which gloo sends whatever they mean."""
    return torch.from_numpy(array.reshape(-1).view(numpy.uint8))
