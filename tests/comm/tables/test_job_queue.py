"""The queue from which a thread takes what others ask of it, while it looks for answers now and then."""

from __future__ import annotations

import queue
import threading
import time

import numpy
import pytest

from mgcaffe.comm.tables import client as client_module
from mgcaffe.comm.tables.job_queue import JobQueue
from mgcaffe.comm.tables.messages import Bags, Request
from tests.comm.tables.test_server import WHOLE, serve


def test_a_thread_that_is_held_up_while_it_begins_to_wait_does_not_wait_for_ever(monkeypatch):
    """A pause of no length at all is over before the thread sleeps, as a short one is on a busy machine."""
    monkeypatch.setattr(client_module, "_POLL_S", 1e-9)
    monkeypatch.setattr(client_module, "_SPIN_S", 0.0)

    def trainer(client, _):
        one = [Request(0, Bags(numpy.zeros(1, numpy.int64)), False)]
        for _ in range(2000):
            look_up = client.look_up(one)
            assert look_up.answered.wait(15), "the thread that communicates does not look for the answer"
        return client.figures

    figures, _ = serve(WHOLE, trainer)
    assert figures.look_ups == 2000


def test_jobs_come_in_their_order_from_any_thread_and_a_wait_ends_in_time():
    jobs: JobQueue[tuple[int, int]] = JobQueue()
    with pytest.raises(queue.Empty):
        jobs.get(0)
    began = time.monotonic()
    with pytest.raises(queue.Empty):
        jobs.get(0.02)
    assert time.monotonic() - began >= 0.02

    def put(number: int) -> None:
        for each in range(500):
            jobs.put((number, each))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    taken = [jobs.get(patience) for patience in (None, 5) * 1000]
    for thread in threads:
        thread.join()
    assert [[each for number, each in taken if number == n] for n in range(4)] == [list(range(500))] * 4
    with pytest.raises(queue.Empty):
        jobs.get(1e-9)
