"""Which of several plans is fastest: real iterations with each in turn, so that drift misleads nobody.

In a first stage every candidate runs a few iterations, one after the other, every round in another order. Those
that are behind the fastest by more than noise drop out; the others run a second stage, together with plans that were
only found in the light of the first (`revise`). What counts of an iteration is the slowest rank's time, and of two
plans the median of their differences in the same rounds: what slows a whole round down slows both. Who is level with
the fastest in their best iterations stays for the second stage, too, which the best five run. Where iterations take
seconds, a stage has fewer rounds: they vary less, and training by a bad plan costs more. Where they take
milliseconds, the second stage has more: they vary more.

A plan that overlaps the forward pass takes two iterations a turn: the forward pass of the second one finds the groups
of the first on their way.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.comm.tuning.candidates import Candidate

FIRST_ROUNDS = 4
SECOND_ROUNDS = 6
MOST_SECOND_ROUNDS = 20
MOST_SURVIVORS = 5
STAGE_SECONDS = (60.0, 180.0)
"""How long the first and the second stage may take, by prediction, if they have more than one round. In the second one
all plans are about as good as the best: nothing is lost but the knowledge of which to keep."""
MORE_ROUNDS_SECONDS = 5.0
"""How long a second stage of more than `SECOND_ROUNDS` rounds may take, by prediction."""
_LEAST_NOISE = 0.005
_NOISE_OF_ONE = 0.05
"""By which a plan may be behind after a single round, which tells nothing of the noise, and still run on."""


@dataclass(frozen=True)
class Trial:
    """What came of a candidate.

    Attributes:
        candidate: the plan.
        seconds: of each of its iterations, on the slowest rank: the backward pass, and what is waited for
            communication then or in the next forward pass.
        exposed: the median seconds that the computing thread waited.
        uncertainty: the seconds by which that median may be off, going by how the iterations scatter.
    """

    candidate: Candidate
    seconds: tuple[float, ...]
    exposed: float
    uncertainty: float = 0.0

    @property
    def median(self) -> float:
        """Of the seconds."""
        return statistics.median(self.seconds)


class Trials:
    """Says whose turn it is, and in the end who has won; every rank has its own and all do the same.

    Args:
        candidates: at least one.

    Attributes:
        is_over: whether all turns have been taken; then `results` may be asked for.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = list(candidates)
        self._times: list[list[tuple[float, float]]] = [[] for _ in candidates]
        self._survivors = list(range(len(candidates)))
        self._second_stage = False
        self._order: list[int] = []
        self._begin_stage()
        self.is_over = len(self._candidates) == 1

    @property
    def current(self) -> Candidate:
        """Whose turn it is."""
        return self._candidates[self._order[0]]

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All of them, those that dropped out as well."""
        return self._candidates

    @property
    def is_last_stage(self) -> bool:
        """Whether no other stage follows the present one."""
        return self._second_stage

    @property
    def stage_is_over(self) -> bool:
        """Whether the ranks have to agree on the times (`agree`) before anybody has a turn."""
        return not self._order

    def record(self, seconds: float, exposed: float) -> None:
        """Note the current candidate's iteration, as this rank saw it."""
        self._times[self._order.pop(0)].append((seconds, exposed))
        if not self._order:
            self._rounds_left -= 1
            if self._rounds_left:
                self._order = self._rotated()

    def local_times(self) -> list[float]:
        """Return all that was recorded, to be replaced by the maximum over the ranks."""
        return [value for times in self._times for pair in times for value in pair]

    def agree(self, times: Sequence[float]) -> None:
        """Take the maxima over the ranks of `local_times`, and begin the second stage or end."""
        values = iter(times)
        self._times = [[(next(values), next(values)) for _ in recorded] for recorded in self._times]
        if self._second_stage:
            self.is_over = True
            return
        level = [i for i in self._survivors if self._ties(i) or self._is_level_at_best(i)]
        self._survivors = sorted(sorted(level, key=self._median)[:MOST_SURVIVORS])
        self._second_stage = True
        self._begin_stage()
        self.is_over = len(self._survivors) == 1

    def revise(self, candidates: Sequence[Candidate], added: Sequence[Candidate] = ()) -> None:
        """Predict anew in the light of a stage that is over; before anybody has a turn in the next.

        Args:
            candidates: those that there are, in the same order, with other predictions.
            added: plans that nobody had thought of; they run in the second stage.
        """
        self._candidates = [*candidates, *added]
        self._times += [[] for _ in added]
        if added:
            self._survivors += range(len(candidates), len(self._candidates))
            self._begin_stage()
            self.is_over = False

    def results(self) -> list[Trial]:
        """Return all trials, the chosen one first, then by their medians.

        Chosen is the one with the least median. One with fewer groups takes its place if it is within 0.5 % of it, by
        its prediction as well.
        """
        trials = [self._trial(index) for index in range(len(self._candidates))]
        if not trials[0].seconds:
            return trials
        near = [index for index in self._survivors if self._is_level_with(self._fastest(), index)]
        winner = min(near, key=lambda i: (len(self._candidates[i].plan.groups), self._candidates[i].predicted))
        rest = sorted((trial for i, trial in enumerate(trials) if i != winner), key=lambda trial: trial.median)
        return [trials[winner], *rest]

    def _begin_stage(self) -> None:
        one_round = max(sum(_turn_s(self._candidates[index]) for index in self._survivors), 1e-9)
        most = FIRST_ROUNDS
        if self._second_stage:
            most = min(max(SECOND_ROUNDS, int(MORE_ROUNDS_SECONDS / one_round)), MOST_SECOND_ROUNDS)
        affordable = int(STAGE_SECONDS[self._second_stage] / one_round)
        self._rounds = self._rounds_left = max(1, min(most, affordable))
        self._order = list(self._survivors)

    def _rotated(self) -> list[int]:
        """Everybody comes first, and comes after everybody, in turn."""
        done = self._rounds - self._rounds_left
        shift = done // 2 % len(self._survivors)
        order = self._survivors[shift:] + self._survivors[:shift]
        return order[::-1] if done % 2 else order

    def _trial(self, index: int) -> Trial:
        times = self._times[index]
        if index in self._survivors:
            # What the choice rests on: the rounds that all who are left have run.
            times = times[-self._common_rounds() :]
        exposed = [waited for _, waited in times] or [0.0]
        return Trial(
            self._candidates[index],
            tuple(seconds for seconds, _ in times),
            statistics.median(exposed),
            _uncertainty(exposed),
        )

    def _fastest(self) -> int:
        return min(self._survivors, key=self._median)

    def _is_level_with(self, fastest: int, index: int) -> bool:
        """Return whether neither what was measured nor what is predicted tells two candidates apart."""
        one, other = self._candidates[fastest], self._candidates[index]
        return (
            self._median(index) <= (1 + _LEAST_NOISE) * self._median(fastest)
            and other.predicted <= (1 + _LEAST_NOISE) * one.predicted
        )

    def _median(self, index: int) -> float:
        return statistics.median(self._seconds(index))

    def _seconds(self, index: int) -> list[float]:
        """Return a candidate's times in the rounds that all who are left have run."""
        return [seconds for seconds, _ in self._times[index][-self._common_rounds() :]]

    def _common_rounds(self) -> int:
        return min(len(self._times[each]) for each in self._survivors)

    def _ties(self, index: int) -> bool:
        """Return whether a candidate is behind the fastest by no more than noise."""
        best = self._seconds(self._fastest())
        differences = [seconds - other for seconds, other in zip(self._seconds(index), best, strict=True)]
        least = _NOISE_OF_ONE if len(differences) == 1 else _LEAST_NOISE
        return statistics.median(differences) <= max(_uncertainty(differences), least * statistics.median(best))

    def _is_level_at_best(self, index: int) -> bool:
        """Return whether a candidate's best iteration is about the fastest's.

        Whatever else the machine does only adds time, in bursts that may last for most of the first stage.
        """
        mine, best = (min(seconds for seconds, _ in self._times[i]) for i in (index, self._fastest()))
        return mine <= (1 + _LEAST_NOISE) * best


def _uncertainty(values: Sequence[float]) -> float:
    """Return twice the standard error of the values' median: of n that scatter normally, 1.25 deviations / sqrt(n)."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(2 * 1.25 * deviation / len(values) ** 0.5)


def _turn_s(candidate: Candidate) -> float:
    """Return the predicted seconds of a candidate's turn."""
    return candidate.predicted * (2 if candidate.plan.overlaps_forward else 1)
