"""Contests with candidates whose times are made up."""

import logging
from typing import NamedTuple

import pytest
import torch

from mgcaffe.engine.kernels.choice import contest as contests
from mgcaffe.engine.kernels.choice.choices import Measured, Recorded
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation


class Call(NamedTuple):
    x: torch.Tensor


class AddingCall(NamedTuple):
    total: torch.Tensor
    beta: float
    x: torch.Tensor


class Clock:
    """Stands still but for what candidates say they take; `runs` counts theirs."""

    def __init__(self):
        self.now, self.runs = 0.0, {}

    def candidate(self, name, seconds, run, serves=lambda call: True):
        def timed(call):
            self.now += seconds
            self.runs[name] = self.runs.get(name, 0) + 1
            return run(call)

        return Candidate(name, serves, timed)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(contests.time, "perf_counter", lambda: clock.now)
    return clock


def doubled(call):
    return call.x * 2


def operation(candidates, **options):
    return Operation("doubling", candidates, lambda call: "rule", lambda call: (call.x.shape,), ("x",), **options)


def test_the_fastest_is_kept_and_the_rule_unless_another_is_clearly_faster(clock):
    for seconds, chosen in ((0.5, "other"), (0.99, "rule"), (1.2, "rule")):
        doubling = operation([clock.candidate("rule", 1.0, doubled), clock.candidate("other", seconds, doubled)])
        contest = Contest({})
        result = contest.run(doubling, Call(torch.ones(3)))
        assert torch.equal(result, torch.full((3,), 2.0))
        (text,) = contest.met
        assert text == "doubling: x 3"
        measured = contest.records[text]
        assert (measured.rule, measured.chosen) == ("rule", chosen)
        assert dict(measured.seconds) == pytest.approx({"rule": 1.0, "other": seconds})
        assert measured.saved_s == pytest.approx(0.5 if chosen == "other" else 0.0)


def test_what_is_known_is_not_measured_again(clock):
    doubling = operation([clock.candidate("rule", 1.0, doubled), clock.candidate("other", 0.5, doubled)])
    contest = Contest({})
    for _ in range(3):
        contest.run(doubling, Call(torch.ones(3)))
    assert contest.measured == 1
    again = Contest(contest.records)
    runs = dict(clock.runs)
    again.run(doubling, Call(torch.ones(3)))
    assert again.measured == 0
    assert again.met == ["doubling: x 3"]
    # What the net will not use leaves no primitive in a library's cache.
    assert clock.runs == {**runs, "other": runs["other"] + 1}
    again.run(doubling, Call(torch.ones(4)))
    assert again.measured == 1


def test_what_was_measured_without_a_candidate_that_there_is_now_is_measured_again(clock):
    candidates = [clock.candidate("rule", 1.0, doubled), clock.candidate("wrong", 0.1, lambda call: call.x)]
    call = Call(torch.ones(3))
    former = Contest({})
    former.run(operation(candidates), call)
    again = Contest(former.records)
    again.run(operation(candidates), call)
    assert again.measured == 0
    with_new = operation([*candidates, clock.candidate("new", 0.5, doubled)])
    again.run(with_new, call)
    assert again.measured == 1
    assert again.records["doubling: x 3"].chosen == "new"
    again.run(with_new, call)
    # One that is gone is not measured again while it was not the fastest.
    again.run(operation([candidates[0], clock.candidate("new", 0.5, doubled)]), call)
    assert again.measured == 1
    again.run(operation(candidates), call)
    assert again.measured == 2


def test_one_that_is_far_behind_runs_once_more_only_and_one_that_does_not_serve_never(clock):
    doubling = operation(
        [
            clock.candidate("slow", 1.6, doubled),
            clock.candidate("rule", 1.0, doubled),
            clock.candidate("unfit", 0.1, doubled, serves=lambda call: False),
        ]
    )
    contest = Contest({})
    contest.run(doubling, Call(torch.ones(3)))
    assert clock.runs["slow"] == 3
    assert "unfit" not in clock.runs
    assert set(contest.records["doubling: x 3"].seconds) == {"slow", "rule"}


def test_one_that_another_program_slows_down_once_takes_part(clock):
    disturbed = clock.candidate("disturbed", 0.5, doubled)

    def run(call):
        if clock.runs.get("disturbed") == 1:  # the run that counts first
            clock.now += 3
        return disturbed.run(call)

    doubling = operation([clock.candidate("rule", 1.0, doubled), Candidate("disturbed", disturbed.serves, run)])
    contest = Contest({})
    contest.run(doubling, Call(torch.ones(3)))
    assert contest.records["doubling: x 3"].chosen == "disturbed"


def test_those_that_are_close_run_in_turns_and_the_least_time_counts(clock):
    other = clock.candidate("other", 0.5, doubled)

    def run(call):
        if clock.runs.get("other", 0) < 2:  # in the runs before the turns
            clock.now += 0.7
        return other.run(call)

    doubling = operation([clock.candidate("rule", 1.0, doubled), Candidate("other", other.serves, run)])
    contest = Contest({})
    contest.run(doubling, Call(torch.ones(3)))
    assert contest.records["doubling: x 3"].chosen == "other"
    assert contest.records["doubling: x 3"].seconds == pytest.approx({"rule": 1.0, "other": 0.5})
    assert clock.runs == {"rule": 2 + 3, "other": 2 + 3 + 1}  # the last time for the caller


def test_one_that_is_hopeless_runs_once(clock):
    doubling = operation([clock.candidate("rule", 1.0, doubled), clock.candidate("hopeless", 5.1, doubled)])
    contest = Contest({})
    contest.run(doubling, Call(torch.ones(3)))
    assert clock.runs["hopeless"] == 1
    assert contest.records["doubling: x 3"].seconds["hopeless"] == pytest.approx(5.1)


@pytest.mark.parametrize("wrong", [2.001, float("nan"), float("inf")])
def test_one_that_disagrees_is_dropped_loudly(clock, caplog, wrong):
    doubling = operation(
        [clock.candidate("rule", 1.0, doubled), clock.candidate("hasty", 0.1, lambda call: call.x * wrong)]
    )
    contest = Contest({})
    contest.layer = "layer 'conv1'"
    with caplog.at_level(logging.WARNING):
        contest.run(doubling, Call(torch.arange(3.0)))
    (record,) = caplog.records
    for word in ("layer 'conv1'", "'hasty' differs from 'rule'", "doubling: x 3"):
        assert word in record.getMessage()
    measured = contest.records["doubling: x 3"]
    assert measured.chosen == "rule"
    assert set(measured.seconds) == {"rule"}
    assert measured.unfit == {"hasty"}
    # What differs by rounding alone stays.
    close = operation(
        [clock.candidate("rule", 1.0, doubled), clock.candidate("near", 0.1, lambda call: call.x * 2.00001)]
    )
    contest = Contest({})
    contest.run(close, Call(torch.arange(3.0)))
    assert contest.records["doubling: x 3"].chosen == "near"


def test_one_that_rounds_more_takes_part_where_a_bound_is_given_and_is_dropped_beyond_it_in_silence(clock, caplog):
    def rough(error):
        exact = clock.candidate("rough", 0.1, lambda call: call.x * 2 * (1 + error))
        return Candidate(exact.name, exact.serves, exact.run, rounds_more=True)

    call = Call(torch.arange(3.0))
    for bound, error, chosen, text in (
        (0.0, 1e-6, "rule", "doubling: x 3"),
        (1e-5, 1e-6, "rough", "doubling: x 3, rounding within 1e-05"),
        (1e-5, 3e-5, "rule", "doubling: x 3, rounding within 1e-05"),
        (1e-4, 3e-5, "rough", "doubling: x 3, rounding within 0.0001"),
        (1e-2, 2e-4, "rule", "doubling: x 3, rounding within 0.01"),  # the bound of all others holds too
    ):
        doubling = operation([clock.candidate("rule", 1.0, doubled), rough(error)])
        contest = Contest({}, bound)
        with caplog.at_level(logging.INFO):
            contest.run(doubling, call)
        assert {text: each.chosen for text, each in contest.records.items()} == {text: chosen}
        expected = doubled(call) * (1 + error) if chosen == "rough" else doubled(call)
        torch.testing.assert_close(Recorded(contest.records, bound).run(doubling, call), expected, rtol=1e-7, atol=0)
        # Under another bound it is as if nothing had been measured.
        assert torch.equal(Recorded(contest.records, bound + 1).run(doubling, call), doubled(call))
    assert not caplog.records


def test_a_record_that_names_one_that_rounds_more_is_passed_over_without_a_bound(clock):
    rough = Candidate("rough", lambda call: True, lambda call: call.x * 3, rounds_more=True)
    doubling, call = operation([clock.candidate("rule", 1.0, doubled), rough]), Call(torch.arange(3.0))
    edited = {"doubling: x 3": Measured("rule", "rough", {"rule": 1.0, "rough": 0.1})}
    assert torch.equal(Recorded(edited).run(doubling, call), doubled(call))
    contest = Contest(edited)
    contest.run(doubling, call)
    assert contest.records["doubling: x 3"].chosen == "rule"


def test_one_that_fails_is_dropped_loudly(clock, caplog):
    def fail(call):
        raise RuntimeError("out of memory")

    doubling = operation([clock.candidate("rule", 1.0, doubled), clock.candidate("greedy", 0.1, fail)])
    contest = Contest({})
    with caplog.at_level(logging.WARNING):
        contest.run(doubling, Call(torch.ones(3)))
    assert "candidate 'greedy' is not used, it fails: out of memory (doubling: x 3)" in caplog.text
    assert contest.records["doubling: x 3"].chosen == "rule"


def test_sums_are_measured_apart_from_the_caller_s_total(clock):
    def add(call):
        if call.beta:
            call.total.mul_(call.beta).add_(call.x)
        else:
            call.total.copy_(call.x)

    adding = operation([clock.candidate("rule", 1.0, add), clock.candidate("other", 0.5, add)], accumulates=True)
    for beta, expected in ((1.0, 5.0), (0.0, 4.0)):
        total = torch.ones(3)
        contest = Contest({})
        contest.run(adding, AddingCall(total, beta, torch.full((3,), 4.0)))
        assert torch.equal(total, torch.full((3,), expected))
    assert contest.records["doubling: x 3"].chosen == "other"


def test_no_candidate_is_the_first_to_write_to_a_total(clock):
    """It would be timed with the kernel's work for every new page, and could be taken for hopeless."""
    seen = []

    def add(call):
        seen.append(call.total.clone())
        call.total.copy_(call.x)

    adding = operation([clock.candidate("rule", 1.0, add), clock.candidate("other", 0.5, add)], accumulates=True)
    Contest({}).run(adding, AddingCall(torch.full((3,), float("nan")), 0.0, torch.ones(3)))
    assert torch.stack(seen).isfinite().all()
