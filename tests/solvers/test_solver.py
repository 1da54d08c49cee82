"""The solver on one rank: the arithmetic of a step, events, tests, weights, snapshots and resumes."""

import contextlib

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import EXIT_CANNOT_WRITE, NetError, NotFiniteError, SnapshotError, SolverError
from mgcaffe.prototxt import NetParameter, SolverState, blob_array
from mgcaffe.solvers.events import Displayed, Finished, IterationDone, LearningRate, Noted, Started, Warned
from mgcaffe.solvers.events.snapshots import Restored, SnapshotWriting, SnapshotWritten, WeightsCopied
from mgcaffe.solvers.events.testing import Tested, Testing
from mgcaffe.solvers.snapshots.state_file import read_state
from tests.support.solverkit import (
    CLASSIFIER,
    DROPOUT,
    LEAST_SQUARES,
    Recorder,
    data_layer,
    make_solver,
    weights_of,
    write_data,
)


@pytest.fixture
def least_squares(tmp_path):
    return data_layer(write_data(tmp_path), 5) + LEAST_SQUARES


def read(folder):
    with h5py.File(folder / "data.h5") as file:
        return file["data"][:].astype(np.float64), file["label"][:].astype(np.float64)


def reference(folder, w, b, *, batch, iterations, rate, momentum, decay, iter_size=1):
    """Least squares by the book: weights, bias and their histories after each iteration."""
    data, label = read(folder)
    history_w, history_b = np.zeros_like(w), 0.0
    position = 0
    for _ in range(iterations):
        gradient_w, gradient_b = np.zeros_like(w), 0.0
        for _ in range(iter_size):
            records = [(position + index) % len(label) for index in range(batch)]
            position += batch
            error = data[records] @ w + b - label[records]
            gradient_w += data[records].T @ error / batch / iter_size
            gradient_b += error.sum() / batch / iter_size
        history_w = momentum * history_w + rate * (gradient_w + decay * w)
        history_b = momentum * history_b + rate * 2 * gradient_b
        w, b = w - history_w, b - history_b
    return w, b, history_w, history_b


def start_of(solver):
    ip = next(layer for layer in solver.net.layers if layer.name == "ip")
    return ip.parameters[0].data.numpy().reshape(-1).copy(), float(ip.parameters[1].data[0])


@pytest.mark.parametrize("iterations", [0, 1, 7])
@pytest.mark.parametrize(
    ("momentum", "decay", "iter_size"), [(0, 0, 1), (0.5, 0, 1), (0, 0.25, 1), (0.5, 0.25, 1), (0.5, 0.25, 3)]
)
def test_least_squares_follow_the_book(least_squares, tmp_path, iterations, momentum, decay, iter_size):
    fields = f"momentum: {momentum} weight_decay: {decay} iter_size: {iter_size}"
    with make_solver(least_squares, fields, tmp_path) as solver:
        numbers = {
            "batch": 5,
            "iterations": iterations,
            "rate": solver.param.base_lr,
            "momentum": momentum,
            "decay": decay,
            "iter_size": iter_size,
        }
        w, b, history_w, _ = reference(tmp_path, *start_of(solver), **numbers)
        solver.step(iterations)
        ours = start_of(solver)
        np.testing.assert_allclose(ours[0], w, rtol=1e-12)
        assert ours[1] == pytest.approx(b, rel=1e-12)
        history = solver.net.arena.view(solver._updater.histories[0], solver.net.parameters[0])
        np.testing.assert_allclose(history.numpy().reshape(-1), history_w, rtol=1e-11, atol=1e-15)
        assert solver.iteration == iterations


def test_accumulated_micro_batches_equal_one_large_batch(tmp_path):
    listing = write_data(tmp_path)
    results = []
    for batch, iter_size in ((6, 1), (2, 3)):
        net = data_layer(listing, batch) + LEAST_SQUARES
        fields = f"iter_size: {iter_size} momentum: 0.9 weight_decay: 0.1"
        with make_solver(net, fields, tmp_path) as solver:
            solver.step(10)
            results.append(weights_of(solver))
    torch.testing.assert_close(*results, rtol=1e-12, atol=0)


def test_shared_weights_get_the_sum_of_their_gradients(tmp_path):
    listing = write_data(tmp_path)
    filler = 'weight_filler { type: "constant" value: 0.5 }'
    tail = f'param {{ name: "w" }} inner_product_param {{ num_output: 1 bias_term: false {filler} }} }}\n'
    shared = data_layer(listing, 5) + "".join(
        f'layer {{ name: "ip{index}" type: "InnerProduct" bottom: "data" top: "ip{index}" {tail}' for index in (1, 2)
    )
    shared += (
        'layer { name: "sum" type: "Eltwise" bottom: "ip1" bottom: "ip2" top: "sum" }\n'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "sum" bottom: "label" top: "loss" }'
    )
    with make_solver(shared, "momentum: 0.5", tmp_path) as solver:
        data, label = read(tmp_path)
        w, history = np.full(4, 0.5), np.zeros(4)
        for iteration in range(4):
            records = [(5 * iteration + index) % len(label) for index in range(5)]
            error = 2 * data[records] @ w - label[records]
            history = 0.5 * history + solver.param.base_lr * 2 * (data[records].T @ error) / 5
            w = w - history
        solver.step(4)
        assert len(solver.net.parameters) == 1
        np.testing.assert_allclose(solver.net.parameters[0].data.numpy().reshape(-1), w, rtol=1e-12)


def test_clipping_takes_the_sum_over_micro_batches(least_squares, tmp_path):
    with make_solver(least_squares, "clip_gradients: 0.5 iter_size: 2", tmp_path) as solver:
        w, b = start_of(solver)
        data, label = read(tmp_path)
        gradient = np.zeros(5)
        for start in (0, 5):
            error = data[start : start + 5] @ w + b - label[start : start + 5]
            gradient += np.append(data[start : start + 5].T @ error, error.sum()) / 5
        norm = np.linalg.norm(gradient)
        assert norm > 0.5
        step = solver.param.base_lr * gradient * 0.5 / norm / 2
        solver.step(1)
        np.testing.assert_allclose(start_of(solver)[0], w - step[:4], rtol=1e-6)


FROZEN = """
layer { name: "fixed" type: "InnerProduct" bottom: "data" top: "fixed" param { lr_mult: 0 } param { lr_mult: 0 }
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" } } }
"""


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("forces", [True, False])
def test_gradients_of_frozen_parameters_count_for_clipping_where_backward_is_forced(size, forces, tmp_path):
    listing = write_data(tmp_path)
    net = "force_backward: true " * forces + data_layer(listing, 6 // size)
    net += FROZEN + LEAST_SQUARES.replace('bottom: "data"', 'bottom: "fixed"')
    fields = "clip_gradients: 0.5 iter_size: 2"

    def rank(communicator):
        with make_solver(net, fields, tmp_path, communicator=communicator if size > 1 else None) as solver:
            fixed = next(layer for layer in solver.net.layers if layer.name == "fixed")
            frozen = [each.data.numpy().copy() for each in fixed.parameters]
            w, b = start_of(solver)
            solver.step(1)
            for before, after in zip(frozen, fixed.parameters, strict=True):
                np.testing.assert_array_equal(before, after.data.numpy())
            return frozen, w, b, *start_of(solver)

    data, label = read(tmp_path)
    results = run_ranks(size, rank)
    (fixed_w, fixed_b), w, b, *_ = results[0]
    gradient_w, gradient_b, gradient_fixed = np.zeros(3), 0.0, np.zeros((3, 5))
    for start in (0, 6):
        records = data[start : start + 6]
        hidden = records @ fixed_w.T + fixed_b
        error = (hidden @ w + b - label[start : start + 6]) / 6
        gradient_w, gradient_b = gradient_w + hidden.T @ error, gradient_b + error.sum()
        gradient_fixed += np.outer(w, error) @ np.column_stack([records, np.ones(6)])
    rate = 0.05
    squares = (gradient_w**2).sum() + gradient_b**2 + (gradient_fixed**2).sum() * forces
    factor = 0.5 / np.sqrt(squares) / 2
    assert factor < 0.5
    for *_, after_w, after_b in results:
        np.testing.assert_allclose(after_w, w - rate * factor * gradient_w, rtol=1e-6)
        assert after_b == pytest.approx(b - 2 * rate * factor * gradient_b, rel=1e-6)


@pytest.mark.parametrize("multipliers", [("", "lr_mult: 0"), ("lr_mult: 0", ""), ("lr_mult: 0", "lr_mult: 0")])
def test_of_frozen_shared_weights_the_uses_without_a_multiplier_count_for_clipping(multipliers, tmp_path):
    """As in Caffe, where each use has a `param_propagate_down` of its own."""
    net = data_layer(write_data(tmp_path), 5)
    for bottom, top, multiplier in zip(("data", "one"), ("one", "two"), multipliers, strict=True):
        net += f'''layer {{ name: "{top}" type: "InnerProduct" bottom: "{bottom}" top: "{top}"
            param {{ name: "shared" {multiplier} }}
            inner_product_param {{ num_output: 4 bias_term: false weight_filler {{ type: "xavier" }} }} }}'''
    net += LEAST_SQUARES.replace('bottom: "data"', 'bottom: "two"')
    with make_solver(net, "clip_gradients: 0.01", tmp_path) as solver:
        shared = solver.net.parameters[0].data.numpy().copy()
        w, b = start_of(solver)
        solver.step(1)
        np.testing.assert_array_equal(solver.net.parameters[0].data.numpy(), shared)
        after, _ = start_of(solver)
    data, label = read(tmp_path)
    one = data[:5] @ shared.T
    error = (one @ shared.T @ w + b - label[:5]) / 5
    of_two = np.outer(error, w)
    uses = ((of_two @ shared).T @ data[:5], of_two.T @ one)
    counted = sum(use for use, multiplier in zip(uses, multipliers, strict=True) if not multiplier)
    gradient = (one @ shared.T).T @ error
    norm = np.sqrt((gradient**2).sum() + error.sum() ** 2 + np.square(counted).sum())
    assert norm > 0.01
    np.testing.assert_allclose(w - after, 0.05 * 0.01 / norm * gradient, rtol=1e-6)


@pytest.mark.parametrize(("kind", "count"), [("LSTM", 3), ("RNN", 5)])
def test_gradients_of_frozen_parameters_of_recurrent_layers_count_for_clipping(kind, count, tmp_path):
    """As in Caffe, whose inner net knows nothing of their lr_mult."""

    def updates(multiplier):
        net = f"""
            layer {{ name: "x" type: "DummyData" top: "x" top: "on" top: "y" dummy_data_param {{
              shape {{ dim: [3, 2, 5] }} shape {{ dim: [3, 2] }} shape {{ dim: [3, 2, 4] }}
              data_filler {{ type: "gaussian" }} data_filler {{ value: 1 }} data_filler {{ type: "gaussian" }} }} }}
            layer {{ name: "h" type: "{kind}" bottom: "x" bottom: "on" top: "h"
              param {{ lr_mult: 1 }} {f"param {{ lr_mult: {multiplier} }}" * (count - 1)}
              recurrent_param {{ num_output: 4 weight_filler {{ type: "uniform" min: -1 max: 1 }} }} }}
            layer {{ name: "loss" type: "EuclideanLoss" bottom: "h" bottom: "y" top: "loss" }}"""
        with make_solver(net, "clip_gradients: 0.01 iter_size: 2", tmp_path) as solver:
            before = [each.data.clone() for each in solver.net.parameters]
            solver.step(1)
            return [after.data - start for after, start in zip(solver.net.parameters, before, strict=True)]

    frozen, learning = updates(0), updates(1)
    assert not any(bool(update.any()) for update in frozen[1:]) and all(bool(update.any()) for update in learning)
    torch.testing.assert_close(frozen[0], learning[0], rtol=1e-6, atol=0)


def test_gradients_of_frozen_parameters_that_count_have_to_be_finite(tmp_path):
    net = data_layer(write_data(tmp_path), 5) + FROZEN + LEAST_SQUARES.replace('bottom: "data"', 'bottom: "fixed"')
    for forces in (False, True):
        with make_solver("force_backward: true " * forces + net, "clip_gradients: 0.5", tmp_path) as solver:
            arena = solver.net.arena
            solver.net.after_backward.append(lambda _, arena=arena: arena.diff[arena.trainable :].fill_(float("inf")))
            with pytest.raises(NotFiniteError) if forces else contextlib.nullcontext():
                solver.step(1)


def test_events_come_in_order(tmp_path):
    listing = write_data(tmp_path)
    net = data_layer(listing, 5, "TRAIN") + data_layer(listing, 4, "TEST") + LEAST_SQUARES
    recorder = Recorder()
    fields = (
        "max_iter: 4 display: 2 test_iter: 3 test_interval: 2 snapshot: 3 average_loss: 2 snapshot_after_train: true"
        " snapshot_background: false"
    )
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        solver.solve()
    names = [type(event).__name__ for event in recorder.events]
    a_test, an_update = ["Testing", "Tested"], ["IterationDone"]
    a_display = ["Displayed", "LearningRate"]
    a_snapshot = ["SnapshotWriting", "SnapshotWriting", "SnapshotWritten"]
    assert names == [
        "Started",
        *(*a_test, *a_display, *an_update, *an_update),
        *(*a_test, *a_display, *an_update, *a_snapshot, *an_update),
        *(*a_snapshot, "Displayed", *a_test, "Finished"),
    ]
    losses = recorder.losses
    shown = recorder.of(Displayed)
    assert [event.iteration for event in shown] == [0, 2, 4]
    assert shown[0].loss == losses[0]
    assert shown[1].loss == pytest.approx((losses[1] + losses[2]) / 2)
    assert [(output.name, output.loss_weight) for output in shown[1].outputs] == [("loss", 1.0)]
    assert shown[1].outputs[0].value == pytest.approx(losses[2])
    assert shown[2].outputs == () and shown[2].seconds is None
    assert [event.rate for event in recorder.of(LearningRate)] == [solver.param.base_lr] * 2
    assert [event.iteration for event in recorder.of(IterationDone)] == [0, 1, 2, 3]
    assert {event.images for event in recorder.of(IterationDone)} == {5}
    assert [event.iteration for event in recorder.of(Testing)] == [0, 2, 4]
    (started,), (finished,) = recorder.of(Started), recorder.of(Finished)
    assert (started.batch_size, started.parameters, started.ranks, started.test_nets) == (5, 5, 1, 1)
    assert (finished.iteration, finished.stopped_early, finished.images) == (4, False, 20)
    assert finished.snapshot == f"{tmp_path}/net_iter_4.solverstate"
    assert finished.scores == (recorder.of(Tested)[-1].scores,)
    assert finished.hidden_share is None


def test_the_last_display_leaves_no_trace(tmp_path):
    listing = write_data(tmp_path)
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }\n'
    net = data_layer(listing, 5) + norm + LEAST_SQUARES.replace('bottom: "data"', 'bottom: "bn"')
    results = []
    for fields in ("max_iter: 4 display: 4", "max_iter: 4"):
        with make_solver(net, fields, tmp_path) as solver:
            solver.solve()
            after = weights_of(solver)
            position = solver.net.data_layers[0].position()
            solver.step(3)
            results.append((position, after, weights_of(solver)))
    assert results[0][0] == results[1][0] == 20
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][2], results[1][2])


def test_a_test_means_its_batches_and_goes_on_where_it_stopped(tmp_path):
    listing = write_data(tmp_path)
    net = data_layer(listing, 5, "TRAIN") + data_layer(listing, 4, "TEST") + LEAST_SQUARES
    recorder = Recorder()
    fields = "test_iter: 3 test_interval: 1000 test_initialization: false test_compute_loss: true"
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        w, b = start_of(solver)
        data, label = read(tmp_path)
        for _ in range(3):
            solver.test_all()
    for test, tested in enumerate(recorder.of(Tested)):
        losses = []
        for batch in range(3):
            records = [(test * 12 + batch * 4 + index) % len(label) for index in range(4)]
            losses.append(((data[records] @ w + b - label[records]) ** 2).sum() / 8)
        ((score),) = tested.scores
        assert (score.index, score.name) == (0, "loss")
        assert score.value == pytest.approx(np.mean(losses), rel=1e-12)
        assert tested.loss == pytest.approx(np.mean(losses), rel=1e-12)


def test_a_stop_ends_after_the_iteration_with_a_snapshot(least_squares, tmp_path):
    recorder = Recorder()
    fields = "max_iter: 100 snapshot_after_train: true display: 1"
    with make_solver(least_squares, fields, tmp_path, recorder=recorder) as solver:

        class Stopper:
            def on_event(self, event):
                if isinstance(event, IterationDone) and event.iteration == 1:
                    solver.request_stop()

        solver.listeners.append(Stopper())
        solver.solve()
        assert solver.iteration == 3  # the request came after iteration 1 had been agreed on
    (finished,) = recorder.of(Finished)
    assert finished.stopped_early
    assert recorder.of(SnapshotWritten)[-1].iteration == 3
    assert [event.iteration for event in recorder.of(Displayed)] == [0, 1, 2]


def test_a_snapshot_can_be_asked_for(least_squares, tmp_path):
    recorder = Recorder()
    with make_solver(least_squares, "max_iter: 3", tmp_path, recorder=recorder) as solver:
        solver.request_snapshot()
        solver.solve()
    assert [event.iteration for event in recorder.of(SnapshotWritten)] == [1]


def test_that_there_is_nothing_to_train_is_said(least_squares, tmp_path):
    recorder = Recorder()
    with make_solver(least_squares, "max_iter: 2", tmp_path, recorder=recorder) as solver:
        solver.solve()
        assert not [event for event in recorder.of(Warned) if "nothing to train" in event.text]
        solver.solve()
    assert [event.text for event in recorder.of(Warned)][-1] == "nothing to train: iteration 2, max_iter 2"
    # What is warned of before `Started` is the same on all ranks: trainers of `comm_param.sync` leave it to rank 0.
    warned, started = (recorder.events.index(recorder.of(kind)[-1]) for kind in (Warned, Started))
    assert warned < started


def test_weights_are_copied_by_layer_name_and_later_files_win(least_squares, tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        with make_solver(least_squares, f'snapshot_prefix: "{tmp_path}/{name}"', tmp_path) as solver:
            solver.net.arena.data.fill_(value)
            solver.snapshot()
    recorder = Recorder()
    fields = f'weights: "{tmp_path}/a_iter_0.caffemodel,{tmp_path}/b_iter_0.caffemodel"'
    with make_solver(least_squares, fields, tmp_path, recorder=recorder) as solver:
        assert solver.net.arena.data.tolist() == [2.0] * 5
        assert [event.net for event in recorder.of(WeightsCopied)] == ["train", "train"]
    with make_solver(least_squares, fields, tmp_path, weights=[]) as solver:
        assert solver.net.arena.data.tolist() != [2.0] * 5


def test_weights_of_another_shape_are_refused(tmp_path):
    net = data_layer(write_data(tmp_path, classes=3), 5) + CLASSIFIER
    with make_solver(net, "", tmp_path) as solver:
        solver.snapshot()
    other = net.replace("num_output: 6", "num_output: 7")
    with pytest.raises(NetError, match="'ip1'"):
        make_solver(other, f'weights: "{tmp_path}/net_iter_0.caffemodel"', tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stopped_and_resumed_equals_never_stopped(tmp_path, dtype):
    listing = write_data(tmp_path, classes=3)
    net = data_layer(listing, 3, "TRAIN") + data_layer(listing, 5, "TEST") + DROPOUT
    fields = (
        "max_iter: 20 display: 1 average_loss: 4 momentum: 0.9 weight_decay: 0.01 test_iter: 2"
        ' test_interval: 5 snapshot: 9 lr_policy: "multistep" gamma: 0.5 stepvalue: 6 stepvalue: 12'
        " base_lr: 0.1 iter_size: 2"
    )
    whole, resumed = Recorder(), Recorder()
    with make_solver(net, fields, tmp_path, recorder=whole, dtype=dtype) as solver:
        solver.solve()
        weights = weights_of(solver)
    with make_solver(net, fields, tmp_path, recorder=resumed, dtype=dtype) as solver:
        solver.restore(f"{tmp_path}/net_iter_9.solverstate")
        solver.solve()
        assert torch.equal(weights_of(solver), weights)
    assert resumed.losses == whole.losses[9:]
    assert resumed.shown == whole.shown[9:]
    assert [event.scores for event in resumed.of(Tested)] == [event.scores for event in whole.of(Tested)[2:]]
    assert [event.iteration for event in resumed.of(Restored)] == [9]


def test_the_window_of_losses_starts_anew_at_each_step_call(least_squares, tmp_path):
    recorder = Recorder()
    with make_solver(least_squares, "average_loss: 10 display: 1", tmp_path, recorder=recorder) as solver:
        solver.step(2)
        solver.step(2)
    losses = recorder.losses
    expected = [losses[0], (losses[0] + losses[1]) / 2, losses[2], (losses[2] + losses[3]) / 2]
    assert recorder.shown == pytest.approx(expected)


def test_the_files_of_a_snapshot_are_caffes(least_squares, tmp_path):
    recorder = Recorder()
    fields = 'snapshot: 3 momentum: 0.9 lr_policy: "step" stepsize: 2 gamma: 0.5 base_lr: 0.01'
    with make_solver(least_squares, fields, tmp_path, recorder=recorder, dtype=torch.float32) as solver:
        solver.step(3)
        net = NetParameter.FromString((tmp_path / "net_iter_3.caffemodel").read_bytes())
        state = SolverState.FromString((tmp_path / "net_iter_3.solverstate").read_bytes())
        ip = next(layer for layer in net.layer if layer.name == "ip")
        np.testing.assert_array_equal(blob_array(ip.blobs[0]), solver.net.parameters[0].data.numpy())
    assert (state.iter, state.current_step) == (3, 1)
    assert [list(blob.shape.dim) for blob in state.history] == [[1, 4], [1]]
    assert [event.kind for event in recorder.of(SnapshotWriting)] == ["weights", "state"]
    assert not ip.blobs[0].diff


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("policy", ['"step" stepsize: 5', '"multistep" stepvalue: 5 stepvalue: 10'])
def test_a_snapshot_at_a_step_of_the_rate_counts_as_caffes_does_and_is_gone_on_from(
    least_squares, tmp_path, policy, form
):
    fields = f"snapshot: 5 base_lr: 0.01 gamma: 0.5 lr_policy: {policy} display: 1 snapshot_format: {form}"
    whole = Recorder()
    with make_solver(least_squares, fields, tmp_path, recorder=whole) as solver:
        solver.step(12)
    ending = ".h5" if form == "HDF5" else ""
    states = [tmp_path / f"net_iter_{iteration}.solverstate{ending}" for iteration in (5, 10)]
    assert [read_state(path).progress.current_step for path in states] == [0, 1]
    resumed = Recorder()
    with make_solver(least_squares, fields, tmp_path, recorder=resumed) as solver:
        solver.restore(str(states[0]))
        solver.step(7)
    assert [event.rate for event in resumed.of(LearningRate)] == [event.rate for event in whole.of(LearningRate)][5:]
    steps = [f"MultiStep Status: Iteration {iteration}, step = {iteration // 5}" for iteration in (5, 10)]
    for recorder in (whole, resumed):
        told = [event.text for event in recorder.of(Noted) if "Status" in event.text]
        assert told == (steps if "multistep" in policy else [])


def test_snapshot_diff_stores_the_last_step(least_squares, tmp_path):
    with make_solver(least_squares, "snapshot: 3 snapshot_diff: true momentum: 0.9", tmp_path) as solver:
        solver.step(2)
        before = solver.net.parameters[0].data.clone()
        solver.step(1)
        after = solver.net.parameters[0].data
        net = NetParameter.FromString((tmp_path / "net_iter_3.caffemodel").read_bytes())
        ip = next(layer for layer in net.layer if layer.name == "ip")
        np.testing.assert_allclose(blob_array(ip.blobs[0], diff=True), (before - after).numpy(), rtol=1e-9)


@pytest.mark.parametrize("field", ["snapshot: 10", "snapshot_after_train: true"])
def test_an_unwritable_prefix_is_refused_before_any_training(least_squares, tmp_path, field):
    with pytest.raises(SnapshotError, match=r"missing/net") as caught:
        make_solver(least_squares, f'{field} snapshot_prefix: "{tmp_path}/missing/net"', tmp_path)
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


def test_a_caffemodel_is_no_snapshot(least_squares, tmp_path):
    with make_solver(least_squares, "", tmp_path) as solver:
        solver.snapshot()
        with pytest.raises(SnapshotError, match="caffemodel"):
            solver.restore(f"{tmp_path}/net_iter_0.caffemodel")


def test_unset_fields_that_a_policy_reads_are_warned_about(least_squares, tmp_path):
    recorder = Recorder()
    with make_solver(least_squares, 'lr_policy: "exp" base_lr: 1', tmp_path, recorder=recorder):
        pass
    assert "reads gamma, which is not set" in recorder.of(Warned)[0].text


def test_gpu_mode_without_a_gpu_warns_and_goes_on(least_squares, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recorder = Recorder()
    with make_solver(least_squares, "solver_mode: GPU", tmp_path, recorder=recorder) as solver:
        solver.step(1)
        assert solver.net.device.type == "cpu"
    assert [event.text for event in recorder.of(Warned) if "GPU" in event.text]


def test_a_bad_solver_leaves_no_thread_behind(least_squares, tmp_path):
    import threading

    before = set(threading.enumerate())
    with pytest.raises(SolverError, match="unknown solver type"):
        make_solver(least_squares, 'type: "Newton"', tmp_path)
    assert set(threading.enumerate()) <= before
