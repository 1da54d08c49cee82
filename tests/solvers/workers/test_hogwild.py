"""Several workers train one replica: what they share, what they read and compute, and what is reported."""

import threading
import time

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.solvers.events import Finished, IterationDone, Noted, Started
from mgcaffe.solvers.exchange.ranks import changed_by_forward
from tests.support.solverkit import (
    CLASSIFIER,
    LEAST_SQUARES,
    Recorder,
    data_layer,
    make_solver,
    weights_of,
    write_data,
)
from tests.support.worker_order import (
    NORMALIZED,
    compute_before_updating,
    nets_of,
    running_workers,
    take_turns,
    workers,
)

TYPES = {
    "SGD": 'type: "SGD" momentum: 0.9',
    "Nesterov": 'type: "Nesterov" momentum: 0.9',
    "AdaGrad": 'type: "AdaGrad"',
    "RMSProp": 'type: "RMSProp" rms_decay: 0.9',
    "AdaDelta": 'type: "AdaDelta" momentum: 0.9',
    "Adam": 'type: "Adam" momentum: 0.9 momentum2: 0.99',
}
RATE = 'lr_policy: "fixed" base_lr: {}'
BAGS = """
layer {{ name: "data" type: "HDF5Data" top: "ids" top: "label"
  hdf5_data_param {{ source: "{listing}" batch_size: 4 }} }}
layer {{ name: "bag" type: "EmbeddingBag" bottom: "ids" top: "bag"
  embedding_bag_param {{ input_dim: 9 num_output: 3 weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "bag" top: "ip"
  inner_product_param {{ num_output: 1 weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not running_workers()


@pytest.fixture
def listing(tmp_path):
    return write_data(tmp_path, records=24, classes=3)


def write_ids(folder, order=range(24)):
    random = np.random.default_rng(3)
    ids, label = random.integers(0, 9, (24, 5)), random.standard_normal((24, 1))
    with h5py.File(folder / "ids.h5", "w") as file:
        file["ids"], file["label"] = ids[list(order)].astype(np.float32), label[list(order)].astype(np.float32)
    (folder / "ids.txt").write_text(f"{folder / 'ids.h5'}\n")
    return folder / "ids.txt"


# -- what is shared, and what not -------------------------------------------------------------------------


def test_weights_and_histories_are_shared_gradients_and_statistics_not(tmp_path, listing):
    with make_solver(data_layer(listing, 4) + NORMALIZED, workers(3, "momentum: 0.9"), tmp_path) as solver:
        first, *others = nets_of(solver)
        updaters = [worker._trainer.updater for worker in solver._workers._others]
        for net, updater in zip(others, updaters, strict=True):
            assert net.arena.data.data_ptr() == first.arena.data.data_ptr()
            assert net.arena.diff.data_ptr() != first.arena.diff.data_ptr()
            for mine, theirs in zip(net.parameters, first.parameters, strict=True):
                assert (mine.data.data_ptr() == theirs.data.data_ptr()) is not mine.measured
                assert mine.diff.data_ptr() != theirs.diff.data_ptr()
            assert updater.histories[0].data_ptr() == solver._updater.histories[0].data_ptr()
        assert len({id(net) for net in nets_of(solver)}) == 3
        assert sum(parameter.measured for parameter in first.parameters) == 3


def test_tables_are_shared_and_their_gradients_not(tmp_path):
    fields = workers(2, 'type: "AdaGrad" row_wise_adagrad: true')
    with make_solver(BAGS.format(listing=write_ids(tmp_path)), fields, tmp_path) as solver:
        first, other = (net.arena.tables[0].parameter for net in nets_of(solver))
        assert first.data.data_ptr() == other.data.data_ptr()
        assert first._gradients is not other._gradients
        (mine,), (theirs,) = (
            list(updater._tables.histories.values())
            for updater in (solver._updater, solver._workers._others[0]._trainer.updater)
        )
        assert mine.data_ptr() == theirs.data_ptr()


def test_weights_begin_as_those_of_one_worker(tmp_path, listing):
    net = data_layer(listing, 4) + NORMALIZED
    with make_solver(net, "", tmp_path) as one, make_solver(net, workers(3), tmp_path) as several:
        assert torch.equal(weights_of(one), weights_of(several))
        for net in nets_of(several):
            for mine, expected in zip(net.parameters, one.net.parameters, strict=True):
                assert torch.equal(mine.data, expected.data)


@pytest.mark.parametrize("count", [2, 3])
def test_one_pass_reads_every_record_once(tmp_path, listing, count):
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(count), tmp_path, keep_blobs=True) as solver:
        seen = [[] for _ in nets_of(solver)]
        for net, mine in zip(nets_of(solver), seen, strict=True):
            net.after_forward.append(
                lambda index, net=net, mine=mine: mine.extend(net.blobs["data"].data[:, 0].tolist()) if not index else 0
            )
        solver.step(24 // (4 * count))
    with h5py.File(tmp_path / "data.h5") as file:
        values = np.asarray(file["data"][:, 0], dtype=np.float64)
    for number, mine in enumerate(seen):
        assert mine == values[number::count].tolist()
    assert len(set(values.tolist())) == 24


# -- the arithmetic -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", ["", "weight_decay: 0.01 clip_gradients: 0.5 iter_size: 2 hogwild"])
@pytest.mark.parametrize("name", TYPES)
def test_in_turns_workers_do_what_one_does_batch_by_batch(tmp_path, name, extra):
    """One worker reads the same batches from a file in that order; the iteration number is each worker's own."""
    listing = write_data(tmp_path, records=48, classes=3)
    lock, fields = "hogwild" in extra, TYPES[name] + " " + extra.replace("hogwild", "")
    iterations, micro = 6, 2 if "iter_size" in fields else 1
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2, fields, lock), tmp_path) as solver:
        take_turns(solver)
        solver.step(iterations)
        expected, histories = weights_of(solver), [each.clone() for each in solver._updater.histories]
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        # Both workers' micro-batches: 8 records each time, of which worker 0 has the even ones.
        order = np.arange(48).reshape(-1, micro, 4, 2).transpose(0, 3, 1, 2).reshape(-1)
        for blob in ("data", "label"):
            values = np.asarray(file[blob])
            file[blob][...] = values[order]
    with make_solver(data_layer(listing, 4) + CLASSIFIER, fields, tmp_path) as alone:
        for update in range(2 * iterations):
            alone.iteration = update // 2
            alone.step(1)
        assert torch.equal(weights_of(alone), expected)
        assert all(map(torch.equal, alone._updater.histories, histories))


@pytest.mark.parametrize("kind", ["", 'type: "AdaGrad"', 'type: "AdaGrad" row_wise_adagrad: true'])
def test_in_turns_workers_update_tables_as_one_does(tmp_path, kind):
    with make_solver(BAGS.format(listing=write_ids(tmp_path)), workers(2, kind), tmp_path) as solver:
        take_turns(solver)
        solver.step(6)
        expected = [each.clone() for each in solver.net.arena.tensors()]
    order = np.arange(24).reshape(-1, 4, 2).transpose(0, 2, 1).reshape(-1)
    with make_solver(BAGS.format(listing=write_ids(tmp_path, order)), kind, tmp_path) as alone:
        alone.step(12)
        assert all(map(torch.equal, alone.net.arena.tensors(), expected))


def test_updates_by_one_set_of_weights_add_up_to_that_of_ranks_with_a_higher_rate(tmp_path, listing):
    net = data_layer(listing, 4) + LEAST_SQUARES

    def rank(communicator):
        with make_solver(net, RATE.format(0.03), tmp_path, communicator=communicator) as solver:
            solver.step(8)
            return weights_of(solver)

    expected = run_ranks(3, rank)[0]
    with make_solver(net, workers(3, RATE.format(0.01)), tmp_path) as solver:
        compute_before_updating(solver)
        solver.step(8)
        assert torch.allclose(weights_of(solver), expected, rtol=0, atol=1e-12)


def test_random_numbers_are_those_of_as_many_ranks(tmp_path, listing):
    """Dropout in a net that does not learn: the losses of worker 1 are rank 1's."""
    dropout = 'layer { name: "drop" type: "Dropout" bottom: "data" top: "drop" }\n'
    net = data_layer(listing, 4) + dropout + CLASSIFIER.replace('bottom: "data"', 'bottom: "drop"')
    losses = {}

    def watch(key, solver, net):
        net.after_forward.append(
            lambda index: losses.setdefault(key, []).append(float(net.blobs["loss"].data)) if index == 5 else 0
        )
        assert net.layers[5].name == "loss"

    def rank(communicator):
        options = {"communicator": communicator, "keep_blobs": True}
        with make_solver(net, RATE.format(0), tmp_path, **options) as solver:
            watch(("rank", communicator.rank), solver, solver.net)
            solver.step(3)

    run_ranks(2, rank)
    with make_solver(net, workers(2, RATE.format(0)), tmp_path, keep_blobs=True) as solver:
        for number, each in enumerate(nets_of(solver)):
            watch(("worker", number), solver, each)
        solver.step(3)
    assert losses["worker", 0] == losses["rank", 0]
    assert losses["worker", 1] == losses["rank", 1]
    assert losses["worker", 0] != losses["worker", 1]


@pytest.mark.parametrize(("lock", "most"), [(True, 1), (False, 2)])
def test_a_lock_makes_updates_one_at_a_time(tmp_path, listing, lock, most):
    inside, seen, both = [0], [0], threading.Barrier(2, timeout=0.5)
    with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2, lock=lock), tmp_path) as solver:

        def watch(updater):
            apply = updater.apply

            def watched(*arguments):
                inside[0] += 1
                seen[0] = max(seen[0], inside[0])
                if not lock:
                    both.wait()
                time.sleep(0.005)
                seen[0] = max(seen[0], inside[0])
                inside[0] -= 1
                apply(*arguments)

            updater.apply = watched

        watch(solver._updater)
        watch(solver._workers._others[0]._trainer.updater)
        solver.step(5)
    assert seen == [most]


# -- statistics ------------------------------------------------------------------------------------------


def test_statistics_belong_to_a_worker_until_a_test_needs_their_mean(tmp_path, listing):
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + NORMALIZED
    with make_solver(net, workers(2, RATE.format(0) + " test_iter: 1 test_interval: 1000"), tmp_path) as solver:
        solver.step(3)
        mine, theirs = ([each.clone() for each in changed_by_forward(each)] for each in nets_of(solver))
        assert not torch.equal(mine[0], theirs[0])
        assert float(mine[2]) == float(theirs[2]) > 2
        solver.test_all()
        for one, other, *means in zip(mine, theirs, *map(changed_by_forward, nets_of(solver)), strict=True):
            assert all(torch.allclose(mean, (one + other) / 2) for mean in means)


# -- what is reported ------------------------------------------------------------------------------------


def test_all_workers_records_count(tmp_path, listing):
    recorder = Recorder()
    fields = workers(3, "max_iter: 20", lock=True)
    with make_solver(data_layer(listing, 4) + CLASSIFIER, fields, tmp_path, recorder=recorder) as solver:
        passes, deadline = [], time.monotonic() + 20

        def end_last(index):
            """Let worker 2's last iteration begin when worker 0 has made all of its own."""
            passes.extend([None] * (index == 0))
            while len(passes) == 20 and len(recorder.of(IterationDone)) < 20 and time.monotonic() < deadline:
                time.sleep(1e-3)

        nets_of(solver)[2].before_forward.append(end_last)
        solver.solve()
    (started,), (finished,) = recorder.of(Started), recorder.of(Finished)
    assert (started.workers, started.batch_size, started.ranks) == (3, 12, 1)
    assert finished.images == 20 * 12 > sum(event.images for event in recorder.of(IterationDone)) >= 20 * 4
    (note,) = [event.text for event in recorder.of(Noted)]
    assert "3 workers update one replica one at a time" in note


def test_computing_threads_are_shared_out(tmp_path, listing):
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        seen = [[], []]
        with make_solver(data_layer(listing, 4) + CLASSIFIER, workers(2), tmp_path) as solver:
            for net, mine in zip(nets_of(solver), seen, strict=True):
                net.before_forward.append(lambda index, mine=mine: mine.append(torch.get_num_threads()))
            solver.step(2)
            assert torch.get_num_threads() == 4
        assert [set(mine) for mine in seen] == [{2}, {2}]
    finally:
        torch.set_num_threads(before)
