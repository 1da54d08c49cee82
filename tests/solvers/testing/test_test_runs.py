"""A stop during a test: all ranks leave it after the same batch, and it counts as if it had never begun."""

from __future__ import annotations

import pytest
import torch

from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.solvers.events import Finished, Warned
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.testing.stop_poll import StopPoll
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data

FIELDS = "momentum: 0.9 test_iter: 7 test_interval: 2 snapshot_after_train: true max_iter: 6"


@pytest.fixture
def net(tmp_path):
    listing = write_data(tmp_path, records=40, classes=3)
    return data_layer(listing, 4, "TRAIN") + data_layer(listing, 3, "TEST") + CLASSIFIER


def scores(recorder):
    return [(event.iteration, [output.value for output in event.scores]) for event in recorder.of(Tested)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_stopped_in_a_test_and_resumed_equals_one_never_stopped(tmp_path, net, ranks):
    def straight(communicator):
        recorder = Recorder()
        fields = FIELDS + f' snapshot_prefix: "{tmp_path}/straight"'
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.solve()
            return weights_of(solver), scores(recorder)

    def stopped(communicator):
        recorder, later = Recorder(), Recorder()
        with make_solver(net, FIELDS, tmp_path, recorder=recorder, communicator=communicator) as solver:
            batches = []

            def stop_in_second_test(index):
                if index == 0 and solver.iteration == 2:
                    batches.append(index)
                    if communicator.rank == ranks - 1:
                        solver.request_stop()

            solver.test_nets[0].before_forward.append(stop_in_second_test)
            solver.solve()
            assert solver.iteration == 2
            tested = scores(recorder)
            assert [event.text for event in recorder.of(Warned) if "left before its end" in event.text]
        with make_solver(net, FIELDS, tmp_path, recorder=later, communicator=communicator) as solver:
            solver.restore(str(tmp_path / "net_iter_2.solverstate"))
            solver.solve()
            return weights_of(solver), tested + scores(later), len(batches)

    references, results = run_ranks(ranks, straight), run_ranks(ranks, stopped)
    for (weights, tests), (resumed, resumed_tests, batches) in zip(references, results, strict=True):
        assert torch.equal(weights, resumed)
        assert tests == resumed_tests and [iteration for iteration, _ in tests] == [0, 2, 4, 6]
        assert batches == 1


@pytest.mark.parametrize(("max_iter", "tested_at"), [(4, 4), (5, 4), (1, 0)])
def test_the_end_knows_the_iteration_of_the_last_test(tmp_path, net, max_iter, tested_at):
    recorder = Recorder()
    with make_solver(
        net, FIELDS.replace("max_iter: 6", f"max_iter: {max_iter}"), tmp_path, recorder=recorder
    ) as solver:
        solver.solve()
    (end,) = recorder.of(Finished)
    assert end.tested_at == tested_at


def test_a_stop_in_the_first_test_leaves_a_snapshot(tmp_path, net):
    with make_solver(net, FIELDS + " snapshot: 2", tmp_path) as solver:
        solver.test_nets[0].before_forward.append(lambda index: solver.request_stop())
        solver.solve()
        assert solver.iteration == 0
    assert (tmp_path / "net_iter_0.solverstate").exists()


def test_a_net_with_test_iter_0_is_passed_over_in_tests(tmp_path, net):
    """As in Caffe, which many solvers rely on to go without tests."""
    recorder = Recorder()
    fields = FIELDS.replace("test_iter: 7", "test_iter: 0 test_iter: 2 test_compute_loss: true")
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        solver.solve()
        assert [len(scores) for scores in solver.scores] == [0, len(solver.test_nets[1].outputs)]
    tested = recorder.of(Tested)
    assert [(event.net, event.loss is None) for event in tested] == [(0, True), (1, False)] * 4


def test_ranks_of_different_speed_ask_after_the_same_round():
    def work(communicator):
        clock = iter(range(0, 10**6, 1 + communicator.rank))
        rounds, asked = [0], []

        def wants_stop():
            asked.append(rounds[0])
            return communicator.rank == 1 and rounds[0] >= 5

        poll = StopPoll(Ranks(communicator), wants_stop, lambda: next(clock) * 0.05)
        while rounds[0] < 100:
            rounds[0] += 1
            if poll.agrees():
                break
        return asked

    first, second = run_ranks(2, work)
    assert first == second
    # Some rounds pass between two questions, since a batch takes less than a second.
    assert first[0] == 1 and first[-1] - first[-2] > 1
