"""A loss or gradient that is not finite: no rank updates, and the message names rank, iteration and blob."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import NotFiniteError
from mgcaffe.solvers.events import IterationDone, Warned
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.monitor.finite_check import LOSS_OF_NO_PROBABILITY, SKIPS_IN_A_ROW
from tests.support.solverkit import CLASSIFIER, LEAST_SQUARES, Recorder, data_layer, make_solver, weights_of, write_data

BATCH = 4


def spoiled(folder, *, record, value=np.nan, net=LEAST_SQUARES, ranks=1, classes=0, records=40):
    """A net whose data have one bad number, and the iteration that reads it."""
    listing = write_data(folder, records=records, classes=classes)
    with h5py.File(folder / "data.h5", "a") as file:
        file["data"][record, 1] = value
    return data_layer(listing, BATCH) + net, record // (BATCH * ranks)


def test_a_bad_number_stops_before_the_update_and_names_the_first_blob(tmp_path):
    net, bad = spoiled(tmp_path, record=9)
    with make_solver(net, "momentum: 0.9", tmp_path) as solver:
        solver.step(bad)
        before = weights_of(solver)
        with pytest.raises(NotFiniteError) as caught:
            solver.step(1)
        assert torch.equal(weights_of(solver), before)
        assert solver.iteration == bad
    message = str(caught.value)
    assert caught.value.exit_code == 71
    assert f"iteration {bad}: a loss or gradient is not finite; the weights have not been updated" in message
    assert "rank 0" in message
    assert "blob 'data', made by layer 'data' (HDF5Data): 1 of 16 values are not finite (1 nan, 0 infinite)" in message


def test_a_trainer_with_a_replica_of_its_own_says_nothing_of_the_others(tmp_path):
    net, _ = spoiled(tmp_path, record=9, ranks=2)

    def rank(communicator):
        recorder = Recorder()
        fields = "nan_effect: SKIP comm_param { sync: MA }"
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.step(5)
        return [event.text for event in recorder.of(Warned)]

    fine, said = run_ranks(2, rank)
    assert not fine
    assert "iteration 1: a loss or gradient is not finite; the weights have not been updated\n  rank 1 " in said[0]


def test_an_infinite_gradient_behind_a_finite_loss_is_found(tmp_path):
    # The product of weight and gradient overflows in backward only.
    net = """
    layer { name: "power" type: "Power" bottom: "data" top: "small" power_param { scale: 1e-20 } }
    layer { name: "ip" type: "InnerProduct" bottom: "small" top: "ip"
      inner_product_param { num_output: 1 weight_filler { type: "gaussian" } } }
    layer { name: "back" type: "Power" bottom: "ip" top: "back" power_param { scale: 1e20 } }
    layer { name: "loss" type: "EuclideanLoss" bottom: "back" bottom: "label" top: "loss" loss_weight: 1e20 }
    """
    with make_solver(data_layer(write_data(tmp_path), BATCH) + net, "", tmp_path, dtype=torch.float32) as solver:
        before = weights_of(solver)
        with pytest.raises(NotFiniteError, match=r"the gradient of .*'(back|ip)'"):
            solver.step(1)
        assert torch.equal(weights_of(solver), before)


def test_an_infinite_gradient_of_a_layer_that_runs_fused_is_named(tmp_path):
    """BatchNorm, Scale and ReLU run as one; the Scale's sums of gradients that are finite one by one overflow."""
    net = """
    layer { name: "norm" type: "BatchNorm" bottom: "data" top: "norm" }
    layer { name: "scale" type: "Scale" bottom: "norm" top: "norm"
      scale_param { filler { type: "constant" value: 1e-10 } bias_term: true
        bias_filler { type: "constant" value: 1e-10 } } }
    layer { name: "relu" type: "ReLU" bottom: "norm" top: "norm" }
    layer { name: "loss" type: "Reduction" bottom: "norm" top: "loss" loss_weight: 2e38 }
    """
    with make_solver(data_layer(write_data(tmp_path), BATCH) + net, "", tmp_path, dtype=torch.float32) as solver:
        assert "BatchNormScale" in [type(step.layer).__name__ for step in solver.net.steps]
        with pytest.raises(NotFiniteError, match=r"the gradient of parameter \d, made by layer 'scale' \(Scale\)"):
            solver.step(1)


def test_weights_that_are_bad_from_the_start_are_named(tmp_path):
    with make_solver(data_layer(write_data(tmp_path), BATCH) + LEAST_SQUARES, "", tmp_path) as solver:
        solver.net.parameters[0].data[0, 0] = float("inf")
        with pytest.raises(NotFiniteError, match="parameter 0 of layer 'ip', before the pass: 1 of 4 values"):
            solver.step(1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_skipped_batch_leaves_no_trace(tmp_path, ranks):
    """The run goes on as one whose bad batch had a rate of 0."""
    net, bad = spoiled(tmp_path, record=9, ranks=ranks)
    listing = tmp_path / "data.txt"
    good = tmp_path / "good"
    good.mkdir()
    clean = data_layer(write_data(good, records=40), BATCH) + LEAST_SQUARES

    def skipping(communicator):
        recorder = Recorder()
        options = {"recorder": recorder, "communicator": communicator}
        with make_solver(net, "nan_effect: SKIP", tmp_path, **options) as solver:
            solver.step(4)
            return weights_of(solver), [e.iteration for e in recorder.of(IterationDone)], recorder.of(Warned)

    def passing_over(communicator):
        with make_solver(clean, "", good, communicator=communicator) as solver:
            for iteration in range(4):
                before = weights_of(solver)
                solver.step(1)
                if iteration == bad:
                    solver.net.arena.data.copy_(before)
            return weights_of(solver)

    assert listing.exists()
    results, references = run_ranks(ranks, skipping), run_ranks(ranks, passing_over)
    for (weights, iterations, warnings), reference in zip(results, references, strict=True):
        assert torch.equal(weights, reference)
        assert iterations == [number for number in range(4) if number != bad]
        assert [text for text in (event.text for event in warnings) if "passed over" in text]


def test_one_ranks_bad_number_keeps_all_ranks_from_updating(tmp_path):
    net, bad = spoiled(tmp_path, record=9, ranks=2, net=CLASSIFIER, classes=3)

    def work(communicator):
        with make_solver(net, "", tmp_path, communicator=communicator) as solver:
            solver.step(bad)
            before = weights_of(solver)
            with pytest.raises(NotFiniteError) as caught:
                solver.step(1)
            return torch.equal(weights_of(solver), before), str(caught.value)

    (kept, message), other = run_ranks(2, work)
    assert kept and other == (kept, message)
    # Rank 1 reads every odd record.
    assert "rank 1" in message and "blob 'data'" in message and "rank 0" not in message


def test_a_batch_that_stays_bad_is_not_skipped_for_ever(tmp_path):
    net = data_layer(write_data(tmp_path), BATCH) + LEAST_SQUARES
    with make_solver(net, "nan_effect: SKIP", tmp_path) as solver:
        solver.net.parameters[0].data.fill_(float("nan"))
        with pytest.raises(NotFiniteError, match=f"the {SKIPS_IN_A_ROW}th batch in a row"):
            solver.step(100)
        assert solver.iteration == SKIPS_IN_A_ROW - 1


def test_bad_batches_that_come_between_good_ones_are_all_passed_over(tmp_path):
    net, _ = spoiled(tmp_path, record=0, records=2 * BATCH)
    recorder = Recorder()
    with make_solver(net, "nan_effect: SKIP", tmp_path, recorder=recorder) as solver:
        solver.step(2 * SKIPS_IN_A_ROW)
    assert len(recorder.of(Warned)) == len(recorder.of(IterationDone)) == SKIPS_IN_A_ROW


def test_with_nan_effect_snapshot_the_last_good_weights_are_saved(tmp_path):
    net, bad = spoiled(tmp_path, record=9)
    with make_solver(net, "nan_effect: SNAPSHOT", tmp_path) as solver:
        solver.step(bad)
        before, positions = weights_of(solver), [layer.position() for layer in solver.net.data_layers]
        with pytest.raises(NotFiniteError):
            solver.step(1)
    state = tmp_path / f"net_iter_{bad}.solverstate"
    assert state.exists()
    with make_solver(net, "", tmp_path) as solver:
        solver.restore(str(state))
        assert torch.equal(weights_of(solver), before)
        assert [layer.position() for layer in solver.net.data_layers] == positions


def test_with_nan_effect_snapshot_the_test_before_the_bad_batch_runs_again_on_the_same_records(tmp_path):
    net, bad = spoiled(tmp_path, record=9)
    recorder, fields = Recorder(), f"test_iter: 1 test_interval: {bad}"
    with (
        make_solver(net, f"nan_effect: SNAPSHOT {fields}", tmp_path, recorder=recorder) as solver,
        pytest.raises(NotFiniteError),
    ):
        solver.step(bad + 1)
    with make_solver(net, f"nan_effect: SKIP {fields}", tmp_path, recorder=recorder) as solver:
        solver.restore(str(tmp_path / f"net_iter_{bad}.solverstate"))
        solver.step(1)
    _, once, again = recorder.of(Tested)
    assert once.iteration == again.iteration == bad
    assert once.scores == again.scores


def test_statistics_that_a_bad_batch_has_spoiled_are_put_back(tmp_path):
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }'
    net, bad = spoiled(tmp_path, record=9, net=norm + LEAST_SQUARES.replace('bottom: "data"', 'bottom: "bn"'))
    with make_solver(net, "nan_effect: SKIP", tmp_path) as solver:
        solver.step(bad + 1)
        assert torch.isfinite(solver.net.arena.data).all()


def test_a_sum_that_overflows_does_not_stop_finite_gradients(tmp_path):
    net = data_layer(write_data(tmp_path), BATCH) + LEAST_SQUARES
    with make_solver(net, "base_lr: 1e-30 lr_policy: 'fixed'", tmp_path, dtype=torch.float32) as solver:
        solver._finite.probe = lambda: float("inf")
        solver.step(2)
        assert solver.iteration == 2


def test_the_loss_of_a_diverged_softmax_is_explained_once(tmp_path):
    net = data_layer(write_data(tmp_path, classes=3), BATCH) + CLASSIFIER.replace("num_output: 3", "num_output: 4")
    fields = "base_lr: 1e-30 lr_policy: 'fixed'"
    recorder = Recorder()
    with make_solver(net, fields, tmp_path, recorder=recorder, dtype=torch.float32) as solver:
        solver.step(1)
        assert not [event for event in recorder.of(Warned) if "FLT_MIN" in event.text]
        solver.net.parameters[3].data[3] = 1e4  # no record is of this class
        solver.step(3)
    assert recorder.losses[-1] == pytest.approx(LOSS_OF_NO_PROBABILITY)
    (warning,) = [event.text for event in recorder.of(Warned) if "FLT_MIN" in event.text]
    assert "87.3365" in warning and "probability of 0" in warning
