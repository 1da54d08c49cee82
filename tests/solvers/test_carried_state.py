"""What recurrent layers carry from batch to batch: resumed to the bit, kept by each rank, with warnings of losses."""

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.prototxt import BlobProto, SolverState
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.events import Displayed, Warned
from mgcaffe.solvers.events.snapshots import Restored
from mgcaffe.solvers.events.testing import Tested
from tests.support.solverkit import Recorder, make_solver, weights_of
from tests.support.worker_order import take_turns

STEPS, STREAMS, FEATURES = 4, 2, 3
FIELDS = "momentum: 0.9"
FORMATS = ["BINARYPROTO", "HDF5"]


def write_sequences(folder, *, steps=44, whole_batches=False):
    """One long sequence a stream, or, with `whole_batches`, one that ends with its batch; returns the list file."""
    random = np.random.default_rng(2)
    cont = (random.random((steps, STREAMS)) > 0.15).astype(np.float32)
    if whole_batches:
        cont[::STEPS] = 0
    with h5py.File(folder / "sequences.h5", "w") as file:
        file["x"] = random.standard_normal((steps, STREAMS, FEATURES)).astype(np.float32)
        file["cont"] = cont
        file["target"] = random.uniform(-0.5, 0.5, (steps, STREAMS, 3)).astype(np.float32)
    listing = folder / "sequences.txt"
    listing.write_text(f"{folder / 'sequences.h5'}\n")
    return listing


def net(listing, *, kind="LSTM", batch=STEPS, test_batch=STEPS):
    data = "".join(
        f'layer {{ name: "data" type: "HDF5Data" top: "x" top: "cont" top: "target" include {{ phase: {phase} }}'
        f' hdf5_data_param {{ source: "{listing}" batch_size: {size} }} }}\n'
        for phase, size in (("TRAIN", batch), ("TEST", test_batch))
    )
    filler = 'weight_filler { type: "uniform" min: -0.8 max: 0.8 }'
    return data + (
        f'layer {{ name: "a/b" type: "{kind}" bottom: "x" bottom: "cont" top: "h"'
        f" recurrent_param {{ num_output: 3 {filler} }} }}\n"
        f'layer {{ name: "c" type: "RNN" bottom: "h" bottom: "cont" top: "y"'
        f" recurrent_param {{ num_output: 3 {filler} }} }}\n"
        'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "target" top: "loss" }\n'
    )


def warnings(recorder):
    return [event.text for event in recorder.of(Warned)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stopped_and_resumed_equals_never_stopped(tmp_path, form, kind, dtype):
    text = net(write_sequences(tmp_path), kind=kind)
    fields = FIELDS + f" snapshot: 5 snapshot_format: {form} test_interval: 3 test_iter: 3"
    through, resumed = Recorder(), Recorder()
    with make_solver(text, fields, tmp_path, recorder=through, dtype=dtype) as solver:
        solver.step(12)
        expected = weights_of(solver)
    suffix = ".h5" if form == "HDF5" else ""
    with make_solver(text, fields, tmp_path, recorder=resumed, dtype=dtype) as solver:
        solver.restore(f"{tmp_path}/net_iter_5.solverstate{suffix}")
        solver.step(7)
        assert torch.equal(weights_of(solver), expected)
    assert resumed.losses == through.losses[5:]
    assert resumed.of(Tested)[-1].scores == through.of(Tested)[-1].scores
    assert len(resumed.of(Tested)) == 2
    assert warnings(resumed) == []


def test_the_state_matters(tmp_path):
    text = net(write_sequences(tmp_path))
    with make_solver(text, FIELDS, tmp_path) as solver:
        solver.step(1)
        for layer in solver.net.layers:
            if hasattr(layer, "reset_state"):
                assert layer.state()[0].any()
                layer.reset_state()
        solver.step(5)
        without = weights_of(solver)
    with make_solver(text, FIELDS, tmp_path) as solver:
        solver.step(6)
        assert not torch.equal(weights_of(solver), without)


@pytest.mark.parametrize("form", FORMATS)
def test_every_rank_goes_on_with_its_own(tmp_path, form):
    text = net(write_sequences(tmp_path))
    fields = FIELDS + f" snapshot: 4 snapshot_format: {form} test_interval: 3 test_iter: 2"

    def rank(communicator, restore):
        recorder = Recorder()
        with make_solver(text, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            if restore:
                solver.restore(restore)
            solver.step(9 - solver.iteration)
            states = [layer.state()[0].clone() for layer in solver.net.layers if hasattr(layer, "state")]
            return weights_of(solver), states, recorder

    through = run_ranks(2, lambda communicator: rank(communicator, None))
    path = f"{tmp_path}/net_iter_4.solverstate" + (".h5" if form == "HDF5" else "")
    resumed = run_ranks(2, lambda communicator: rank(communicator, path))
    assert not torch.equal(through[0][1][0], through[1][1][0])
    for before, after in zip(through, resumed, strict=True):
        assert torch.equal(after[0], before[0])
        assert all(torch.equal(*pair) for pair in zip(after[1], before[1], strict=True))
        assert after[2].losses == before[2].losses[4:]
        assert after[2].of(Tested)[-1].scores == before[2].of(Tested)[-1].scores


def test_another_number_of_ranks_begins_with_zeros_and_says_so(tmp_path):
    text = net(write_sequences(tmp_path))
    run_ranks(2, lambda communicator: _snapshot(text, tmp_path, communicator))
    recorder = Recorder()
    with make_solver(text, FIELDS, tmp_path, recorder=recorder) as solver:
        solver.step(1)
        solver.restore(f"{tmp_path}/net_iter_2.solverstate")
        assert not any(layer.state()[0].any() for layer in solver.net.layers if hasattr(layer, "state"))
    expected = "the snapshot holds the recurrent state of 2 rank(s), and now there are 1: zeros for 'a/b', 'c'"
    assert expected in warnings(recorder)


def test_each_worker_has_its_own_and_a_snapshot_holds_all(tmp_path):
    text, fields = net(write_sequences(tmp_path)), FIELDS + " snapshot: 4 comm_param { hogwild_threads: 2 }"

    def train(restore=None):
        with make_solver(text, fields, tmp_path) as solver:
            if restore:
                solver.restore(restore)
            take_turns(solver)
            solver.step(7 - solver.iteration)
            states = [
                [layer.state()[0].clone() for layer in each.layers if hasattr(layer, "state")]
                for each in solver.worker_nets
            ]
            return weights_of(solver), states

    weights, states = train()
    resumed, states_resumed = train(f"{tmp_path}/net_iter_4.solverstate")
    assert torch.equal(weights, resumed)
    assert not torch.equal(states[0][0], states[1][0])
    for mine, theirs in zip(states, states_resumed, strict=True):
        assert all(map(torch.equal, mine, theirs))
    recorder = Recorder()
    with make_solver(text, FIELDS + " comm_param { hogwild_threads: 3 }", tmp_path, recorder=recorder) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate")
    texts = warnings(recorder)
    assert any("each worker reads one batch in 3: a sequence must not go on beyond its batch" in each for each in texts)
    assert any("recurrent state of 2 worker(s), and now there are 3: zeros for 'a/b', 'c'" in each for each in texts)


def _snapshot(text, folder, communicator):
    with make_solver(text, FIELDS + " snapshot: 2", folder, communicator=communicator) as solver:
        solver.step(2)


def take_state(folder):
    """The snapshot's path and content; without its manifest it may be changed."""
    path = folder / "net_iter_2.solverstate"
    (folder / f"{path.name}.manifest.json").unlink(missing_ok=True)
    return path, SolverState.FromString(path.read_bytes())


def test_a_snapshot_of_caffe_begins_with_zeros_and_says_so(tmp_path):
    text = net(write_sequences(tmp_path))
    _snapshot(text, tmp_path, None)
    path, message = take_state(tmp_path)
    message.ClearField("engine_state")
    path.write_bytes(message.SerializeToString())
    recorder = Recorder()
    with make_solver(text, FIELDS, tmp_path, recorder=recorder) as solver:
        solver.restore(str(path))
    assert recorder.of(Restored)
    assert "the snapshot holds no recurrent state that fits: zeros for 'a/b', 'c'" in warnings(recorder)


def test_a_state_of_another_number_of_streams_is_not_used(tmp_path):
    text = net(write_sequences(tmp_path))
    _snapshot(text, tmp_path, None)
    path, message = take_state(tmp_path)
    (entry,) = [entry for entry in message.engine_state.extra if entry.key == "recurrent_state/0/0/train/2/a/b"]
    blob = BlobProto.FromString(entry.value)
    del blob.double_data[3:]
    blob.shape.dim[0] = 1
    entry.value = blob.SerializeToString()
    path.write_bytes(message.SerializeToString())
    recorder = Recorder()
    with make_solver(text, FIELDS, tmp_path, recorder=recorder) as solver:
        solver.restore(str(path))
        states = [layer.state()[0].any().item() for layer in solver.net.layers if hasattr(layer, "state")]
        assert states == [False, True]
    assert "the snapshot holds no recurrent state that fits: zeros for 'a/b'" in warnings(recorder)


def test_a_net_without_such_layers_stores_and_says_nothing(tmp_path):
    data = net(write_sequences(tmp_path)).partition('layer { name: "a/b"')[0]
    text = data + (
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"'
        " inner_product_param { axis: 2 num_output: 3 } }"
        'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "target" top: "loss" }'
        'layer { name: "cont" type: "Silence" bottom: "cont" }'
    )
    recorder = Recorder()
    with make_solver(text, FIELDS, tmp_path, recorder=recorder) as solver:
        solver.snapshot()
        solver.restore(f"{tmp_path}/net_iter_0.solverstate")
    message = SolverState.FromString((tmp_path / "net_iter_0.solverstate").read_bytes())
    assert [entry.key for entry in message.engine_state.extra] == ["solver_type"]
    assert warnings(recorder) == []


def test_entries_come_back_as_they_went():
    first = {"train/0/a/b": [np.arange(6.0).reshape(2, 3), np.ones((2, 3), np.float32)], "test 0/1/c\n": [np.zeros(1)]}
    states = [first, {"train/0/a/b": [np.full((1, 1), np.nan)]}]
    back = carried_state.from_entries([*carried_state.to_entries(states), ("solver_type", b"SGD")])
    assert [list(state) for state in back] == [list(state) for state in states]
    for found, expected in zip(back, states, strict=True):
        for name, arrays in expected.items():
            for one, other in zip(found[name], arrays, strict=True):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype
    assert carried_state.from_entries([("solver_type", b"SGD")]) == []


def test_the_loss_shown_at_the_end_leaves_the_state_alone(tmp_path):
    text = net(write_sequences(tmp_path))
    fields = FIELDS + " display: 4 max_iter: 4"
    shown = Recorder()
    with make_solver(text, fields, tmp_path, recorder=shown) as solver:
        solver.solve()
        solver.param.max_iter = 8
        solver.solve()
        expected = weights_of(solver)
    assert len(shown.of(Displayed)) == 4
    with make_solver(text, FIELDS, tmp_path) as solver:
        solver.step(8)
        assert torch.equal(weights_of(solver), expected)


# -- ranks -----------------------------------------------------------------------------------------------


def train(size, text, folder, *, iterations=6, fields=FIELDS):
    def rank(communicator):
        recorder = Recorder()
        communicator = None if size == 1 else communicator
        with make_solver(text, fields, folder, recorder=recorder, communicator=communicator) as solver:
            solver.step(iterations)
            return weights_of(solver), recorder

    return run_ranks(size, rank)


def test_a_test_that_is_left_leaves_the_state_alone(tmp_path):
    text, scores = net(write_sequences(tmp_path)), []
    for leaves in (False, True):
        recorder = Recorder()
        with make_solver(text, f"{FIELDS} test_interval: 9 test_iter: 3", tmp_path, recorder=recorder) as solver:
            solver.test_all()
            if leaves:
                solver.request_stop()
                solver.test_all()
            solver.test_all()
        scores.append([event.scores for event in recorder.of(Tested)])
    assert len(scores[0]) == 2 and scores[1] == scores[0]


def test_two_ranks_train_as_one_that_takes_two_batches_an_iteration(tmp_path):
    text = net(write_sequences(tmp_path, whole_batches=True))
    ((alone, one),) = train(1, text, tmp_path, fields=FIELDS + " iter_size: 2")
    for weights, recorder in train(2, text, tmp_path):
        torch.testing.assert_close(weights, alone, rtol=1e-9, atol=1e-12)
        assert recorder.losses == pytest.approx(one.losses, rel=1e-9)


def test_several_ranks_are_warned_that_sequences_end_with_their_batch(tmp_path):
    text = net(write_sequences(tmp_path, whole_batches=True))
    ((_, alone),) = train(1, text, tmp_path, iterations=1)
    (_, first), _ = train(2, text, tmp_path, iterations=1)
    assert warnings(alone) == []
    (text,) = [line for line in warnings(first) if "recurrent" in line]
    assert "each rank reads one batch in 2: a sequence must not go on beyond its batch" in text


def test_a_test_on_several_ranks_has_the_scores_of_one(tmp_path):
    text = net(write_sequences(tmp_path), test_batch=3)
    fields = FIELDS + ' base_lr: 0 lr_policy: "fixed" test_interval: 1 test_iter: 3'
    ((_, alone),) = train(1, text, tmp_path, iterations=3, fields=fields)
    for _, recorder in train(2, text, tmp_path, iterations=3, fields=fields):
        found = [event.scores[0].value for event in recorder.of(Tested)]
        assert found == [event.scores[0].value for event in alone.of(Tested)]
    assert len(set(found)) > 1
