"""Ranks over gloo as threads of one process: each has its own process group, which needs no global state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from mgcaffe.comm.transport.gloo_group import forget_groups
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.rendezvous import StorePlace
from mgcaffe.comm.transport.threaded import ThreadedCommunicator
from mgcaffe.errors import PeerFailure

T = TypeVar("T")


def run_gloo_ranks(size: int, function: Callable[[ProcessGroupCommunicator], T], *, timeout_s: float = 20.0) -> list[T]:
    """Do as `threaded.run_ranks`, over gloo. A rank that raises loses its connections, as one whose process ends."""
    store = dist.HashStore()
    made: list[ProcessGroupCommunicator] = []
    results: list[Any] = [None] * size
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            ranks = ProcessGroupCommunicator(place=StorePlace(store, rank, size), timeout_s=timeout_s)
            made.append(ranks)
            try:
                results[rank] = function(ranks)
            except BaseException:
                ranks.connections.close()
                raise
        except BaseException as error:
            failures[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    forget_groups()
    for ranks in made:
        ranks.connections.close()
    causes = [failures[rank] for rank in sorted(failures) if not isinstance(failures[rank], PeerFailure)]
    if failures:
        raise (causes or list(failures.values()))[0]
    return results


def die(ranks: ThreadedCommunicator | ProcessGroupCommunicator) -> None:
    """Leave as a rank does that is killed."""
    if isinstance(ranks, ThreadedCommunicator):
        ranks.die()
    else:
        ranks.connections.close()
