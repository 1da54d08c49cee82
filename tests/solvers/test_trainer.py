"""Updates by group and beside the next forward pass: the same bits as one update at the end, and exact in between."""

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import NotFiniteError
from mgcaffe.solvers.events import IterationDone, Warned
from mgcaffe.solvers.events.testing import Tested
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data

pytestmark = pytest.mark.slow

FIELDS = "momentum: 0.9 weight_decay: 0.01 test_iter: 2 test_interval: 5 "
SHARED = CLASSIFIER.replace(
    'layer { name: "ip2"',
    'layer { name: "mid" type: "InnerProduct" bottom: "ip1" top: "mid" param { name: "w" }'
    '  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }\n'
    'layer { name: "again" type: "InnerProduct" bottom: "mid" top: "ip1b" param { name: "w" }'
    '  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }\nlayer { name: "ip2"',
).replace('type: "InnerProduct" bottom: "ip1" top: "ip2"', 'type: "InnerProduct" bottom: "ip1b" top: "ip2"')


class RecordingObserver:
    """Records how often weights were updated and in which parts."""

    def __init__(self):
        self.updates, self.reports, self.agreements = [], [], 0

    def communicated(self, comm):
        self.reports.append(comm)

    def agreed(self, start, end):
        assert end >= start
        self.agreements += 1

    def updated(self, start, end, offset, count):
        assert end >= start
        self.updates.append((offset, count))

    def synchronized(self, start, end, figures):
        raise AssertionError("these ranks train in step")


@pytest.fixture
def listing(tmp_path):
    return write_data(tmp_path, records=41, classes=3)


def train(listing, folder, fields, comm="", *, size=2, iterations=12, net=CLASSIFIER, before=None, restore=None):
    """Returns each rank's (weights, recorder, observer)."""
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + net

    def rank(communicator):
        recorder, observer = Recorder(), RecordingObserver()
        text = f"{fields} comm_param {{ schedule: WFBP calibration_iterations: 2 {comm} }}"
        with make_solver(
            net, text, folder, recorder=recorder, communicator=communicator, dtype=torch.float32
        ) as solver:
            solver.observe(observer)
            if before is not None:
                before(solver)
            if restore:
                solver.restore(restore)
            solver.step(iterations)
            return weights_of(solver), recorder, observer

    return run_ranks(size, rank)


def all_at_once(listing, folder, fields, **options):
    """The same run with every update made after all gradients have come."""

    def watch(solver):
        solver.add_callback(lambda: None, lambda: None)

    return train(listing, folder, fields, before=watch, **options)


def same(results, expected):
    for (weights, recorder, _), (others, theirs, _) in zip(results, expected, strict=True):
        assert torch.equal(weights, others)
        assert recorder.losses == theirs.losses
        scores = [[event.scores, event.loss] for event in recorder.of(Tested)]
        assert scores == [[event.scores, event.loss] for event in theirs.of(Tested)] != []


@pytest.mark.parametrize("comm", ["", "overlap_forward: true"])
@pytest.mark.parametrize("net", [CLASSIFIER, SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize("more", ["", "iter_size: 2", 'type: "Adam"', "snapshot_diff: true regularization_type: 'L1'"])
def test_groups_updated_as_they_come_give_the_bits_of_one_update(listing, tmp_path, comm, net, more):
    fields = FIELDS + more
    expected = all_at_once(listing, tmp_path, fields, net=net)
    results = train(listing, tmp_path, fields, comm, net=net)
    same(results, expected)
    trainable = {count for _, _, observer in expected for _, count in observer.updates}
    assert len(trainable) == 1  # the whole arena at once
    parts = results[0][2].updates[-3:]
    assert sum(count for _, count in set(parts)) <= trainable.pop() and len(set(parts)) > 1
    assert results[0][2].agreements == 12


def test_with_overlap_tests_and_the_end_see_complete_weights(listing, tmp_path):
    """`same` compares scores; here, that the overlap happened: in most iterations nothing was waited for."""
    results = train(listing, tmp_path, FIELDS, "overlap_forward: true")
    for _, recorder, observer in results:
        # Of 12 iterations 2 measure; of the others each ends in the next one, or before a test (5, 10) or the end.
        late = [event for event in recorder.of(IterationDone) if event.comm_exposed_s == event.comm_hidden_s == 0]
        assert len(late) >= 3
        assert len(observer.reports) == 12


def test_a_run_cut_by_snapshots_goes_on_to_the_same_bits_with_overlap(listing, tmp_path):
    fields = FIELDS + "snapshot: 6"
    whole = train(listing, tmp_path, fields, "overlap_forward: true", iterations=12)
    state = f"{tmp_path}/net_iter_6.solverstate"
    resumed = train(listing, tmp_path, fields, "overlap_forward: true", iterations=6, restore=state)
    plain = train(listing, tmp_path, fields, iterations=12)
    for one, other, third in zip(whole, resumed, plain, strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[0], third[0])


def test_clipping_takes_all_gradients_first_and_says_so(listing, tmp_path):
    fields = FIELDS + "clip_gradients: 0.05"
    expected = all_at_once(listing, tmp_path, fields)
    for comm in ("", "overlap_forward: true"):
        results = train(listing, tmp_path, fields, comm)
        same(results, expected)
        assert len(set(results[0][2].updates)) == 1
        warned = [event.text for event in results[0][1].of(Warned) if "overlap_forward" in event.text]
        assert len(warned) == bool(comm)


@pytest.mark.parametrize("comm", ["", "overlap_forward: true"])
def test_no_weight_changes_when_a_gradient_is_not_finite(listing, tmp_path, comm):
    """Rank 1's gradient of the highest layer is bad; it must be known before the first group is updated."""
    net = data_layer(listing, 4) + CLASSIFIER
    seen = {}

    def rank(communicator):
        text = f"momentum: 0.9 comm_param {{ schedule: WFBP calibration_iterations: 1 {comm} }}"
        with make_solver(net, text, tmp_path, communicator=communicator, dtype=torch.float32) as solver:
            solver.step(4)
            seen[communicator.rank] = weights_of(solver)
            if communicator.rank == 1:
                top = max(index for index, layer in enumerate(solver.net.layers) if layer.parameters)
                parameter = solver.net.layers[top].parameters[0]
                solver.net.after_backward.append(lambda i: parameter.diff.fill_(float("nan")) if i == top else None)
            with pytest.raises(NotFiniteError):
                solver.step(1)
            return torch.equal(weights_of(solver), seen[communicator.rank])

    assert run_ranks(2, rank) == [True, True]


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16"])
def test_gradients_in_16_bits_train_nearly_the_same(listing, tmp_path, kind):
    exact = train(listing, tmp_path, FIELDS, size=3)
    results = train(listing, tmp_path, FIELDS, f"allreduce_type: {kind}", size=3)
    precision = 2.0**-11 if kind == "FLOAT16" else 2.0**-8
    for (weights, recorder, _), (others, theirs, _) in zip(results, exact, strict=True):
        assert torch.equal(weights, results[0][0])
        assert recorder.losses == pytest.approx(theirs.losses, rel=20 * precision)
        assert not torch.equal(weights, others)


def test_a_hierarchy_without_several_hosts_is_said_to_have_no_effect(listing, tmp_path):
    for _, recorder, _ in train(listing, tmp_path, FIELDS, "hierarchical: true", iterations=1):
        assert any("all ranks run on one host" in event.text for event in recorder.of(Warned))
