"""Trainers with replicas of their own, as threads: exact where theory says so, with an orderly end at any pace."""

import math

import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import NotFiniteError, SolverError
from mgcaffe.solvers.events import Finished, Noted, Synchronized, Warned
from mgcaffe.solvers.replicas.replicas import Replicas
from tests.support.solverkit import CLASSIFIER, LEAST_SQUARES, Recorder, data_layer, make_solver, weights_of, write_data

NORMALIZED = CLASSIFIER.replace(
    'layer { name: "tanh"', 'layer { name: "bn" type: "BatchNorm" bottom: "ip1" top: "ip1" }\nlayer { name: "tanh"'
)


def _train(size, folder, fields, *, net=CLASSIFIER, restore=None, iterations=None, before=None):
    """Solve on every rank; return each one's (weights, recorder, solver)."""
    text = data_layer(write_data(folder, classes=3 if net != LEAST_SQUARES else 0), 2) + net

    def rank(communicator):
        recorder = Recorder()
        with make_solver(text, fields, folder, recorder=recorder, communicator=communicator) as solver:
            if restore:
                solver.restore(restore)
            if before:
                before(solver, communicator.rank)
            if iterations is None:
                solver.solve()
            else:
                solver.step(iterations)
            return weights_of(solver), recorder, solver

    return run_ranks(size, rank)


@pytest.mark.parametrize(
    ("sync", "size"), [("MA", 2), ("MA", 3), ("MA", 4), ("BMUF", 3), ("DS_SYNC", 2), ("DS_SYNC", 3)]
)
def test_averaging_replicas_after_every_iteration_is_averaging_gradients(tmp_path, size, sync):
    fields = "max_iter: 50 weight_decay: 0.01 iter_size: 2 "
    # Without ignored labels a mean of losses over the ranks is the loss of all their records.
    in_step = _train(size, tmp_path, fields, net=LEAST_SQUARES)
    apart = _train(
        size, tmp_path, fields + f"comm_param {{ sync: {sync} sync_every: 1 block_momentum: 0 }}", net=LEAST_SQUARES
    )
    for (one, *_), (two, *_) in zip(in_step, apart, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("solver_type", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
@pytest.mark.parametrize("sync", ["MA", "SHADOW_MA", "SHADOW_EASGD"])
def test_every_solver_type_trains_under_every_pace(tmp_path, solver_type, sync):
    fields = (
        f'type: "{solver_type}" max_iter: 12 iter_size: 2 weight_decay: 0.01 lr_policy: "step" stepsize: 5 gamma: 0.5'
        f" base_lr: 0.01 delta: 1e-6 comm_param {{ sync: {sync} sync_every: 3 }}"
    )
    if solver_type in ("SGD", "Nesterov", "Adam"):
        fields += " momentum: 0.9"
    results = _train(2, tmp_path, fields)
    assert all(bool(torch.isfinite(weights).all()) for weights, *_ in results)
    (finished,) = results[0][1].of(Finished)
    assert finished.iterations == (12, 12) and finished.images == 2 * 12 * 2 * 2
    if sync == "MA":
        assert torch.equal(results[0][0], results[1][0])
        assert (finished.synchronization.synchronizations, finished.synchronization.gap) == (4, 3)
    assert math.isfinite(finished.examples_per_s)


def test_statistics_of_batch_norm_travel_and_histories_do_not(tmp_path):
    fields = "max_iter: 6 momentum: 0.9 comm_param { sync: MA sync_every: 3 }"
    (one, _, first), (two, _, second) = _train(2, tmp_path, fields, net=NORMALIZED)
    arena = first.net.arena
    assert arena.kept_together > arena.trainable
    assert torch.equal(one, two)
    assert not torch.equal(first._updater.histories[0], second._updater.histories[0])


def test_none_keeps_replicas_apart_and_the_mean_of_all_is_tested(tmp_path):
    listing = write_data(tmp_path)
    net = data_layer(listing, 2, "TRAIN") + data_layer(listing, 11, "TEST") + LEAST_SQUARES
    fields = "max_iter: 8 display: 4 test_iter: 2 test_interval: 8 comm_param { sync: NONE }"

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.solve()
            mean = communicator.allgather(weights_of(solver))
            solver.net.arena.data.copy_(sum(mean) / len(mean))
            solver.test_all()
            return weights_of(solver), recorder, mean, solver.scores

    results = run_ranks(3, rank)
    replicas = results[0][2]
    assert not torch.equal(replicas[0], replicas[1]) and not torch.equal(replicas[1], replicas[2])
    (finished,) = results[0][1].of(Finished)
    assert finished.synchronization.synchronizations == 0 and math.isinf(finished.synchronization.gap)
    assert finished.mean_scores[0][0].value == pytest.approx(results[0][3][0][0].value, rel=1e-12)
    assert finished.mean_scores != finished.scores
    assert [event.iteration for event in results[0][1].of(Synchronized)] == [0, 4]
    assert not results[1][1].of(Finished)[0].scores  # trainer 0 alone tests


def test_the_mean_of_all_is_tested_on_the_records_of_the_replicas_test(tmp_path):
    listing = write_data(tmp_path)
    net = data_layer(listing, 2, "TRAIN") + data_layer(listing, 5, "TEST") + LEAST_SQUARES
    fields = "max_iter: 4 test_iter: 2 test_interval: 2 comm_param { sync: MA sync_every: 2 }"

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.solve()
        return recorder.of(Finished)[0]

    finished = run_ranks(2, rank)[0]
    assert finished.scores and finished.mean_scores == finished.scores  # after a round all replicas are equal


@pytest.mark.parametrize("sync", ["MA", "BMUF"])
def test_stopped_at_a_round_and_resumed_equals_never_stopped(tmp_path, sync):
    fields = f"max_iter: 12 comm_param {{ sync: {sync} sync_every: 3 block_momentum: 0.5 }}"
    whole = _train(2, tmp_path, fields)
    _train(2, tmp_path, fields.replace("12", "6") + " snapshot_after_train: true")
    resumed = _train(2, tmp_path, fields, restore=f"{tmp_path}/net_iter_6.solverstate")
    for (one, *_), (two, *_) in zip(whole, resumed, strict=True):
        assert torch.equal(one, two)
    (text,) = [each.text for each in resumed[0][1].of(Noted) if "go on" in each.text]
    assert text == ("all 2 trainers go on at iteration 6 from the snapshot's one replica")


def test_another_number_of_trainers_goes_on_and_says_what_was_merged(tmp_path):
    fields = "max_iter: 6 snapshot_after_train: true comm_param { sync: BMUF sync_every: 2 }"
    _train(2, tmp_path, fields)
    state = f"{tmp_path}/net_iter_6.solverstate"
    longer = fields.replace("max_iter: 6", "max_iter: 9")
    for size, said in ((3, "all 3 trainers go on at iteration 6"), (1, "of 2 replicas the snapshot holds trainer 0's")):
        results = _train(size, tmp_path, longer, restore=state)
        assert any(said in event.text for event in results[0][1].of(Noted))
        assert any(f"training goes on with {size}" in event.text for event in results[0][1].of(Warned))
        assert all(solver.iteration == 9 for *_, solver in results)
    other = _train(2, tmp_path, longer.replace("BMUF", "EASGD"), restore=state)
    assert any("is of another rule or net" in event.text for event in other[0][1].of(Warned))


@pytest.mark.parametrize("sync", ["MA", "SHADOW_MA", "NONE"])
def test_a_stop_that_one_trainer_asks_for_ends_all(tmp_path, sync):
    def before(solver, rank):
        if rank == 1:
            solver.add_callback(lambda: solver.request_stop() if solver.iteration == 20 else None, lambda: None)

    fields = f"max_iter: 1000000 comm_param {{ sync: {sync} }}"
    results = _train(2, tmp_path, fields, before=before)
    for _, recorder, solver in results:
        assert recorder.of(Finished)[0].stopped_early and solver.iteration < 1000000
    assert results[1][2].iteration > 20
    counts = results[0][1].of(Finished)[0].iterations
    assert counts == tuple(solver.iteration for *_, solver in results)
    if len(set(counts)) > 1:
        said = [event.text for event in results[0][1].of(Warned)]
        assert f"the trainers ended after different numbers of iterations: {counts[0]}, {counts[1]}" in said


def test_a_snapshot_that_another_trainer_asks_for_is_taken(tmp_path):
    def before(solver, rank):
        if rank == 1:
            solver.add_callback(lambda: solver.request_snapshot() if solver.iteration == 3 else None, lambda: None)

    _train(2, tmp_path, "max_iter: 600 comm_param { sync: MA sync_every: 200 }", before=before)
    assert len(list(tmp_path.glob("net_iter_*.solverstate"))) == 1


def test_no_iteration_at_all_and_a_single_trainer_end_cleanly(tmp_path):
    for fields, size in (("max_iter: 0", 2), ("max_iter: 3", 1)):
        results = _train(size, tmp_path, fields + " comm_param { sync: SHADOW_MA }")
        (finished,) = results[0][1].of(Finished)
        assert finished.iterations == (int(fields[-1]),) * size
    said = [event.text for event in results[0][1].of(Warned)]
    assert "solver: sync SHADOW_MA has no effect: there is one trainer" in said


def test_looking_ahead_without_tables_warns(tmp_path):
    results = _train(2, tmp_path, "max_iter: 0 comm_param { sync: SHADOW_MA lookahead: 1 }")
    (said,) = [event.text for event in results[0][1].of(Warned) if "lookahead" in event.text]
    assert said == "comm_param.lookahead has no effect: the training net has no layer of type EmbeddingBag"


def test_a_loss_that_is_not_finite_is_said_of_its_trainer(tmp_path):
    def before(solver, rank):
        if rank == 1:
            solver.net.arena.data[0] = math.nan

    with pytest.raises(NotFiniteError, match=r"rank 1 \(.*\), loss nan: parameter 0"):
        _train(2, tmp_path, "max_iter: 3 comm_param { sync: NONE }", before=before)


def test_snapshots_of_all_replicas_go_on_as_if_never_stopped(tmp_path):
    """With momentum, whose histories each trainer has its own, as its losses; stopped where replicas differ."""
    fields = "max_iter: 11 momentum: 0.9 display: 1 average_loss: 5"
    fields += " comm_param { sync: BMUF sync_every: 3 snapshot_replicas: true }"
    whole = _train(3, tmp_path, fields)
    _train(3, tmp_path, fields.replace("11", "7") + " snapshot_after_train: true")
    resumed = _train(3, tmp_path, fields, restore=f"{tmp_path}/net_iter_7.solverstate")
    for (one, before, _), (two, after, _) in zip(whole, resumed, strict=True):
        assert torch.equal(one, two)
        assert after.shown == before.shown[7:]
    assert any("each from its own replica" in event.text for event in resumed[0][1].of(Noted))
    (tmp_path / "net.trainer_2_iter_7.solverstate").unlink()
    merged = _train(3, tmp_path, fields, restore=f"{tmp_path}/net_iter_7.solverstate")
    (said,) = [event.text for event in merged[1][1].of(Warned) if "cannot be put back" in event.text]
    assert "there is no" in said and "net.trainer_2_iter_7.solverstate" in said
    assert any("one replica" in event.text for event in merged[0][1].of(Noted))


@pytest.mark.parametrize(("size", "groups", "at"), [(4, "FACTORS", 6), (4, "GRID", 2), (6, "FACTORS", 6)])
def test_groups_in_turn_go_on_from_where_the_snapshot_was_taken(tmp_path, size, groups, at):
    """In the middle of a period of rounds, of which the second one's groups are due."""
    fields = f"max_iter: 11 snapshot: {at} comm_param {{ sync: DS_SYNC sync_every: 2 sync_groups: {groups}"
    fields += " snapshot_replicas: true }"
    whole = _train(size, tmp_path, fields)
    resumed = _train(size, tmp_path, fields, restore=f"{tmp_path}/net_iter_{at}.solverstate")
    for (one, *_), (two, *_) in zip(whole, resumed, strict=True):
        assert torch.equal(one, two)


def test_a_trainer_that_was_ahead_goes_on_from_trainer_0s_iteration(tmp_path, monkeypatch):
    iterations = Replicas.iterations

    def ahead(self, own):
        return (2, 4, 4, 4) if self._rank == 0 and own == 2 else iterations(self, own)

    fields = "max_iter: 11 snapshot: 2 comm_param { sync: DS_SYNC sync_every: 2 sync_groups: GRID"
    fields += " snapshot_replicas: true }"
    with monkeypatch.context() as patched:
        patched.setattr(Replicas, "iterations", ahead)
        whole = _train(4, tmp_path, fields)
    resumed = _train(4, tmp_path, fields, restore=f"{tmp_path}/net_iter_2.solverstate")
    for (one, *_), (two, *_) in zip(whole, resumed, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("sync", ["MA sync_every: 100000000", "SHADOW_MA sync_interval_ms: 1e6"])
def test_a_stop_does_not_wait_for_the_next_round(tmp_path, sync):
    """Nor for a trainer's own training: trainer 0 has done its part when it is asked."""

    def before(solver, rank):
        if rank == 0:
            solver.param.max_iter = 5
            finish = solver.finish_training
            solver.finish_training = lambda: (solver.request_stop(), finish())

    results = _train(2, tmp_path, f"max_iter: 100000000 comm_param {{ sync: {sync} }}", before=before)
    assert results[0][2].iteration == 5
    assert all(recorder.of(Finished)[0].stopped_early for _, recorder, _ in results)


def test_rounds_that_are_served_for_others_are_no_synchronizations(tmp_path):
    def before(solver, rank):
        solver.param.max_iter = 4 if rank == 0 else 40

    results = _train(2, tmp_path, "max_iter: 40 comm_param { sync: MA sync_every: 2 }", before=before)
    finished = [recorder.of(Finished)[0] for _, recorder, _ in results]
    assert [each.synchronization.gap for each in finished] == [2, 2]
    assert [each.synchronization.synchronizations for each in finished] == [2, 20]
    assert finished[0].iterations == (4, 40)


def test_the_last_snapshot_is_of_the_replica_that_is_tested(tmp_path):
    """Trainer 0 is done early, and its replica is still synchronized with the other one's."""
    listing = write_data(tmp_path)
    net = data_layer(listing, 2, "TRAIN") + data_layer(listing, 11, "TEST") + LEAST_SQUARES
    fields = (
        "max_iter: 40 snapshot: 4 snapshot_after_train: true test_iter: 2 test_interval: 1000"
        " test_initialization: false comm_param { sync: MA sync_every: 2 }"
    )

    def rank(communicator):
        with make_solver(net, fields, tmp_path, communicator=communicator) as solver:
            solver.param.max_iter = 4 if communicator.rank == 0 else 40
            solver.solve()
            return weights_of(solver), solver.scores

    (weights, scores), _ = run_ranks(2, rank)
    assert scores  # though no test is due at iteration 4
    with make_solver(net, "max_iter: 40", tmp_path, dtype=torch.float32) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate")
        np.testing.assert_allclose(weights_of(solver), weights, rtol=1e-6)


def test_statistics_of_batch_norm_have_no_block_momentum(tmp_path):
    """With it a falling variance becomes negative."""
    fields = "max_iter: 12 comm_param { sync: BMUF sync_every: 3 block_momentum: 0.9 }"
    (one, _, solver), _ = _train(2, tmp_path, fields, net=NORMALIZED)
    arena, state = solver.net.arena, solver._replicas.state
    assert not state["velocity"][arena.trainable :].any() and state["velocity"][: arena.trainable].any()
    np.testing.assert_array_equal(state["model"][arena.trainable :], one[arena.trainable : arena.kept_together])


def test_settings_that_leave_replicas_apart_are_warned_about(tmp_path):
    results = _train(2, tmp_path, "max_iter: 3 nan_effect: SNAPSHOT comm_param { sync: MA sync_every: 7 }")
    said = " ".join(event.text for event in results[0][1].of(Warned))
    assert "sync_every is 7, above max_iter: replicas are never synchronized" in said
    assert "nan_effect SNAPSHOT writes trainer 0's replica alone" in said


def test_alpha_damps_what_separates_replicas_and_not_block_momentum_in_the_foreground_too(tmp_path):
    fields = "max_iter: 6 comm_param { sync: BMUF sync_every: 3 block_momentum: 0.5 alpha: 0.25 }"
    (one, _, solver), (two, *_) = _train(2, tmp_path, fields, net=LEAST_SQUARES)
    np.testing.assert_allclose((one + two) / 2, solver._replicas.state["model"], rtol=1e-12)
    assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("sync: EASGD sync_servers: 1", "sync_servers is 1, and this solver was given none"),
        ("sync: MA sync_servers: 1", "sync MA has no centre"),
        ("sync: MA on_trainer_loss: CONTINUE", "on_trainer_loss CONTINUE needs synchronization servers"),
    ],
)
def test_a_solver_refuses_what_needs_servers_that_it_was_not_given(tmp_path, fields, said):
    with pytest.raises(SolverError, match=said):
        _train(2, tmp_path, f"comm_param {{ {fields} }}", net=LEAST_SQUARES)
