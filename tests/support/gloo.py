"""Ranks over gloo as threads of one process: each has its own process group, which needs no global state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from mgcaffe.comm.transport.gloo_group import forget_groups
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.rendezvous import StorePlace
from mgcaffe.errors import PeerFailure

T = TypeVar("T")


def run_gloo_ranks(size: int, function: Callable[[ProcessGroupCommunicator], T], *, timeout_s: float = 20.0) -> list[T]:
    """Do as `threaded.run_ranks`, over gloo."""
    store = dist.HashStore()
    results: list[Any] = [None] * size
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            place = StorePlace(store, rank, size)
            results[rank] = function(ProcessGroupCommunicator(place=place, timeout_s=timeout_s))
        except BaseException as error:
            failures[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    forget_groups()
    causes = [failures[rank] for rank in sorted(failures) if not isinstance(failures[rank], PeerFailure)]
    if failures:
        raise (causes or list(failures.values()))[0]
    return results
