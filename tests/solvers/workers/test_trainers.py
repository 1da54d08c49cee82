"""Several trainers, each with several workers: ranks as threads."""

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import DataError
from mgcaffe.prototxt import SolverState
from mgcaffe.solvers.events import Finished, Started
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data
from tests.support.worker_order import NORMALIZED, nets_of, running_workers, slow_down

TRAINERS, WORKERS, BATCH = 2, 2, 3


def fields(text="max_iter: 8", sync="SHADOW_MA", extra=""):
    return f"{text} comm_param {{ sync: {sync} hogwild_threads: {WORKERS} {extra} }}"


def train(folder, text, *, net=CLASSIFIER, before=None, restore=None):
    """Each trainer's (solver, recorder, weights), after `solve`."""
    net = data_layer(write_data(folder, records=24, classes=3), BATCH) + net

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net, text, folder, recorder=recorder, communicator=communicator, keep_blobs=True) as solver:
            if restore:
                solver.restore(restore)
            if before:
                before(solver, communicator.rank)
            solver.solve()
            return solver, recorder, weights_of(solver)

    results = run_ranks(TRAINERS, rank)
    assert not running_workers()
    return results


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("sync", ["NONE", "MA", "SHADOW_MA", "SHADOW_EASGD", "DS_SYNC"])
def test_all_workers_of_all_trainers_share_out_the_records(tmp_path, sync, lock):
    seen = {}

    def watch(solver, rank):
        for number, net in enumerate(nets_of(solver)):
            mine = seen.setdefault((rank, number), [])
            net.after_forward.append(
                lambda index, net=net, mine=mine: mine.extend(net.blobs["data"].data[:, 0].tolist()) if not index else 0
            )

    results = train(tmp_path, fields(sync=sync, extra=f"hogwild_lock: {str(lock).lower()}"), before=watch)
    with h5py.File(tmp_path / "data.h5") as file:
        values = np.asarray(file["data"][:, 0], dtype=np.float64)
    for rank, (solver, recorder, weights) in enumerate(results):
        assert torch.isfinite(weights).all()
        for number, net in enumerate(nets_of(solver)):
            expected = np.resize(values[rank * WORKERS + number :: TRAINERS * WORKERS], 8 * BATCH)
            assert seen[rank, number] == expected.tolist()
            assert net.data_layers[0].position() == 8 * TRAINERS * WORKERS * BATCH
        (started,), (finished,) = recorder.of(Started), recorder.of(Finished)
        assert started.batch_size == TRAINERS * WORKERS * BATCH
        assert finished.images == 8 * TRAINERS * WORKERS * BATCH
        assert (solver._workers.lock is solver._replicas.lock) is lock


def test_replicas_are_the_same_again_after_a_round_in_which_nobody_learns(tmp_path):
    """All meet at a snapshot, after which the rate is 0; what workers do without a lock is still what they had read."""
    text = 'lr_policy: "multifixed" stagelr: 0.1 stagelr: 0 stageiter: 5 stageiter: 9 snapshot: 10 max_iter: 20'
    results = train(tmp_path, fields(text, "MA", "sync_every: 4 hogwild_lock: true"), net=NORMALIZED)
    trained = results[0][0].net.arena.trainable
    assert torch.allclose(results[0][2][:trained], results[1][2][:trained], rtol=0, atol=1e-12)
    assert float(results[0][2][:trained].abs().sum()) > 0


def test_a_stop_ends_all_workers_of_all_trainers(tmp_path):
    def stop(solver, rank):
        slow_down(nets_of(solver)[1], 0.002)
        if rank == 1:
            solver.net.before_forward.append(lambda index: solver.iteration == 3 and solver.request_stop())

    results = train(tmp_path, fields("max_iter: 100000"), before=stop)
    for solver, recorder, _ in results:
        assert [worker.iteration for worker in solver._workers._others] == [solver.iteration]
        assert solver.iteration < 100000
        assert recorder.of(Finished)[0].stopped_early


def test_an_error_of_a_worker_ends_all_trainers(tmp_path):
    def break_worker(solver, rank):
        def fail(index):
            if solver._workers._others[0].iteration == 3:
                raise DataError("a record is damaged")

        if rank == 1:
            nets_of(solver)[1].before_forward.append(fail)

    with pytest.raises(DataError, match="a record is damaged"):
        train(tmp_path, fields("max_iter: 100000"), before=break_worker)


def test_stopped_and_resumed_goes_on_where_the_workers_stood(tmp_path):
    train(tmp_path, fields("max_iter: 6 snapshot: 4", "MA", "sync_every: 2"), net=NORMALIZED)
    state = SolverState.FromString((tmp_path / "net_iter_4.solverstate").read_bytes())
    assert [each.records for each in state.engine_state.records] == [4 * TRAINERS * WORKERS * BATCH]
    resumed = train(
        tmp_path, fields("max_iter: 6", "MA", "sync_every: 2"), net=NORMALIZED,
        restore=f"{tmp_path}/net_iter_4.solverstate",
    )  # fmt: skip
    for solver, _, _ in resumed:
        reached = [net.data_layers[0].position() for net in nets_of(solver)]
        assert max(reached) == min(reached) >= 6 * TRAINERS * WORKERS * BATCH
