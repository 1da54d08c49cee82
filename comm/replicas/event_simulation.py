"""Simulates the rounds of replicas kept together, event by event, where `prediction.py` has no formula, or to check it.

A trainer works until its next round (k iterations in the foreground, nothing in the background: there the shadow thread
goes from round to round), and arrives. In a group the last one to arrive starts the round; servers answer in the order
of arrival. Times of iterations are drawn by chance, always the same ones.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from statistics import fmean

import numpy

from mgcaffe.comm.replicas.groups import group_of
from mgcaffe.comm.replicas.prediction import Prediction, alone, in_background, in_foreground
from mgcaffe.comm.replicas.workload import BACKGROUND, CollectiveRounds, Exchange, ServedRounds, Training

MAX_EVENTS = 20_000
"""The rounds of all trainers together that are simulated, a quarter of them to get going."""
_LEAST_ROUNDS = 40


def simulate_events(
    sync: str,
    trainers: int,
    training: Training,
    exchange: Exchange,
    *,
    every: int | None = None,
    interval_s: float = 0.0,
    events: int = MAX_EVENTS,
    seed: int = 1,
) -> Prediction:
    """Return what so many trainers come to; for the arguments and errors see `prediction.predict`.

    Args:
        sync, trainers, training, exchange, every, interval_s: as there.
        events: about how many rounds, added up over the trainers.
        seed: of the times drawn.
    """
    rounds = exchange.rounds(sync, trainers)
    if rounds is None:
        return alone(sync, trainers, training, every)
    count = max(_LEAST_ROUNDS, events // trainers)
    in_front = sync not in BACKGROUND
    work = _work(trainers, count, every if in_front else None, training, seed)
    topology = _Servers(rounds) if isinstance(rounds, ServedRounds) else _Groups(rounds, trainers)
    left = _run(topology, work, 0.0 if in_front else interval_s)
    # What each has done since a quarter of the rounds, when waiting times have settled.
    start = count // 4
    per_s = sum((len(times) - 1 - start) / (times[-1] - times[start]) for times in left if len(times) > start + 1)
    if in_front:
        assert every is not None
        settled = topology.taken[len(topology.taken) // 4 :] if isinstance(topology, _Servers) else []
        taken = fmean(settled) if settled else rounds.mean_s(trainers)
        found = in_foreground(sync, trainers, training, exchange, every, rounds_per_s=per_s, round_s=taken)
    else:
        found = in_background(sync, trainers, training, exchange, trainers / per_s)
    return replace(found, is_simulated=True)


def _work(trainers: int, count: int, every: int | None, training: Training, seed: int) -> numpy.ndarray:
    """Return the seconds that each trainer works before each round; the first one is the straggler."""
    if every is None:
        return numpy.zeros((trainers, count))
    work = numpy.full((trainers, count), every * training.step_s)
    if training.spread > 0:
        shape = every / training.spread**2  # of a sum of so many times of iterations
        work *= numpy.random.default_rng(seed).gamma(shape, 1 / shape, work.shape)
    work[0] += every * (training.straggler_step_s - training.step_s)
    return work


def _run(topology: _Servers | _Groups, work: numpy.ndarray, interval_s: float) -> list[list[float]]:
    """Return for each trainer when it left each round, until one of them has done all of its work."""
    trainers, count = work.shape
    seconds = work.tolist()
    left: list[list[float]] = [[] for _ in range(trainers)]
    arrivals = [(seconds[trainer][0], trainer) for trainer in range(trainers)]
    heapq.heapify(arrivals)
    while arrivals:
        now, trainer = heapq.heappop(arrivals)
        for member, end in topology.arrive(now, trainer, len(left[trainer])):
            left[member].append(end)
            number = len(left[member])
            if number == count:
                return left
            earliest = now + interval_s if interval_s else 0.0
            heapq.heappush(arrivals, (max(end + seconds[member][number], earliest), member))
    return left


class _Servers:
    """Servers that answer in the order of arrival.

    Attributes:
        taken: the seconds of each round so far.
    """

    def __init__(self, rounds: ServedRounds) -> None:
        self.taken: list[float] = []
        self._rounds = rounds
        self._free_at = 0.0

    def arrive(self, now: float, trainer: int, number: int) -> list[tuple[int, float]]:
        """Return who goes on when: the trainer, when it has been served."""
        self._free_at = max(now, self._free_at) + self._rounds.service_s
        end = self._free_at + self._rounds.exchange_s - self._rounds.service_s
        self.taken.append(end - now)
        return [(trainer, end)]


class _Groups:
    """Groups that wait for the last of them."""

    def __init__(self, rounds: CollectiveRounds, trainers: int) -> None:
        self._seconds = rounds.seconds
        # The members' list of each trainer's group, one list for all of them, by the number of the round in a period.
        self._members: list[list[list[int]]] = []
        for digit in range(len(rounds.sizes)):
            lists: dict[int, list[int]] = {}
            for trainer in range(trainers):
                members = group_of(trainer, digit, list(rounds.sizes))
                lists.setdefault(members[0], members)
            firsts = {member: first for first, members in lists.items() for member in members}
            self._members.append([lists[firsts[trainer]] for trainer in range(trainers)])
        self._arrived: dict[tuple[int, int], int] = {}

    def arrive(self, now: float, trainer: int, number: int) -> list[tuple[int, float]]:
        """Return who goes on when: nobody, or the whole group."""
        digit = number % len(self._members)
        members = self._members[digit][trainer]
        group = number, members[0]
        self._arrived[group] = self._arrived.get(group, 0) + 1
        if self._arrived[group] < len(members):
            return []
        del self._arrived[group]
        return [(member, now + self._seconds[digit]) for member in members]
