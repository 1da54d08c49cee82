"""Where several workers meet: snapshots, tests, stops; and how they end, errors included."""

import threading
import time

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.errors import DataError, NotFiniteError, SolverError
from mgcaffe.prototxt import SolverState, blob_array, read_net
from mgcaffe.solvers.events import Finished, IterationDone, Warned
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.exchange.ranks import changed_by_forward
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data
from tests.support.worker_order import NORMALIZED, nets_of, running_workers, slow_down, take_turns, workers


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not running_workers()


@pytest.fixture
def listing(tmp_path):
    return write_data(tmp_path, records=24, classes=3)


# -- meeting: snapshots, tests, stops -----------------------------------------------------------------------


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("fields", ["", 'type: "Adam" momentum: 0.9 momentum2: 0.99'])
def test_stopped_and_resumed_equals_never_stopped(tmp_path, listing, slow, fields):
    net, recorder = data_layer(listing, 4) + NORMALIZED, Recorder()
    fields = workers(2, fields + " snapshot: 4")
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        take_turns(solver)
        slow_down(nets_of(solver)[slow], 0.002)
        solver.step(7)
        expected, statistics = weights_of(solver), changed_by_forward(nets_of(solver)[1])
    resumed = Recorder()
    with make_solver(net, fields, tmp_path, recorder=resumed) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate")
        take_turns(solver)
        solver.step(3)
        assert torch.equal(weights_of(solver), expected)
        assert all(map(torch.equal, changed_by_forward(nets_of(solver)[1]), statistics))
        assert resumed.losses == recorder.losses[4:]
    assert not resumed.of(Warned)


def wait_until_ahead(solver, is_wanted):
    """Returns once worker 1 has done ten iterations, if that is wanted."""
    deadline = time.monotonic() + 20
    while is_wanted and solver._workers._others[0].iteration < 10:
        assert time.monotonic() < deadline
        time.sleep(1e-3)


def state(folder, iteration):
    return SolverState.FromString((folder / f"net_iter_{iteration}.solverstate").read_bytes())


@pytest.mark.parametrize("slow", [0, 1])
def test_a_requested_snapshot_is_taken_where_all_have_done_as_much(tmp_path, listing, slow):
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path) as solver:
        slow_down(nets_of(solver)[slow], 0.002)

        def request(index):
            if index == 0 and solver.iteration == 5:
                wait_until_ahead(solver, slow == 0)
                solver.request_snapshot()

        solver.net.before_forward.append(request)
        solver.step(40)
        assert solver._workers._others[0].iteration == solver.iteration == 40
    (written,) = tmp_path.glob("*.solverstate")
    message = SolverState.FromString(written.read_bytes())
    assert message.iter >= 6
    assert [each.records for each in message.engine_state.records] == [message.iter * 2 * 4]
    if slow == 0:  # the other one was ahead
        assert message.iter >= 10


@pytest.mark.parametrize("slow", [0, 1])
def test_a_stop_leaves_all_workers_after_as_many_iterations(tmp_path, listing, slow):
    recorder = Recorder()
    fields = workers(2, "max_iter: 5000 snapshot_after_train: true test_iter: 1 test_interval: 2")
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + CLASSIFIER
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        slow_down(nets_of(solver)[slow], 0.002)

        def request(index):
            if index == 0 and solver.iteration == 5:
                wait_until_ahead(solver, slow == 0)
                solver.request_stop()

        solver.net.before_forward.append(request)
        solver.solve()
        reached = solver.iteration
        assert solver._workers._others[0].iteration == reached < 5000
        assert [net.data_layers[0].position() for net in nets_of(solver)] == [reached * 8] * 2
    assert recorder.of(Finished)[0].stopped_early
    assert recorder.of(Finished)[0].images == reached * 8
    assert state(tmp_path, reached).iter == reached
    assert [event.iteration for event in recorder.of(Tested)] == [0, 2, 4]  # none while it catches up
    if slow == 0:
        assert reached >= 10


def test_a_stop_during_a_test_leaves_all_workers_after_as_many_iterations(tmp_path, listing):
    fields = workers(3, "max_iter: 5000 test_iter: 10 test_interval: 4")
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + CLASSIFIER
    with make_solver(net, fields, tmp_path) as solver:
        slow_down(solver.test_nets[0], 0.002)
        solver.test_nets[0].before_forward.append(lambda index: solver.iteration and solver.request_stop())
        solver.step(5000)
        reached = solver.iteration
        assert [worker.iteration for worker in solver._workers._others] == [reached] * 2
        assert 4 <= reached < 5000
        assert [net.data_layers[0].position() for net in nets_of(solver)] == [reached * 12] * 3


def test_the_best_weights_are_those_that_were_tested(tmp_path, listing):
    fields = workers(2, 'snapshot_best: "loss" test_iter: 2 test_interval: 3')
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + CLASSIFIER
    with make_solver(net, fields, tmp_path) as solver:
        slow_down(nets_of(solver)[0], 0.002)
        seen = []
        solver.test_nets[0].before_forward.append(lambda index: seen.append(weights_of(solver)))
        solver.step(7)
        assert len(seen) > 12
        steps = len(solver.test_nets[0].steps)
        for test in range(3):
            during = seen[test * 2 * steps : (test + 1) * 2 * steps]
            assert all(torch.equal(each, during[0]) for each in during)
    (best,) = tmp_path.glob("*.solverstate")
    message = SolverState.FromString(best.read_bytes())
    assert {each.layer: each.records for each in message.engine_state.records}["data"] == message.iter * 2 * 4
    weights = np.concatenate(
        [blob_array(blob).reshape(-1) for layer in read_net(message.learned_net).layer for blob in layer.blobs]
    )
    assert np.array_equal(weights, seen[message.iter // 3 * 2 * steps].numpy())


def test_tests_run_while_the_others_go_on(tmp_path, listing):
    fields = workers(2, "test_iter: 2 test_interval: 5")
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + CLASSIFIER
    with make_solver(net, fields, tmp_path) as solver:
        others = []

        def look(index):
            wait_until_ahead(solver, solver.iteration == 5)
            others.append((solver.iteration, solver._workers._others[0].iteration))

        solver.test_nets[0].before_forward.append(look)
        solver.step(20)
    assert {other for iteration, other in others if iteration == 0} == {0}  # the first test is over before they begin
    assert max(other for iteration, other in others if iteration == 5) >= 10


def test_another_number_of_workers_goes_on_at_the_same_record(tmp_path, listing):
    net = data_layer(listing, 4) + CLASSIFIER
    with make_solver(net, workers(3), tmp_path) as solver:
        solver.step(5)
        solver.snapshot()
    recorder = Recorder()
    with make_solver(net, workers(2), tmp_path, recorder=recorder) as solver:
        solver.restore(f"{tmp_path}/net_iter_5.solverstate")
        solver.step(1)
        assert [net.data_layers[0].position() for net in nets_of(solver)] == [5 * 12 + 8] * 2
    (warning,) = recorder.of(Warned)
    assert "taken with 3 Hogwild worker(s) a rank and training goes on with 2" in warning.text


# -- ends ------------------------------------------------------------------------------------------------


class Broken(DataError):
    pass


def break_forward(net, iteration, error):
    """Has a net's first layer raise from the pass number `iteration` on."""
    passes = [0]

    def hook(index):
        if index == 0:
            passes[0] += 1
            if passes[0] > iteration:
                raise error

    net.before_forward.append(hook)


@pytest.mark.parametrize("guilty", [0, 2])
def test_an_error_ends_the_run_whichever_worker_meets_it(tmp_path, listing, guilty):
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(3), tmp_path) as solver:
        break_forward(nets_of(solver)[guilty], 3, Broken("a record is damaged"))
        with pytest.raises(Broken, match="a record is damaged"):
            solver.solve()
        assert not running_workers()


def test_an_error_of_a_worker_ends_a_test(tmp_path, listing):
    fields = workers(2, "test_iter: 5000 test_interval: 2 test_initialization: false")
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + CLASSIFIER
    with make_solver(net, fields, tmp_path) as solver:
        slow_down(solver.test_nets[0], 0.002)
        testing = threading.Event()
        solver.test_nets[0].before_forward.append(lambda index: testing.set())
        nets_of(solver)[1].before_forward.append(lambda index: break_now(testing))
        began = time.monotonic()
        with pytest.raises(Broken):
            solver.step(100000)  # worker 1 may be ahead of the test
        assert time.monotonic() - began < 5


def break_now(testing):
    if testing.is_set():
        raise Broken("now")


def test_what_is_no_exception_of_ours_arrives_as_it_is(tmp_path, listing):
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path) as solver:
        break_forward(nets_of(solver)[1], 0, ZeroDivisionError("in a layer"))
        with pytest.raises(ZeroDivisionError, match="in a layer"):
            solver.step(4)


@pytest.fixture
def poisoned(tmp_path):
    """Of 8 records number 3 is infinite: of two workers with batches of 2, worker 1 meets it in iteration 0, 2, ..."""
    listing = write_data(tmp_path, records=8, classes=3)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["data"][3] = np.inf
    return listing


def test_a_loss_that_is_not_finite_names_the_worker(tmp_path, poisoned):
    with (
        make_solver(data_layer(poisoned, 2) + CLASSIFIER, workers(2), tmp_path) as solver,
        pytest.raises(NotFiniteError) as failure,
    ):
        solver.step(4)
    assert "iteration 0 of worker 1: a loss or gradient is not finite; it has not updated" in failure.value.message
    assert "blob 'data', made by layer 'data'" in failure.value.message
    assert failure.value.exit_code == 71


def test_a_worker_passes_over_its_own_batch(tmp_path, poisoned):
    recorder = Recorder()
    with make_solver(
        data_layer(poisoned, 2) + CLASSIFIER, workers(2, "nan_effect: SKIP"), tmp_path, recorder=recorder
    ) as solver:
        solver.step(4)
        assert torch.isfinite(weights_of(solver)).all()
        assert [worker.iteration for worker in solver._workers._others] == [4]
    texts = [event.text for event in recorder.of(Warned)]
    assert [text.partition(":")[0] for text in texts] == ["iteration 0 of worker 1", "iteration 2 of worker 1"]
    assert all("passed over (nan_effect: SKIP)" in text for text in texts)
    assert len(recorder.of(IterationDone)) == 4


def test_more_workers_than_records(tmp_path):
    listing = write_data(tmp_path, records=3, classes=3)
    with make_solver(data_layer(listing, 2) + CLASSIFIER, workers(5, "max_iter: 4"), tmp_path) as solver:
        solver.solve()
        assert [net.data_layers[0].position() for net in nets_of(solver)] == [40] * 5


@pytest.mark.parametrize("iterations", [0, 1])
def test_the_shortest_runs(tmp_path, listing, iterations):
    recorder = Recorder()
    fields = workers(2, f"max_iter: {iterations} snapshot_after_train: true display: 1")
    with make_solver(data_layer(listing, 4) + CLASSIFIER, fields, tmp_path, recorder=recorder) as solver:
        before = weights_of(solver)
        solver.solve()
        assert torch.equal(weights_of(solver), before) is (iterations == 0)
    assert recorder.of(Finished)[0].images == iterations * 8
    assert state(tmp_path, iterations).iter == iterations


def test_steps_can_follow_each_other(tmp_path, listing):
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path) as solver:
        take_turns(solver)
        for _ in range(4):
            solver.step(1)
        expected = weights_of(solver)
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path) as solver:
        take_turns(solver)
        solver.step(4)
        assert torch.equal(weights_of(solver), expected)


def test_a_worker_that_hangs_does_not_keep_the_run_from_ending(tmp_path, listing, monkeypatch):
    monkeypatch.setattr("mgcaffe.solvers.workers.hogwild._PATIENCE_S", 0.05)
    recorder, hanging, over = Recorder(), threading.Event(), threading.Event()
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path, recorder=recorder) as solver:

        def hang(index):
            hanging.set()
            over.wait(20)

        def fail(index):
            hanging.wait(20)
            raise Broken("worker 0")

        nets_of(solver)[1].before_forward.append(hang)
        nets_of(solver)[0].before_forward.append(fail)
        with pytest.raises(Broken, match="worker 0"):
            solver.step(3)
        over.set()
        for thread in running_workers():
            thread.join(20)
    (warning,) = recorder.of(Warned)
    assert "hogwild worker 1 is still in its iteration" in warning.text


def test_a_worker_whose_thread_cannot_be_started_ends_the_run_with_a_message(tmp_path, listing, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "hogwild worker 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(3), tmp_path) as solver:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(SolverError, match="hogwild worker 2 of 3 cannot be started: can't start new thread"):
            solver.step(4)
        assert not running_workers()
