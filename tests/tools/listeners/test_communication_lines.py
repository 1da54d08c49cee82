from dataclasses import replace

import pytest

from mgcaffe.comm.planning.cost import AllReduceCost, AllReduceCosts
from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import Timings
from mgcaffe.comm.tuning.candidates import Candidate
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.trials import Trial
from mgcaffe.solvers.events import Finished, OutputValue, PlanChosen
from mgcaffe.tools.listeners.communication_lines import closing_lines, plan_lines

CURVE = AllReduceCost([(1024, 1e-4), (8192, 1e-4), (12288, 4e-4), (1 << 20, 2e-3)])
SINGLE = Plan("single", 2, (Group(0, 1, 0, 8, 2**20, 0.01, 0.01, 0.013),), 0.01, blocking=True)
WFBP = Plan(
    "wfbp", 2, (Group(1, 1, 4, 4, 2**19, 0.004, 0.004, 0.007), Group(0, 0, 0, 4, 2**19, 0.01, 0.01, 0.012)), 0.01
)


def chosen(plan, trials, slowdown):
    channels = [Channel(blocking, CURVE, CURVE, slowdown) for blocking in (False, True)]
    decision = Decision(plan, Timings([0.006, 0.004]), AllReduceCosts(CURVE, CURVE, CURVE), channels, trials)
    return plan_lines(PlanChosen(50, "auto", plan, CURVE, decision))


def test_it_says_what_was_measured_tried_and_why_a_single_all_reduce_was_chosen():
    trials = [
        Trial(Candidate("single", SINGLE), (0.0131, 0.0131, 0.0132), 0.0031),
        Trial(Candidate("wfbp", WFBP), (0.015, 0.0151, 0.0152), 0.002),
    ]
    lines = chosen(SINGLE, trials, 0.6)
    assert lines[0].startswith("All-reduce: 4 sizes from 1.0 KiB to 1.0 MiB; the line ")
    assert "is off by" in lines[0] and "R2" in lines[0]
    assert lines[1] == (
        "Contention: a second of communication beside the backward pass adds 600 ms (polled calls) or 600 ms"
        " (blocking calls) to it"
    )
    assert lines[2].startswith("Tried 2 plans in turn")
    assert lines[3].split() == ["plan", "groups", "calls", "predicted", "measured", "exposed", "iterations"]
    assert lines[5].split() == ["single", "1", "blocking", "13.00", "ms", "13.10", "ms", "3.10", "ms", "3"]
    assert lines[7] == (
        "Chosen: single with blocking calls, the fastest; communication after the backward pass is 23.7 % of the time,"
        " and beside it would take up to 60 % of what it hides from the computation"
    )
    assert lines[8] == (
        "Schedule single: 1 group from 2 layers, 1.00 MiB; backward 10.000 ms, communication 3.000 ms, 3.000 ms of it"
        " expected to be exposed (predicted from its trials)"
    )


def test_it_says_what_an_overlapping_plan_hides():
    trials = [Trial(Candidate("wfbp", WFBP), (0.0125,), 0.0025), Trial(Candidate("single", SINGLE), (0.0124,), 0.003)]
    line = chosen(WFBP, trials, 0.0)[7]
    assert line == (
        "Chosen: wfbp with polled calls, within noise of the fastest; of 5.00 ms of communication 2.50 ms are hidden"
    )


def test_a_schedule_of_the_users_is_not_explained():
    lines = chosen(WFBP, (), 0.0)
    assert not any(line.startswith(("Tried", "Chosen")) for line in lines)
    assert lines[-1].endswith("expected to be exposed (predicted from the calibration)")


def test_a_pinned_plan_rests_on_nothing():
    (line,) = plan_lines(PlanChosen(0, "wfbp", WFBP, None))
    assert line.startswith("Schedule wfbp: 2 groups from 2 layers, 1.00 MiB; backward 10.000 ms")


def test_contention_that_was_cut_off_is_said_to_be_at_least_so_much():
    assert "adds at least 950 ms (polled calls) or at least 950 ms (blocking calls)" in chosen(SINGLE, (), 0.95)[1]


def test_a_plan_that_overlaps_the_forward_pass_says_so():
    (line,) = plan_lines(PlanChosen(0, "wfbp", replace(WFBP, overlaps_forward=True, waits=1e-3), None))
    assert line == (
        "Schedule wfbp: 2 groups from 2 layers, 1.00 MiB, the last of them beside the next forward pass;"
        " backward 10.000 ms, communication 5.000 ms, 1.000 ms of it expected to be exposed"
    )


@pytest.mark.parametrize(
    ("tested_at", "line"),
    [
        (100, "Test net #0: accuracy = 0.5"),
        (None, "Test net #0: accuracy = 0.5"),
        (0, "Test net #0, at iteration 0 (the last test): accuracy = 0.5"),
    ],
)
def test_scores_of_a_test_before_the_end_name_its_iteration(tested_at, line):
    scores = ((OutputValue(0, "accuracy", 0.5),),)
    end = Finished(100, False, 4.0, 0, 0.0, 0.0, None, scores, tested_at=tested_at)
    assert closing_lines(end, 1, 100)[0] == line


def test_a_line_holds_the_first_hundred_scores_of_a_net_whose_output_is_an_image():
    values = tuple(OutputValue(i, "score", 0.5) for i in range(4000))
    end = Finished(100, False, 4.0, 0, 0.0, 0.0, None, (values, values[:100]), tested_at=100)
    first, second = closing_lines(end, 1, 100)[:2]
    assert first.count("score = 0.5") == 100 and first.endswith("score = 0.5, and 3900 more values")
    assert second.count("score = 0.5") == 100 and second.endswith("score = 0.5")
