"""Each switch of `TunerSteps` leaves out the step that it names."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.forward_overlap import Overlap
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.tuning.drift import WINDOW
from mgcaffe.comm.tuning.settings import TunerSettings, TunerSteps
from mgcaffe.comm.tuning.trials import FIRST_ROUNDS, MAX_FIRST_ROUNDS
from mgcaffe.comm.tuning.tuner import Tuner
from tests.comm.tuning.test_tuner import FORWARD, SEGMENTS, Machine, curve

pytestmark = pytest.mark.slow


def search(machine, iterations=10, **steps):
    """Search with so many iterations of calibration, without the steps that are False."""
    settings = TunerSettings("auto", 4, iterations, overlap=Overlap.TRY, steps=TunerSteps(**steps))
    tuner = Tuner(SingleCommunicator(), machine, SEGMENTS, settings, machine.measure, machine)
    tuner.search()
    while tuner.is_searching:
        machine.iterate(tuner)
    return tuner


def machine(**options):
    """A machine where communication outlasts the backward pass and slows it down."""
    return Machine(*[curve(5e-4, 2e-8)] * 3, slowdown={False: 0.3, True: 0.3}, forward=FORWARD, **options)


def found(slow=0, **options):
    """The decision of a search on such a machine, whose first iterations may be slow."""
    made = machine(slow=slow)
    search(made, **options)
    (decision,) = made.decisions
    return decision


def test_each_step_is_on():
    assert all(getattr(TunerSteps(), each.name) for each in fields(TunerSteps))


def test_without_trials_nothing_is_tried():
    assert len(found().trials) > 1 and found(trials=False).trials == ()


def test_without_blocking_calls_no_plan_uses_them():
    assert {trial.candidate.plan.blocking for trial in found().trials} == {False, True}
    assert {trial.candidate.plan.blocking for trial in found(blocking_calls=False).trials} == {False}


def test_without_forward_overlap_no_plan_overlaps():
    assert any(trial.candidate.plan.overlaps_forward for trial in found().trials)
    assert not any(trial.candidate.plan.overlaps_forward for trial in found(forward_overlap=False).trials)


def test_without_contention_none_is_predicted():
    assert [channel.slowdown for channel in found().channels] == pytest.approx([0.3, 0.3], abs=0.05)
    assert [channel.slowdown for channel in found(contention=False).channels] == [0.0, 0.0]


def test_without_cost_correction_costs_are_those_measured():
    cheap = curve(1e-5, 1e-9)
    for corrected in (True, False):
        made = machine()
        made.measure = lambda anew: AllReduceCosts(cheap, cheap, cheap)
        search(made, cost_correction=corrected)
        curves = {channel.beside for channel in made.decisions[0].channels}
        assert (curves == {cheap}) is not corrected


def test_without_a_second_stage_every_plan_has_the_first_ones_rounds():
    (rounds,) = {len(trial.seconds) for trial in found(second_stage=False).trials}
    assert FIRST_ROUNDS <= rounds <= MAX_FIRST_ROUNDS
    assert max(len(trial.seconds) for trial in found().trials) > rounds


def test_without_prediction_from_trials_the_calibrations_times_stay():
    slow = 10  # of the iterations, all of the calibration
    assert sum(found(slow).timings.backward_times) == pytest.approx(0.02, rel=0.05)
    assert sum(found(slow, prediction_from_trials=False).timings.backward_times) == pytest.approx(0.08, rel=0.05)


def test_without_further_candidates_there_are_none_but_the_first_ones():
    cheap = curve(1e-5, 1e-9)
    counts = {}
    for further in (True, False):
        made = Machine(*[curve(1e-3, 1e-9)] * 3)
        made.measure = lambda anew: AllReduceCosts(cheap, cheap, cheap)
        search(made, further_candidates=further)
        counts[further] = len(made.decisions[0].trials)
    assert counts[False] < counts[True]


def test_without_warm_up_the_first_iterations_count():
    slow = {"slow": 5, "iterations": 12, "prediction_from_trials": False}
    with_it, without = (sum(found(**slow, warm_up=on).timings.backward_times) for on in (True, False))
    assert with_it == pytest.approx(0.02, rel=0.05) and without == pytest.approx(0.05, rel=0.05)


def test_without_a_drift_watch_nothing_begins_again():
    for watched in (True, False):
        made = machine()
        tuner = search(made, drift_watch=watched)
        made.polled = made.busy_polled = made.blocking = curve(6e-2, 4e-8)
        for _ in range(3 * WINDOW):
            if not made.outdated:
                made.iterate(tuner)
        assert bool(made.outdated) is watched
