"""Workers whose tables lie on embedding servers: each look-up gets one update, whoever trains beside it."""

from __future__ import annotations

import time

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.errors import DataError, NotFiniteError
from mgcaffe.prototxt import blob_array, read_net
from mgcaffe.solvers.events import Finished, TablesLookedUp, Warned
from tests.support.solverkit import make_solver
from tests.support.tablekit import (
    KINDS,
    differences,
    table_net,
    train_tables,
    train_with_servers,
    whole_tensors,
    write_table_data,
)
from tests.support.worker_order import nets_of, running_workers, slow_down, take_turns, workers

RECORDS, BATCH, ROWS = 48, 2, 6

# The loss is the sum of all that is looked up, so each look-up of a row has a gradient of ones.
SUM = """
layer {{ name: "data" type: "HDF5Data" top: "ids" top: "x"
  hdf5_data_param {{ source: "{folder}/ids.txt" batch_size: 2 }} }}
layer {{ name: "bag" type: "EmbeddingBag" bottom: "ids" top: "bag"
  embedding_bag_param {{ input_dim: 6 num_output: 2 weight_filler {{ type: "constant" value: 0 }} }} }}
layer {{ name: "sum" type: "Reduction" bottom: "bag" top: "sum" loss_weight: 1 }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 1 }} }}
layer {{ name: "rest" type: "Reduction" bottom: "ip" top: "rest" loss_weight: 1 }}
"""
EXACT = 'base_lr: 1 lr_policy: "fixed"'


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not running_workers()


@pytest.fixture
def counts(tmp_path):
    """How often one pass over the data, which it writes, looks each row up."""
    random = np.random.default_rng(4)
    ids = random.integers(0, ROWS, (RECORDS, 3))
    with h5py.File(tmp_path / "ids.h5", "w") as file:
        file["ids"] = ids.astype(np.float32)
        file["x"] = random.standard_normal((RECORDS, 2)).astype(np.float32)
    (tmp_path / "ids.txt").write_text(f"{tmp_path}/ids.h5\n")
    return np.bincount(ids.reshape(-1), minlength=ROWS)


def hogwild(count, lock=False):
    return f"hogwild_threads: {count} hogwild_lock: {str(lock).lower()}"


def looked_up(counts):
    """The table after look-ups of rows, at a rate of 1."""
    return torch.from_numpy(np.repeat(-counts[:, np.newaxis].astype(float), 2, axis=1))


def test_one_worker_is_no_hogwild(tmp_path):
    write_table_data(tmp_path)
    net = table_net(tmp_path, 1)
    (one,), _ = train_with_servers(1, tmp_path, net, KINDS["AdaGrad"], 10, workers=hogwild(1))
    assert not differences(one[:3], train_tables(1, tmp_path, net, KINDS["AdaGrad"], 10))


@pytest.mark.parametrize("kind", KINDS)
def test_in_turns_workers_update_tables_of_servers_as_local_ones(tmp_path, kind):
    write_table_data(tmp_path)
    net = table_net(tmp_path, 2)
    (served,), figures = train_with_servers(
        2, tmp_path, net, KINDS[kind], 10, workers=hogwild(2), before=lambda solver, rank: take_turns(solver)
    )
    with make_solver(net, workers(2, KINDS[kind]), tmp_path) as solver:
        take_turns(solver)
        solver.step(10)
        assert not differences(served[:1], [whole_tensors(solver)])
    assert [each.updates for each in figures] == [20, 20]


@pytest.mark.parametrize(("trainers", "ahead", "lock"), [(1, 0, False), (2, 2, False), (2, 1, True)])
def test_every_gradient_is_applied_once(tmp_path, counts, trainers, ahead, lock):
    passes, each = 4, 4 * trainers * BATCH
    fields = f"{EXACT} max_iter: {passes * RECORDS // each} display: 2"
    sync = "NONE" if trainers == 1 else "SHADOW_MA"
    found, figures = train_with_servers(
        2, tmp_path, SUM.format(folder=tmp_path), fields, None,
        trainers=trainers, sync=sync, ahead=ahead, workers=hogwild(4, lock),
    )  # fmt: skip
    assert torch.equal(found[0][0][1], looked_up(passes * counts))
    for _, _, _, recorder in found:
        (finished,) = recorder.of(Finished)
        assert finished.images == passes * RECORDS
        end = recorder.of(TablesLookedUp)[-1].figures
        assert 0 <= end.look_ups - passes * RECORDS / each * 4 <= 4 * ahead
    assert sum(each.updates for each in figures) <= 2 * passes * RECORDS / BATCH


def test_the_end_of_training_waits_for_updates_that_are_on_their_way(tmp_path, counts):
    """Trainer 0 saves and tests the tables then."""

    def hold_up(solver, rank):
        give = solver._tables.client._look_ups.give

        def slow(*arguments):
            time.sleep(0.02)
            give(*arguments)

        if rank == 1:
            solver._tables.client._look_ups.give = slow

    found, _ = train_with_servers(
        1, tmp_path, SUM.format(folder=tmp_path), f"{EXACT} max_iter: 6", None,
        trainers=2, sync="MA", ahead=1, workers=hogwild(2), before=hold_up,
    )  # fmt: skip
    assert torch.equal(found[0][0][1], looked_up(counts))


def test_a_snapshot_holds_all_updates_of_all_workers_and_goes_on_anywhere(tmp_path, counts):
    """After 6 iterations of 4 workers one pass is over, whichever worker is slow."""
    net, fields = SUM.format(folder=tmp_path), f'{EXACT} snapshot: 6 snapshot_prefix: "{tmp_path}/net"'

    def hold_up(solver, rank):
        slow_down(nets_of(solver)[2], 0.002)
        slow_down(nets_of(solver)[0], 0.001)

    workers = f"{hogwild(4)} snapshot_tables: WHOLE"
    (whole,), _ = train_with_servers(
        2, tmp_path, net, fields, 12, ahead=1, workers=workers, before=hold_up, snapshot=True
    )
    assert torch.equal(whole[0][1], looked_up(2 * counts))
    for passes in (1, 2):
        layers = {layer.name: layer for layer in read_net(tmp_path / f"net_iter_{6 * passes}.caffemodel").layer}
        assert np.array_equal(blob_array(layers["bag"].blobs[0]), looked_up(passes * counts))
    options = {"restore": f"{tmp_path}/net_iter_6.solverstate", "ahead": 1, "workers": hogwild(4)}
    (resumed,), _ = train_with_servers(1, tmp_path, net, fields, 6, **options)
    assert torch.equal(resumed[0][1], looked_up(2 * counts))
    options["workers"] = hogwild(2)
    (other,), _ = train_with_servers(1, tmp_path, net, fields, 12, **options)
    assert torch.equal(other[0][1], looked_up(2 * counts))


def test_a_stop_ends_all_workers_of_all_trainers_and_their_servers(tmp_path, counts):
    def stop(solver, rank):
        slow_down(nets_of(solver)[1], 0.002)
        if rank == 1:
            solver.net.before_forward.append(lambda index: solver.iteration == 5 and solver.request_stop())
        stopped.append(solver)

    stopped = []
    found, (figures,) = train_with_servers(
        1, tmp_path, SUM.format(folder=tmp_path), f"{EXACT} max_iter: 1000000", None,
        trainers=2, sync="SHADOW_MA", ahead=1, workers=hogwild(2), before=stop,
    )  # fmt: skip
    for solver, (_, _, _, recorder) in zip(stopped, found, strict=True):
        assert [worker.iteration for worker in solver._workers._others] == [solver.iteration]
        assert recorder.of(Finished)[0].stopped_early
    assert figures.updates == 2 * sum(solver.iteration for solver in stopped)


def test_an_error_of_a_worker_ends_trainers_and_servers(tmp_path, counts):
    def break_worker(solver, rank):
        def fail(index):
            if solver._workers._others[0].iteration == 3:
                raise DataError("a record is damaged")

        if rank == 1:
            nets_of(solver)[1].before_forward.append(fail)

    with pytest.raises(DataError, match="a record is damaged"):
        train_with_servers(
            1, tmp_path, SUM.format(folder=tmp_path), f"{EXACT} max_iter: 1000000", None,
            trainers=2, sync="SHADOW_MA", ahead=1, workers=hogwild(2), before=break_worker,
        )  # fmt: skip


@pytest.mark.parametrize("effect", ["SKIP", "STOP"])
def test_no_table_is_updated_by_a_worker_whose_gradients_are_not_finite(tmp_path, counts, effect):
    """Record 1 is worker 1's: its first batch is passed over, and what that looked up is not updated."""
    with h5py.File(tmp_path / "ids.h5", "r+") as file:
        file["x"][1] = np.nan
        missing = np.bincount(np.asarray(file["ids"][[1, 3]], np.int64).reshape(-1), minlength=ROWS)
    net = SUM.format(folder=tmp_path)
    call = [1, tmp_path, net, f"{EXACT} nan_effect: {effect}", 12]
    if effect == "STOP":
        with pytest.raises(NotFiniteError, match="iteration 0 of worker 1"):
            train_with_servers(*call, ahead=1, workers=hogwild(2))
        return
    (served,), (figures,) = train_with_servers(*call, ahead=1, workers=hogwild(2))
    assert torch.equal(served[0][1], looked_up(counts - missing))
    assert figures.updates == 23
    (warning,) = [event.text for event in served[3].of(Warned) if "not finite" in event.text]
    assert "of worker 1" in warning and "passed over" in warning


def test_more_workers_than_batches_end(tmp_path, counts):
    with h5py.File(tmp_path / "ids.h5", "r+") as file:
        few = {name: np.asarray(file[name])[:3] for name in file}
        for name, values in few.items():
            del file[name]
            file[name] = values
    found, (figures,) = train_with_servers(
        1, tmp_path, SUM.format(folder=tmp_path), f"{EXACT} max_iter: 2", None,
        trainers=2, sync="MA", ahead=3, workers=hogwild(5),
    )  # fmt: skip
    assert figures.updates == 2 * 5 * 2
    assert float(found[0][0][1].sum()) == -2 * 20 * BATCH * 3
