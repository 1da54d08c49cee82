"""Tables that trainers at their own pace hold for each other: equal to one process, each gradient once, to the end."""

from __future__ import annotations

import functools
import threading
import time

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm import SingleCommunicator, run_ranks
from mgcaffe.errors import CommError, SolverError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import IterationDone, Noted, Warned
from mgcaffe.solvers.tables import async_tables
from tests.support.solverkit import LEAST_SQUARES, Recorder, data_layer, make_solver, write_data
from tests.support.tablekit import (
    BATCH,
    KINDS,
    RECORDS,
    differences,
    table_net,
    train_tables,
    whole_tensors,
    write_table_data,
)

ITERATIONS = 30


@pytest.fixture(scope="module")
def doubled(tmp_path_factory):
    """A folder with the same data, each record twice: each of two trainers reads all of them, in their order."""
    folder = tmp_path_factory.mktemp("doubled")
    write_table_data(folder)
    with h5py.File(folder / "data.h5", "r+") as file:
        for name in list(file):
            values = np.repeat(file[name][:], 2, axis=0)
            del file[name]
            file[name] = values
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    """What one process makes of a kind of solver, computed once."""
    net = table_net(folder, 1)
    return functools.cache(lambda kind, iterations: train_tables(1, folder, net, KINDS[kind], iterations))


class Slow:
    """A listener that makes each iteration last longer."""

    def on_event(self, event):
        if isinstance(event, IterationDone):
            time.sleep(2e-3)


def train(
    iterations,
    folder,
    net,
    fields,
    *,
    comm="sync: NONE lookahead: 0",
    divided="",
    restore=None,
    slow=(),
    snapshot=False,
):
    """Train on threads as trainers.

    Args:
        iterations: how many each makes.
        folder, net, fields: as for `make_solver`.
        comm: what the solver says in comm_param.
        divided: the name of a file of loads in the folder.
        restore: a snapshot to begin with.
        slow: trainers whose iterations last longer.
        snapshot: write one when all have ended.

    Returns:
        What each trainer has come to: whole tensors on trainer 0, losses, a recorder, and the look-ups and updates that
        it has answered.
    """
    if divided:
        comm += f' embedding_loads: "{folder}/{divided}.csv"'

    def rank(communicator):
        recorder = Recorder()
        text = f"{fields} comm_param {{ {comm} }}"
        with make_solver(net, text, folder, recorder=recorder, communicator=communicator) as solver:
            if communicator.rank in slow:
                solver.listeners.append(Slow())
            if restore:
                solver.restore(restore)
            solver.step(iterations[communicator.rank])
            solver.finish_training()
            if snapshot:
                solver.snapshot()
            server = solver._tables.server if solver._tables is not None else None
            answered = (server.figures.look_ups, server.figures.updates) if server is not None else None
            return whole_tensors(solver), recorder.losses, recorder, answered

    return run_ranks(len(iterations), rank, timeout_s=20)


@pytest.mark.parametrize(("kind", "divided"), [("SGD", "rows"), ("AdaGrad", "whole"), ("row_wise", "rows")])
def test_a_trainer_whose_rows_lie_with_another_one_computes_what_one_process_does(doubled, alone, kind, divided):
    first, second = train([ITERATIONS, 0], doubled, table_net(doubled, 1), KINDS[kind], divided=divided)
    assert not differences(first[:2], alone(kind, ITERATIONS)[:2])
    assert first[3] == (0, 0) and second[3] == (ITERATIONS, ITERATIONS)
    (placed,) = [event.text for event in first[2].of(Noted) if event.text.startswith("Tables divided among ranks")]
    assert ("divided by rows" in placed) == (divided == "rows")


def test_one_trainer_holds_all_tables_itself(folder, alone):
    (only,) = train([ITERATIONS], folder, table_net(folder, 1), KINDS["AdaGrad"], comm="embeddings: ASYNC sync: NONE")
    assert not differences(only[:2], alone("AdaGrad", ITERATIONS)[:2])
    assert only[3] is None


# The loss is the sum of all that is looked up, so a row's gradient is how often it is, whatever the tables hold.
_SUMS = """
layer {{ name: "data" type: "HDF5Data" top: "a" top: "lengths" top: "b" top: "c" top: "label"
  hdf5_data_param {{ source: "{folder}/data.txt" batch_size: {batch} }} }}
layer {{ name: "a" type: "EmbeddingBag" bottom: "a" bottom: "lengths" top: "pa"
  embedding_bag_param {{ input_dim: 40 num_output: 4 bags: LENGTHS }} }}
layer {{ name: "b" type: "EmbeddingBag" bottom: "b" top: "pb" embedding_bag_param {{ input_dim: 7 num_output: 3 }} }}
layer {{ name: "c" type: "EmbeddingBag" bottom: "c" top: "pc" embedding_bag_param {{ input_dim: 9 num_output: 2 }} }}
layer {{ name: "sa" type: "Reduction" bottom: "pa" top: "sa" loss_weight: 1 }}
layer {{ name: "sb" type: "Reduction" bottom: "pb" top: "sb" loss_weight: 1 }}
layer {{ name: "sc" type: "Reduction" bottom: "pc" top: "sc" loss_weight: 1 }}
layer {{ name: "dense" type: "InnerProduct" bottom: "label" top: "dense" inner_product_param {{ num_output: 1 }} }}
layer {{ name: "sd" type: "Reduction" bottom: "dense" top: "sd" loss_weight: 1 }}
"""


@pytest.mark.parametrize(
    ("iterations", "divided", "workers"),
    [([40, 25], "rows", 1), ([40, 25], "whole", 1), ([12, 60, 0], "rows", 1), ([20, 30], "rows", 2)],
)
def test_each_gradient_counts_once_whatever_the_trainers_pace_and_number_of_iterations(
    folder, iterations, divided, workers
):
    net, began = _SUMS.format(folder=folder, batch=BATCH), time.monotonic()
    (folder / "sums.csv").write_text(
        "table,rows\n" + {"rows": "a,1000\nb,1\nc,1\n", "whole": "a,4\nb,8\nc,7\n"}[divided]
    )
    fields = 'base_lr: 0.5 lr_policy: "fixed"'
    comm = f"sync: SHADOW_MA lookahead: 1 hogwild_threads: {workers}"
    starts = train([0] * len(iterations), folder, net, fields)[0][0]
    ends = train(iterations, folder, net, fields, comm=comm, divided="sums", slow=(0,))
    trainers, counts = len(iterations), [np.zeros(40), np.zeros(7), np.zeros(9)]
    with h5py.File(folder / "data.h5") as file:
        ids = [file[name][:].astype(int) for name in ("a", "b", "c")]
    readers = [count for count in iterations for _ in range(workers)]
    for reader, count in enumerate(readers):
        records = (np.arange(count * BATCH) * trainers * workers + reader) % RECORDS
        for each, of in zip(counts, ids, strict=True):
            np.add.at(each, of[records].reshape(-1), 1)
    # The first tensor holds what is no table, and histories come behind the tables.
    for start, end, count in zip(starts[1:4], ends[0][0][1:4], counts, strict=True):
        np.testing.assert_allclose((start - end).numpy(), np.repeat(0.5 * count[:, None], start.shape[1], 1), atol=1e-9)
    assert [len(each[1]) for each in ends] == iterations  # those of each trainer's first worker
    assert sum(each[3][1] for each in ends) > 0
    assert time.monotonic() - began < 8


def test_trainers_under_shadow_averaging_learn_together_and_look_ahead(folder):
    net, fields = table_net(folder, 2), KINDS["SGD"] + ' base_lr: 0.3 lr_policy: "fixed"'
    trainers = train([120, 120], folder, net, fields, comm="sync: SHADOW_MA")
    for _, losses, _, (look_ups, updates) in trainers:
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
        assert updates == 120 and look_ups == 121  # the last is of a batch that was not trained


def test_a_snapshot_goes_on_with_other_numbers_of_trainers_and_alone(folder):
    net, fields = table_net(folder, 1), KINDS["AdaGrad"] + f' snapshot_prefix: "{folder}/two"'
    first, _ = train([7, 9], folder, net, fields, comm="sync: MA lookahead: 1", snapshot=True)
    state = f"{folder}/two_iter_7.solverstate"
    expected = first[0]
    assert len(list(folder.glob("two_iter_7*.shard_?_of_2.*"))) == 2
    again = train_tables(1, folder, net, fields, 0, restore=state)[0]
    three = train([0, 0, 0], folder, net, fields, restore=state)[0][0]
    for found in (again, three):
        assert not differences([found], [expected])
    assert len(train([3, 3, 3], folder, net, fields, restore=state)[2][1]) == 3


def test_gradients_that_are_not_finite_update_no_table_of_anyone(tmp_path):
    write_table_data(tmp_path)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["label"][1] = np.nan
    fields = KINDS["SGD"] + " nan_effect: SKIP"
    (tensors, *_), (_, losses, _, _) = train([6, 6], tmp_path, table_net(tmp_path, 2), fields, comm="sync: NONE")
    assert len(losses) < 6
    assert all(bool(tensor.isfinite().all()) for tensor in tensors[1:])


def test_a_stop_of_one_trainer_ends_all_of_them(folder):
    def rank(communicator):
        fields = KINDS["SGD"] + " comm_param { sync: SHADOW_EASGD } max_iter: 100000"
        with make_solver(table_net(folder, 2), fields, folder, communicator=communicator) as solver:
            if communicator.rank == 1:
                solver.add_callback(lambda: solver.request_stop() if solver.iteration == 20 else None, lambda: None)
            solver.solve()
            return solver.iteration

    began = time.monotonic()
    ended = run_ranks(2, rank)
    assert ended[1] >= 21 and max(ended) < 100000
    assert time.monotonic() - began < 5


def test_a_message_that_makes_no_sense_ends_the_job_with_the_rank_that_serves(folder):
    def rank(communicator):
        with make_solver(
            table_net(folder, 2), KINDS["SGD"] + " comm_param { sync: NONE }", folder, communicator=communicator
        ) as solver:
            if communicator.rank == 0:
                solver._tables._duplicates[0].start_send(np.zeros(1), 1, 77)
            solver.step(1000)

    with pytest.raises(
        CommError, match=r"^trainer, rank 1: a message of rank 0 makes no sense: .* no message with tag"
    ):
        run_ranks(2, rank)


@pytest.mark.parametrize("comes_to_it", [False, True])
def test_an_error_that_training_does_not_come_to_ends_the_job_from_the_serving_thread(monkeypatch, comes_to_it):
    class Broken:
        def run(self):
            raise CommError("a message makes no sense")

    ended, ranks = [], SingleCommunicator()
    monkeypatch.setattr(async_tables, "_RAISED_WITHIN_S", 10.0 if comes_to_it else 0.01)

    def end(main, communicator):
        with pytest.raises(CommError) as caught:
            main()
        ended.append((str(caught.value), communicator()))

    monkeypatch.setattr(async_tables, "run_guarded", end)
    tables = async_tables.AsyncTables(SolverParameter(), ranks, torch.float32, torch.device("cpu"))
    took = []
    arguments = (Broken(), threading.Event(), took.append)
    thread = threading.Thread(target=tables._serve, args=arguments)
    thread.start()
    if comes_to_it:
        with pytest.raises(CommError):
            try:
                raise CommError("another one")
            finally:
                tables.close()
    thread.join(5)
    assert not thread.is_alive() and [str(error) for error in took] == ["a message makes no sense"]
    assert ended == ([] if comes_to_it else [("a message makes no sense", ranks)])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("comm_param { sync: MA on_trainer_loss: CONTINUE }", "without the rows that lie with a trainer that dies"),
        (
            "snapshot_diff: true comm_param { sync: MA embeddings: ASYNC }",
            "snapshot_diff asks for each row's last step",
        ),
        ("debug_info: true comm_param { sync: MA }", "debug_info asks for each row's last step"),
        ("comm_param { embeddings: ASYNC }", "with sync GRADIENTS all ranks train in step"),
    ],
)
def test_what_trainers_cannot_do_with_tables_of_others_is_refused(folder, fields, problem):
    def rank(communicator):
        with pytest.raises(SolverError, match=problem):
            make_solver(table_net(folder, 2), fields, folder, communicator=communicator)

    run_ranks(2, rank)


def test_nets_without_tables_are_served_by_nobody(tmp_path):
    net = data_layer(write_data(tmp_path), 2) + LEAST_SQUARES
    comm = "comm_param { sync: NONE hogwild_threads: 2 embeddings: ASYNC }"

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net, comm, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.step(3)
        assert not [each for each in threading.enumerate() if each.name == "mgcaffe tables"]
        return [event.text for event in recorder.of(Warned)]

    for texts in run_ranks(2, rank):
        assert any("comm_param.embeddings has no effect" in text for text in texts)
