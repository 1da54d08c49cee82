"""Compare several plans in real iterations, interleaved to cancel drift.

In a first stage every candidate runs a few iterations, one after the other, every round in another order. Those
that are behind the fastest by more than noise drop out; the others run a second stage, together with plans that were
only found with what the first stage showed (`revise`). What counts of an iteration is the slowest rank's time, and of
two plans the median of their differences in the same rounds: what slows a whole round down slows both. A plan that is
level with the fastest in its best iteration runs the second stage, too; at most five plans do. Where iterations take
seconds, a stage has fewer rounds: they vary less, and training by a bad plan costs more. Where they take
milliseconds, a stage has more: they vary more.

A plan that overlaps the forward pass takes two iterations a turn: the forward pass of the second one finds the groups
of the first on their way.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.comm.tuning.candidates import Candidate

FIRST_ROUNDS = 4
MAX_FIRST_ROUNDS = 8
SECOND_ROUNDS = 6
MAX_SECOND_ROUNDS = 20
MAX_SURVIVORS = 5
"""How many of the first stage's candidates run the second one, at most."""
FIRST_STAGE_SECONDS = 60.0
SECOND_STAGE_SECONDS = 180.0
"""How long the stages may take, by prediction, if they have more than one round. In the second one all plans are about
as good as the best: nothing is lost but the knowledge of which to keep."""
MORE_ROUNDS_SECONDS = 5.0
"""How long a stage of more than `FIRST_ROUNDS` or `SECOND_ROUNDS` rounds may take, by prediction."""
_MIN_NOISE = 0.005
"""The relative difference of two plans that is never more than noise."""
_NOISE_OF_ONE_ROUND = 0.05
"""The same after a single round, whose noise is unknown."""


@dataclass(frozen=True)
class Trial:
    """What was measured of a candidate.

    Attributes:
        candidate: the plan.
        seconds: of each of its iterations, on the slowest rank: the backward pass, and what is waited for
            communication then or in the next forward pass.
        exposed: the median seconds that the computing thread waited.
        uncertainty: the seconds by which that median may be off, judged by how the iterations scatter.
    """

    candidate: Candidate
    seconds: tuple[float, ...]
    exposed: float
    uncertainty: float = 0.0

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)


@dataclass
class _Record:
    """A candidate and its iterations so far: seconds, and of these the seconds waited for communication."""

    candidate: Candidate
    seconds: list[float]
    exposed: list[float]


class Trials:
    """Choose whose turn it is, and in the end the fastest; every rank has its own object, and all do the same.

    Args:
        candidates: at least one; the index of a candidate names it.
        second_stage: whether there is a second stage.

    Attributes:
        is_over: whether all turns have been taken; then `results` may be asked for.
    """

    def __init__(self, candidates: Sequence[Candidate], *, second_stage: bool = True) -> None:
        self._records = [_Record(candidate, [], []) for candidate in candidates]
        self._survivors = list(range(len(candidates)))
        self._has_second_stage = second_stage
        self._is_second_stage = False
        self._turns = self._new_turns()
        self.is_over = len(candidates) == 1

    @property
    def current(self) -> Candidate:
        """The candidate whose turn it is."""
        return self._records[self._turns.current].candidate

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All of them, those that dropped out as well."""
        return [record.candidate for record in self._records]

    @property
    def is_last_stage(self) -> bool:
        """Whether no other stage follows the present one."""
        return self._is_second_stage or not self._has_second_stage

    @property
    def stage_is_over(self) -> bool:
        """Whether the ranks have to agree on the times (`agree`) before the next turn."""
        return self._turns.are_over

    def record(self, seconds: float, exposed: float) -> None:
        """Record the current candidate's iteration, as this rank saw it."""
        record = self._records[self._turns.current]
        record.seconds.append(seconds)
        record.exposed.append(exposed)
        self._turns.end_turn()

    def local_times(self) -> list[float]:
        """Return all that was recorded, to be replaced by the maximum over the ranks."""
        pairs = [pair for record in self._records for pair in zip(record.seconds, record.exposed, strict=True)]
        return [value for pair in pairs for value in pair]

    def agree(self, times: Sequence[float]) -> None:
        """Take the maxima over the ranks of `local_times`, and begin the second stage or end."""
        values = iter(times)
        for record in self._records:
            for iteration in range(len(record.seconds)):
                record.seconds[iteration], record.exposed[iteration] = next(values), next(values)
        if self.is_last_stage:
            self.is_over = True
            return
        level = [index for index in self._survivors if self._may_be_fastest(index)]
        self._survivors = sorted(sorted(level, key=self._median)[:MAX_SURVIVORS])
        self._begin_second_stage()
        self.is_over = len(self._survivors) == 1

    def revise(self, candidates: Sequence[Candidate], added: Sequence[Candidate] = ()) -> None:
        """Predict again with what a stage showed; after `agree`, before the first turn of the next stage.

        Args:
            candidates: all there are, in the same order, with other predictions.
            added: new plans; they run in the second stage.
        """
        for record, candidate in zip(self._records, candidates, strict=True):
            record.candidate = candidate
        self._records += [_Record(candidate, [], []) for candidate in added]
        if added:
            self._survivors += range(len(candidates), len(self._records))
            self._begin_second_stage()
            self.is_over = False

    def results(self) -> list[Trial]:
        """Return all trials, the chosen one first, then by their medians.

        The one with the least median is chosen. One with fewer groups takes its place if it is within 0.5 % of it, by
        its prediction as well.
        """
        trials = [self._trial(index) for index in range(len(self._records))]
        if not trials[0].seconds:
            return trials
        near = [index for index in self._survivors if self._is_level_with_fastest(index)]
        winner = min(near, key=lambda index: self._groups_and_prediction(index))
        rest = sorted((trial for index, trial in enumerate(trials) if index != winner), key=lambda trial: trial.median)
        return [trials[winner], *rest]

    def _begin_second_stage(self) -> None:
        self._is_second_stage = True
        self._turns = self._new_turns()

    def _new_turns(self) -> _Turns:
        round_s = max(sum(_turn_s(self._records[index].candidate) for index in self._survivors), 1e-9)
        rounds = _second_stage_rounds(round_s) if self._is_second_stage else _first_stage_rounds(round_s)
        return _Turns(self._survivors, rounds)

    def _trial(self, index: int) -> Trial:
        record = self._records[index]
        # Of those that are left, the choice rests on the rounds that all of them have run.
        start = -self._common_rounds() if index in self._survivors else 0
        exposed = record.exposed[start:] or [0.0]
        return Trial(record.candidate, tuple(record.seconds[start:]), statistics.median(exposed), _uncertainty(exposed))

    def _seconds(self, index: int) -> list[float]:
        """Return a candidate's times in the rounds that all that are left have run."""
        return self._records[index].seconds[-self._common_rounds() :]

    def _common_rounds(self) -> int:
        return min(len(self._records[index].seconds) for index in self._survivors)

    def _median(self, index: int) -> float:
        return statistics.median(self._seconds(index))

    def _fastest(self) -> int:
        return min(self._survivors, key=self._median)

    def _groups_and_prediction(self, index: int) -> tuple[int, float]:
        candidate = self._records[index].candidate
        return len(candidate.plan.groups), candidate.predicted

    def _is_level_with_fastest(self, index: int) -> bool:
        """Return whether a candidate can't be distinguished from the fastest by measurement or prediction."""
        fastest = self._fastest()
        one, other = self._records[fastest].candidate, self._records[index].candidate
        return (
            self._median(index) <= (1 + _MIN_NOISE) * self._median(fastest)
            and other.predicted <= (1 + _MIN_NOISE) * one.predicted
        )

    def _may_be_fastest(self, index: int) -> bool:
        """Return whether a candidate is behind the fastest by no more than noise, in the median or at its best.

        Whatever else the machine does only adds time, in bursts that may last for most of the first stage: so the best
        iterations are compared, too.
        """
        fastest = self._fastest()
        at_best = min(self._records[index].seconds), min(self._records[fastest].seconds)
        return _is_tie(self._seconds(index), self._seconds(fastest)) or at_best[0] <= (1 + _MIN_NOISE) * at_best[1]


class _Turns:
    """The turns of one stage: so many rounds, in each of which every candidate has one turn.

    Each candidate comes first in some rounds, and each comes after every other in some.
    """

    def __init__(self, candidates: Sequence[int], rounds: int) -> None:
        self._candidates = list(candidates)
        self._rounds = rounds
        self._rounds_done = 0
        self._left = list(candidates)

    @property
    def current(self) -> int:
        """The candidate whose turn it is."""
        return self._left[0]

    @property
    def are_over(self) -> bool:
        """Whether all turns have been taken."""
        return not self._left

    def end_turn(self) -> None:
        """Go on to the next turn."""
        del self._left[0]
        if not self._left:
            self._rounds_done += 1
            if self._rounds_done < self._rounds:
                self._left = self._rotated()

    def _rotated(self) -> list[int]:
        shift = self._rounds_done // 2 % len(self._candidates)
        order = self._candidates[shift:] + self._candidates[:shift]
        return order[::-1] if self._rounds_done % 2 else order


def _first_stage_rounds(round_s: float) -> int:
    """Return how many rounds of so many predicted seconds the first stage has."""
    wanted = min(max(FIRST_ROUNDS, int(MORE_ROUNDS_SECONDS / round_s)), MAX_FIRST_ROUNDS)
    return max(1, min(wanted, int(FIRST_STAGE_SECONDS / round_s)))


def _second_stage_rounds(round_s: float) -> int:
    """Return how many rounds of so many predicted seconds the second stage has."""
    wanted = min(max(SECOND_ROUNDS, int(MORE_ROUNDS_SECONDS / round_s)), MAX_SECOND_ROUNDS)
    return max(1, min(wanted, int(SECOND_STAGE_SECONDS / round_s)))


def _is_tie(seconds: Sequence[float], fastest: Sequence[float]) -> bool:
    """Return whether a candidate is behind the fastest by no more than noise, both measured in the same rounds."""
    differences = [mine - other for mine, other in zip(seconds, fastest, strict=True)]
    noise = _NOISE_OF_ONE_ROUND if len(differences) == 1 else _MIN_NOISE
    return statistics.median(differences) <= max(_uncertainty(differences), noise * statistics.median(fastest))


def _uncertainty(values: Sequence[float]) -> float:
    """Return twice the standard error of the values' median: of n that scatter normally, 1.25 deviations / sqrt(n)."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(2 * 1.25 * deviation / len(values) ** 0.5)


def _turn_s(candidate: Candidate) -> float:
    """Return the predicted seconds of a candidate's turn."""
    return candidate.predicted * (2 if candidate.plan.overlaps_forward else 1)
