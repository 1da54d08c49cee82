from collections import Counter
from dataclasses import replace

import pytest

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.tuning.candidates import Candidate
from mgcaffe.comm.tuning.trials import (
    FIRST_ROUNDS,
    MAX_FIRST_ROUNDS,
    MAX_SECOND_ROUNDS,
    MAX_SURVIVORS,
    SECOND_ROUNDS,
    Trials,
)


def candidate(label, groups, predicted):
    made = tuple(Group(i, i, i, 1, 4, 0.0, 0.0, predicted) for i in range(groups))
    return Candidate(label, Plan(label, groups, made, 0.0))


def run(candidates, seconds):
    """Run the trials with seconds(label, how many iterations there have been); returns them and the order."""
    trials = Trials(candidates)
    order = []
    while not trials.is_over:
        if trials.stage_is_over:
            trials.agree(trials.local_times())
            continue
        label = trials.current.label
        trials.record(seconds(label, len(order)), 0.25)
        order.append(label)
    return trials, order


def test_the_fastest_is_kept_whatever_was_predicted():
    candidates = [candidate("a", 3, 1.0), candidate("b", 2, 1.2), candidate("c", 1, 1.3)]
    trials, _ = run(candidates, lambda label, _: {"a": 3.0, "b": 1.0, "c": 2.0}[label])
    results = trials.results()
    assert [result.candidate.label for result in results] == ["b", "c", "a"]
    assert results[0].median == 1.0 and results[0].exposed == 0.25


def test_how_far_a_waiting_time_may_be_off_goes_by_the_scatter_of_its_iterations():
    trials = Trials([candidate("a", 1, 1.0), candidate("b", 2, 1.0)])
    waited = {"a": [0.2, 0.3, 0.4, 0.5], "b": [0.3] * 4}
    while not trials.stage_is_over:
        label = trials.current.label
        trials.record({"a": 1.0, "b": 2.0}[label], waited[label].pop())
    trials.agree(trials.local_times())
    assert trials.is_over
    chosen, other = trials.results()
    assert (chosen.exposed, other.exposed) == pytest.approx((0.35, 0.3))
    # The deviation is 1.4826 times the median distance from the median, the median's error 1.25 / sqrt(4) of it.
    assert chosen.uncertainty == pytest.approx(2 * 1.25 / 2 * 1.4826 * 0.1)
    assert other.uncertainty == pytest.approx(0.0)


@pytest.mark.parametrize("unit", [0.1, 1.0, 10.0])
def test_all_take_turns_and_those_behind_drop_out(unit):
    candidates = [candidate(label, 1, 1.0) for label in "abc"]
    _, order = run(candidates, lambda label, _: unit * {"a": 1.0, "b": 1.0, "c": 2.0}[label])
    rounds = [order[start : start + 3] for start in range(0, 3 * FIRST_ROUNDS, 3)]
    assert all(set(each) == set("abc") for each in rounds)
    assert len({each[0] for each in rounds}) > 1
    assert Counter(order) == {"a": FIRST_ROUNDS + SECOND_ROUNDS, "b": FIRST_ROUNDS + SECOND_ROUNDS, "c": FIRST_ROUNDS}


def test_drift_of_the_machine_does_not_change_the_choice():
    """Every iteration is slower than the one before, by more than the candidates differ."""
    candidates = [candidate("slow", 1, 1.0), candidate("fast", 2, 1.0)]
    trials, _ = run(candidates, lambda label, number: (1.0 if label == "fast" else 1.3) + 0.2 * number)
    assert trials.results()[0].candidate.label == "fast"


def test_of_two_each_comes_first_as_often_as_the_other():
    _, order = run([candidate("a", 1, 1.0), candidate("b", 2, 1.0)], lambda *_: 1.0)
    assert Counter(order[::2]) == {"a": 5, "b": 5}


def test_a_burst_of_other_work_does_not_throw_out_the_fastest():
    candidates = [candidate("fast", 3, 1.0), candidate("slow", 2, 1.1)]
    trials, _ = run(candidates, lambda label, number: 5.0 if label == "fast" and number < 5 else
                    (1.0 if label == "fast" else 1.1))  # fmt: skip
    assert trials.results()[0].candidate.label == "fast"


@pytest.mark.parametrize(("predicted", "chosen"), [(0.9, "few"), (1.004, "few"), (1.02, "many")])
def test_of_those_that_are_level_by_their_predictions_too_the_fewest_groups_are_taken(predicted, chosen):
    alike = [candidate("many", 9, 1.0), candidate("few", 2, predicted), candidate("fewest", 1, 1.0)]
    seconds = {"many": 1.0, "few": 1.002, "fewest": 1.02}
    trials, _ = run(alike, lambda label, number: seconds[label] + 0.0001 * (number % 3))
    assert trials.results()[0].candidate.label == chosen


def test_who_is_far_behind_does_not_tie_however_much_its_times_scatter():
    candidates = [candidate("scattered", 1, 1.0), candidate("steady", 2, 1.2)]
    trials, _ = run(candidates, lambda label, number: 2.0 if label == "steady" else (1.0, 9.0, 30.0)[number // 2 % 3])
    assert trials.results()[0].candidate.label == "steady"


def test_the_slowest_ranks_times_count():
    trials = Trials([candidate("a", 1, 1.0), candidate("b", 1, 1.0)])
    for _ in range(2 * FIRST_ROUNDS):
        trials.record(1.0, 0.0)
    assert trials.stage_is_over
    agreed = trials.local_times()
    agreed[: 2 * FIRST_ROUNDS : 2] = [3.0] * FIRST_ROUNDS  # on another rank a is slow
    trials.agree(agreed)
    assert trials.is_over
    assert trials.results()[0].candidate.label == "b"


def test_one_candidate_needs_no_trial():
    only = candidate("a", 1, 1.0)
    trials = Trials([replace(only)])
    assert trials.is_over
    assert [result.candidate for result in trials.results()] == [only]


def test_of_many_that_are_level_only_the_best_run_on():
    candidates = [candidate(label, 1, 1.0) for label in "abcdefgh"]
    _, order = run(candidates, lambda label, _: 1.0 + 0.0001 * "hgfedcba".index(label))
    counts = Counter(order)
    assert counts == {**dict.fromkeys("abc", FIRST_ROUNDS), **dict.fromkeys("defgh", FIRST_ROUNDS + SECOND_ROUNDS)}
    assert MAX_SURVIVORS == 5


def test_slow_iterations_have_fewer_rounds():
    candidates = [candidate(label, number, 12.0) for number, label in enumerate("ab", 1)]
    _, order = run(candidates, lambda *_: 12.0)
    assert Counter(order) == {"a": 2 + SECOND_ROUNDS, "b": 2 + SECOND_ROUNDS}
    _, order = run([candidate(label, 1, 30.0) for label in "ab"], lambda *_: 30.0)
    assert Counter(order) == {"a": 1 + 3, "b": 1 + 3}
    _, order = run([candidate(label, 1, 100.0) for label in "ab"], lambda *_: 100.0)
    assert Counter(order) == {"a": 2, "b": 2}


def test_after_a_single_round_a_plan_a_little_behind_runs_on():
    times = {"a": 31.0, "b": 30.0, "c": 33.0}
    candidates = [candidate(label, 1, 30.0) for label in "abc"]
    _, order = run(candidates, lambda label, _: times[label])
    assert Counter(order) == {"a": 1 + 3, "b": 1 + 3, "c": 1}


def test_short_iterations_have_more_rounds():
    _, order = run([candidate(label, 1, 0.01) for label in "ab"], lambda *_: 0.01)
    assert Counter(order) == dict.fromkeys("ab", MAX_FIRST_ROUNDS + MAX_SECOND_ROUNDS)
    _, order = run([candidate(label, 1, 0.25) for label in "ab"], lambda *_: 0.25)
    assert Counter(order) == dict.fromkeys("ab", MAX_FIRST_ROUNDS + 10)
    _, order = run([candidate(label, 1, 0.5) for label in "ab"], lambda *_: 0.5)
    assert Counter(order) == dict.fromkeys("ab", 5 + SECOND_ROUNDS)


def test_a_plan_found_after_the_first_stage_runs_in_the_second_and_can_win():
    trials = Trials([candidate("a", 1, 1.0), candidate("b", 2, 1.0)])
    for _ in range(2 * FIRST_ROUNDS):
        trials.record({"a": 1.0, "b": 2.0}[trials.current.label], 0.0)
    assert not trials.is_last_stage
    trials.agree(trials.local_times())
    assert trials.is_over  # no other is left beside a
    revised = [candidate("a", 1, 1.1), candidate("b", 2, 2.0)]
    trials.revise(revised)
    assert trials.is_over
    trials.revise(revised, [candidate("c", 3, 0.9)])
    assert not trials.is_over and trials.is_last_stage
    turns = Counter()
    while not trials.stage_is_over:
        turns[trials.current.label] += 1
        trials.record({"a": 1.0, "c": 0.8}[trials.current.label], 0.0)
    assert turns == {"a": SECOND_ROUNDS, "c": SECOND_ROUNDS}
    trials.agree(trials.local_times())
    assert trials.is_over
    best, *others = trials.results()
    assert best.candidate.label == "c" and best.candidate.predicted == 0.9 and len(best.seconds) == SECOND_ROUNDS
    assert [trial.candidate.predicted for trial in others] == [1.1, 2.0]
