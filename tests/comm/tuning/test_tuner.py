"""A tuner on a machine that is made up: each iteration takes what `predict_plan` says of the truth."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes
from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost, AllReduceCosts
from mgcaffe.comm.planning.forward_overlap import Overlap, predict
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.planning.prediction import Channel, predict_plan
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.planning.timings import ForwardTimes, IterationTimes, Timings
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.comm.tuning.drift import WINDOW
from mgcaffe.comm.tuning.profiler import MeasuredIteration, Profiler
from mgcaffe.comm.tuning.settings import TunerSettings
from mgcaffe.comm.tuning.tuner import Tuner

pytestmark = pytest.mark.slow

LAYERS = 20
SEGMENTS = [Segment(f"layer {i}", 25_000 * i, 25_000) for i in range(LAYERS)]
BACKWARD = [1e-3] * LAYERS
FORWARD = ForwardTimes([5e-4 * i for i in range(LAYERS)], 1e-2, 1e-2, 1e-3, 5e-4)


def curve(a, b):
    return AllReduceCost([(1 << shift, a + b * (1 << shift)) for shift in range(10, 23)])


@dataclass
class Machine:
    """What an iteration takes, as a synchronizer and a listener see it."""

    polled: AllReduceCost = field(default_factory=lambda: curve(6e-4, 1e-9))
    busy_polled: AllReduceCost = field(default_factory=lambda: curve(5e-4, 1e-9))
    blocking: AllReduceCost = field(default_factory=lambda: curve(4e-4, 1e-9))
    slowdown: dict = field(default_factory=lambda: {False: 0.0, True: 0.0})
    tail: float = 1e-4
    late: float = 0.0  # seconds by which this rank's layers take longer
    forward: ForwardTimes | None = None
    plan: object = None
    afterwards: bool = False
    one_by_one: bool = False
    changes: int = 0
    warming_up: int = 0  # iterations that take a second longer
    slow: int = 0  # iterations whose layers take four times as long
    lateness: Callable[[], float] = float  # how late this rank ends an iteration after which no rank waits
    was_late: float = 0.0
    on_its_way: bool = False
    decisions: list = field(default_factory=list)
    outdated: list = field(default_factory=list)
    measured: list = field(default_factory=list)

    def set_plan(self, plan, *, afterwards=False, one_by_one=False):
        self.plan, self.afterwards, self.one_by_one = plan, afterwards, one_by_one
        self.on_its_way = False
        self.was_late = 0.0  # the ranks agree on it
        self.changes += 1

    def measure(self, anew):
        self.measured.append(anew)
        return AllReduceCosts(self.polled, self.busy_polled, self.blocking)

    def plan_decided(self, decision):
        self.decisions.append(decision)

    def plan_outdated(self, exposed, expected):
        self.outdated.append((exposed, expected))

    def iterate(self, tuner):
        blocking = self.plan.blocking
        beside, alone = (self.blocking, self.blocking) if blocking else (self.polled, self.busy_polled)
        times = [(4 if self.slow > 0 else 1) * seconds + self.late for seconds in BACKWARD]
        self.slow -= 1
        channel = Channel(blocking, beside, alone, self.slowdown[blocking])
        if self.afterwards:
            truth = predict_plan(self.plan, [times[0] + self.tail, *times[1:]], 0.0, channel)
        else:
            truth = predict(self.plan, Timings(times, self.tail, self.forward), channel)
        stretch = (truth.backward_end - self.tail) / sum(times)
        laps = [*(stretch * seconds for seconds in times[::-1]), self.tail, truth.exposed]
        groups = [GroupTimes(g.bytes, g.ready_at, g.start_at, g.end_at) for g in truth.groups]
        report = CommReport(truth.busy, truth.exposed, truth.busy - truth.exposed, groups,
                            backward_end=truth.backward_end)  # fmt: skip
        took = None
        if self.forward is not None:
            overlaps = self.plan.overlaps_forward
            waited = truth.exposed if overlaps and self.on_its_way else 0.0  # in the forward pass
            late = self.lateness() if overlaps else 0.0
            until_backward = 1e-2 + waited - self.was_late
            total = self.forward.total + truth.backward_end + (waited if overlaps else truth.exposed)
            total += late - self.was_late
            self.was_late, self.on_its_way = late, overlaps
            took = IterationTimes(total, until_backward, self.forward.needed, 1e-2, 1e-2, self.forward.update, 0.0)
            if self.warming_up > 0:
                took = replace(took, total=took.total + 1.0)
        self.warming_up -= 1
        tuner.iteration_done(laps, report, took)


def tuner_of(machine, schedule="auto", ranks=None, iterations=10, overlap=Overlap.NEVER):
    settings = TunerSettings(schedule, 4, iterations, overlap=overlap)
    tuner = Tuner(ranks or SingleCommunicator(), machine, SEGMENTS, settings, machine.measure, machine)
    tuner.search()
    return tuner


def run(machine, **options):
    tuner = tuner_of(machine, **options)
    for _ in range(600):
        if not tuner.is_searching:
            break
        machine.iterate(tuner)
    return tuner


def test_a_schedule_is_planned_after_so_many_iterations_and_nothing_is_tried():
    machine = Machine()
    tuner = tuner_of(machine, "optimal", iterations=7)
    for number in range(7):
        assert tuner.is_searching and tuner.chosen_plan is None, number
        machine.iterate(tuner)
    (decision,) = machine.decisions
    assert not tuner.is_searching and tuner.chosen_plan == machine.plan == decision.plan
    assert decision.plan.schedule == "optimal" and not decision.trials
    assert machine.measured == [False]


def test_where_nothing_is_in_the_way_the_prediction_is_the_planners():
    machine = Machine()
    run(machine, schedule="optimal")
    (decision,) = machine.decisions
    assert decision.timings.backward_times == pytest.approx(BACKWARD) and decision.timings.tail == pytest.approx(1e-4)
    expected = make_plan("optimal", SEGMENTS, [1e-3 * (LAYERS - i) for i in range(LAYERS)], machine.polled,
                         element_bytes=4)  # fmt: skip
    assert decision.plan.hash == expected.hash
    assert decision.channels[0].slowdown == pytest.approx(0, abs=1e-6)


def test_one_group_travels_at_a_time_while_costs_are_measured_and_as_later_in_the_trials():
    machine = Machine()
    tuner = tuner_of(machine, iterations=8)
    for number in range(8):
        assert machine.one_by_one, number
        machine.iterate(tuner)
    while tuner.is_searching:
        assert not machine.one_by_one
        machine.iterate(tuner)
    assert not machine.one_by_one and machine.decisions[0].trials


def test_auto_keeps_an_overlapping_plan_where_there_is_much_to_hide():
    machine = Machine()
    tuner = run(machine)
    (decision,) = machine.decisions
    assert len(tuner.chosen_plan.groups) > 1
    assert tuner.chosen_plan.schedule == f"auto: {decision.trials[0].candidate.label}"
    medians = [trial.median for trial in decision.trials]
    assert medians[0] == pytest.approx(min(medians), rel=0.01)
    assert len({trial.candidate.plan.hash for trial in decision.trials}) == len(medians)


def test_auto_measures_contention_and_takes_one_blocking_all_reduce_where_hiding_costs_more():
    machine = Machine(slowdown={False: 0.9, True: 0.95}, tail=0.0)
    tuner = run(machine)
    (decision,) = machine.decisions
    assert len(tuner.chosen_plan.groups) == 1 and tuner.chosen_plan.blocking
    assert [channel.blocking for channel in decision.channels] == [False, True]
    assert decision.channels[0].slowdown == pytest.approx(0.9, abs=0.05)
    best, *others = decision.trials
    assert best.candidate.predicted == pytest.approx(best.median, rel=0.02)
    assert all(best.median <= other.median for other in others)


def test_a_schedules_own_plan_is_predicted_with_contention():
    machine = Machine(slowdown={False: 0.5, True: 0.5})
    run(machine, schedule="wfbp")
    (decision,) = machine.decisions
    assert decision.channels[0].slowdown == pytest.approx(0.5, abs=0.05)
    assert decision.plan.backward_end > sum(BACKWARD) * 1.2


def test_an_all_reduce_that_takes_longer_beside_computation_is_noticed():
    machine = Machine()
    machine.measure = lambda anew: AllReduceCosts(curve(3e-4, 5e-10), machine.busy_polled, machine.blocking)
    run(machine, schedule="optimal")
    (decision,) = machine.decisions
    assert decision.channels[0].beside(100_000) == pytest.approx(machine.polled(100_000), rel=0.05)


def test_auto_learns_from_its_trials_what_all_reduces_cost_in_training():
    """A start-up cost that shows only in training, where groups wait for ranks that are not level."""
    machine = Machine(polled=curve(4e-3, 1e-9), busy_polled=curve(3e-3, 1e-9), blocking=curve(8e-3, 1e-9))
    cheap = curve(2e-4, 1e-9)
    machine.measure = lambda anew: AllReduceCosts(cheap, cheap, machine.blocking)
    tuner = run(machine)
    (decision,) = machine.decisions
    polled = next(channel for channel in decision.channels if not channel.blocking)
    best = decision.trials[0]
    tried = [trial.candidate.plan for trial in decision.trials if not trial.candidate.plan.blocking]
    for size in {group.bytes for plan in tried for group in plan.groups}:
        assert polled.beside(size) == pytest.approx(machine.polled(size), rel=0.05)
    assert tuner.chosen_plan.hash == best.candidate.plan.hash
    for trial in decision.trials:
        if not trial.candidate.plan.blocking:
            assert trial.candidate.predicted == pytest.approx(trial.median, rel=0.05), trial.candidate.label
    ready = [1e-3 * (LAYERS - i) for i in range(LAYERS)]
    ideal = make_plan("optimal", SEGMENTS, ready, machine.polled, element_bytes=4)
    truth = predict_plan(ideal, BACKWARD, machine.tail, Channel(False, machine.polled, machine.busy_polled))
    assert best.median <= 1.02 * max(truth.end, truth.backward_end)


@pytest.mark.parametrize("forward", [FORWARD, None])
@pytest.mark.parametrize("cost", [curve(6e-4, 1e-9), curve(5e-4, 2e-8)])
def test_predictions_follow_the_trials_where_the_first_iterations_were_slower(forward, cost):
    """A start among other processes: no plan may be shown with times that training never took."""
    machine = Machine(*[cost] * 3, slowdown={False: 0.3, True: 0.3}, forward=forward, slow=10)
    run(machine, overlap=Overlap.TRY)
    (decision,) = machine.decisions
    assert decision.timings.backward_times == pytest.approx(BACKWARD, rel=0.01)
    assert [channel.slowdown for channel in decision.channels] == pytest.approx([0.3, 0.3], abs=0.05)
    best = decision.trials[0]
    assert decision.predicted_from == "trials"
    assert decision.plan.backward_end + decision.plan.exposed == pytest.approx(best.median, rel=0.05)
    for trial in decision.trials:
        assert trial.candidate.predicted == pytest.approx(trial.median, rel=0.05), trial.candidate.label


@pytest.mark.parametrize("slow", [34, 42])
def test_the_chosen_plan_is_predicted_with_what_its_own_last_trials_saw(slow):
    """The machine is left alone only in the second stage, when no plan of one group runs any more."""
    machine = Machine(slowdown={False: 0.3, True: 0.3}, slow=slow)
    run(machine)
    (decision,) = machine.decisions
    assert machine.slow < -30 and len(decision.plan.groups) > 1
    best = decision.trials[0]
    assert decision.plan.backward_end == pytest.approx(best.median - best.exposed, rel=0.1)


def test_a_schedule_that_tries_nothing_is_predicted_from_the_calibration():
    machine = Machine()
    run(machine, schedule="mgwfbp")
    assert machine.decisions[0].predicted_from == "calibration"


@pytest.mark.usefixtures("both_transports")
def test_all_ranks_decide_alike_by_the_slowest_ones_times():
    def work(ranks):
        machine = Machine(late=2e-4 * ranks.rank)
        tuner = run(machine, ranks=ranks)
        return tuner.chosen_plan.hash, machine.decisions[0].timings.backward_times[3]

    results = run_ranks(3, work)
    assert len(set(results)) == 1
    assert results[0][1] == pytest.approx(1.4e-3)


def test_it_plans_again_when_communication_is_waited_for_longer():
    machine = Machine()
    tuner = run(machine)
    for _ in range(3 * WINDOW):
        machine.iterate(tuner)
    assert len(machine.decisions) == 1 and not machine.outdated
    before = tuner.chosen_plan
    machine.polled = machine.busy_polled = machine.blocking = curve(6e-3, 4e-9)
    while not machine.outdated:
        machine.iterate(tuner)
    exposed, expected = machine.outdated[0]
    assert exposed > expected
    assert tuner.is_searching and tuner.chosen_plan == before  # which is still what a snapshot stores
    while tuner.is_searching:
        machine.iterate(tuner)
    assert machine.measured == [False, True]
    assert len(machine.decisions) == 2 and tuner.chosen_plan.hash != before.hash


def test_a_plan_that_was_found_earlier_is_used_at_once():
    machine = Machine()
    found = run(machine).chosen_plan
    again = Machine()
    tuner = tuner_of(again)
    tuner.adopt(found)
    assert again.plan == found and not tuner.is_searching
    again.iterate(tuner)
    assert not again.measured and tuner.chosen_plan == found


def test_few_iterations_measure_no_contention():
    machine = Machine(slowdown={False: 0.9, True: 0.9})
    run(machine, schedule="optimal", iterations=3)
    assert machine.decisions[0].channels[0].slowdown == 0.0


def test_the_first_iteration_is_not_counted_and_every_other_one_is_undisturbed():
    alone = make_plan("single", [1, 1], [2.0, 1.0], AffineCost(1, 1), element_bytes=4)
    probe = make_plan("wfbp", [1, 1], [2.0, 1.0], AffineCost(1, 1), element_bytes=4)
    profiler = Profiler(6, alone, [probe])
    seen, held = [], []
    while not profiler.is_over:
        seen.append(profiler.current.schedule)
        held.append(profiler.is_undisturbed)
        slow = 100.0 if len(seen) == 1 else 1.0
        profiler.record(MeasuredIteration([slow, slow, slow, 0.0], CommReport()))
    assert seen == ["single", "wfbp", "single", "wfbp", "single", "wfbp"]
    assert held == [True, False, True, False, True, False]
    assert profiler.timings(SingleCommunicator()).backward_times == [1.0, 1.0]


@pytest.mark.parametrize(("iterations", "median"), [(4, 2.0), (10, 5.0), (16, 9.0), (20, 12.0)])
def test_the_first_quarter_of_the_calibration_is_warming_up(iterations, median):
    """Of iterations that take as many seconds as their number, those with even numbers are undisturbed."""
    alone = make_plan("single", [1], [1.0], AffineCost(1, 1), element_bytes=4)
    probe = make_plan("wfbp", [1, 1], [2.0, 1.0], AffineCost(1, 1), element_bytes=4)
    profiler = Profiler(iterations, alone, [probe])
    for number in range(iterations):
        profiler.record(MeasuredIteration([float(number), 0.0, 0.0], CommReport()))
    assert profiler.timings(SingleCommunicator()).backward_times == [median]


def test_auto_overlaps_the_forward_pass_where_communication_outlasts_the_backward_pass():
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD)
    tuner = run(machine, overlap=Overlap.TRY)
    (decision,) = machine.decisions
    assert tuner.chosen_plan.overlaps_forward and tuner.chosen_plan.schedule.endswith(", overlap_forward")
    assert decision.timings.forward.total == pytest.approx(FORWARD.total)
    kinds = {trial.candidate.plan.overlaps_forward for trial in decision.trials}
    assert kinds == {False, True}
    best = decision.trials[0]
    assert best.candidate.predicted == pytest.approx(best.median, rel=0.05)
    waits = min(trial.median for trial in decision.trials if not trial.candidate.plan.overlaps_forward)
    assert best.median < 0.9 * waits


@pytest.mark.parametrize("forward", [FORWARD, None])
def test_auto_does_not_overlap_where_it_may_not_or_cannot_compare(forward):
    overlap = Overlap.NEVER if forward is not None else Overlap.TRY
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=forward)
    assert not run(machine, overlap=overlap).chosen_plan.overlaps_forward


def test_auto_leaves_the_forward_pass_alone_where_everything_is_hidden():
    machine = Machine(*[curve(1e-5, 1e-10)] * 3, forward=FORWARD)
    run(machine, overlap=Overlap.TRY)
    (decision,) = machine.decisions
    assert not any(trial.candidate.plan.overlaps_forward for trial in decision.trials)


@pytest.mark.parametrize("schedule", ["auto", "wfbp"])
@pytest.mark.parametrize("forward", [FORWARD, None])
def test_a_user_who_asks_for_overlap_gets_it(schedule, forward):
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=forward)
    tuner = run(machine, schedule=schedule, overlap=Overlap.ALWAYS)
    assert tuner.chosen_plan.overlaps_forward
    assert (tuner.chosen_plan.waits is None) == (forward is None)


def test_a_turn_of_a_plan_that_overlaps_takes_two_iterations():
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD)
    tuner = tuner_of(machine, overlap=Overlap.TRY)
    turns = []
    while tuner.is_searching:
        plan, changes = machine.plan, machine.changes
        machine.iterate(tuner)
        if plan.overlaps_forward:
            turns.append(machine.changes == changes)
    assert turns and turns == [True, False] * (len(turns) // 2)


def test_such_a_turn_ends_where_the_second_backward_pass_begins():
    """When a rank ends its iteration says nothing where nothing was waited for then."""
    chance = random.Random(3)
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD, lateness=lambda: chance.uniform(0, 1e-2))
    run(machine, overlap=Overlap.TRY)
    (decision,) = machine.decisions
    overlapped = [trial for trial in decision.trials if trial.candidate.plan.overlaps_forward]
    assert overlapped
    for trial in overlapped:
        assert trial.seconds == pytest.approx([trial.candidate.predicted] * len(trial.seconds), rel=1e-6)


def test_the_order_that_was_tried_is_the_one_that_is_kept():
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD)
    # What was measured is not what is met, so that plans are predicted anew after each stage.
    machine.measure = lambda anew: AllReduceCosts(*[curve(1e-4, 3e-8)] * 3)
    tried = set()
    tuner = tuner_of(machine, overlap=Overlap.TRY)
    while tuner.is_searching:
        tried.add(machine.plan.hash)
        machine.iterate(tuner)
    assert tuner.chosen_plan.overlaps_forward
    assert tuner.chosen_plan.hash in tried


@pytest.mark.usefixtures("both_transports")
def test_one_rank_that_takes_no_times_keeps_all_from_overlapping():
    def work(ranks):
        machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD if ranks.rank != 1 else None)
        tuner = run(machine, ranks=ranks, overlap=Overlap.TRY)
        return tuner.chosen_plan.overlaps_forward, machine.decisions[0].timings.forward

    assert run_ranks(3, work) == [(False, None)] * 3


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_few_iterations_measure_no_forward_pass(iterations):
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD, warming_up=1)
    tuner = run(machine, iterations=iterations, overlap=Overlap.TRY)
    assert machine.decisions[0].timings.forward is None and not tuner.chosen_plan.overlaps_forward


def test_what_was_waited_for_counts_though_an_iteration_was_held_to_do_more_besides():
    """The calibration's iterations take a second longer; trials still tell plans apart by what they wait for."""
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD, warming_up=10)
    run(machine, overlap=Overlap.TRY)
    (decision,) = machine.decisions
    (single, *_) = [trial for trial in decision.trials if trial.candidate.label == "single"]
    assert single.median > 1.3 * decision.trials[0].median


def test_a_turn_begins_anew_after_an_iteration_without_an_update():
    machine = Machine(*[curve(5e-4, 2e-8)] * 3, forward=FORWARD)
    tuner = tuner_of(machine, overlap=Overlap.TRY)
    while not machine.plan.overlaps_forward:
        machine.iterate(tuner)
    changes = machine.changes
    machine.iterate(tuner)
    tuner.iteration_skipped()  # and nothing is on its way any more
    machine.iterate(tuner)
    assert machine.changes == changes
    machine.iterate(tuner)
    assert machine.changes == changes + 1
