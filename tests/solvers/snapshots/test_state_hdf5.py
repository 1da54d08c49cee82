"""Snapshots in HDF5: Caffe's layout, resumes of every solver type, and what is no solverstate."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, SnapshotError
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.events.snapshots import SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.state_file import read_state
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data

# The fields of each solver type, and how many histories it has.
SOLVERS = {
    "SGD": ("momentum: 0.9", 1),
    "Nesterov": ("momentum: 0.9", 1),
    "AdaGrad": ("", 1),
    "RMSProp": ("rms_decay: 0.9", 1),
    "AdaDelta": ('momentum: 0.95 delta: 1e-6 base_lr: 1 lr_policy: "fixed"', 2),
    "Adam": ("momentum: 0.9 momentum2: 0.99", 2),
}
FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}


def net(folder) -> str:
    dropout = 'layer { name: "drop/0" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
    with_dropout = CLASSIFIER.replace('layer { name: "ip2"', dropout + 'layer { name: "ip2"')
    return data_layer(write_data(folder, classes=3), 3) + with_dropout.replace('name: "ip2"', 'name: "ip/2"')


def snapshot(folder, kind="SGD", fields="", dtype=torch.float32):
    """Makes three updates and takes a snapshot in HDF5; gives the weights and histories."""
    text = f'type: "{kind}" {SOLVERS[kind][0]} snapshot_format: HDF5 {fields}'
    with make_solver(net(folder), text, folder, dtype=dtype) as solver:
        solver.step(3)
        solver.snapshot()
        return weights_of(solver), [history.clone() for history in solver._updater.histories]


def refusal(folder, path) -> str:
    with make_solver(net(folder), SOLVERS["SGD"][0], folder) as solver:
        with pytest.raises(SnapshotError) as caught:
            solver.restore(str(path))
        assert caught.value.exit_code == EXIT_BAD_INPUT
        assert str(path) in str(caught.value)
        assert solver.iteration == 0
    return str(caught.value)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", SOLVERS)
def test_stopped_and_resumed_equals_never_stopped(tmp_path, kind, form):
    fields = f'type: "{kind}" {SOLVERS[kind][0]} snapshot_format: {form} weight_decay: 0.01'
    whole, resumed = Recorder(), Recorder()
    with make_solver(net(tmp_path), fields + " snapshot: 4", tmp_path, recorder=whole) as solver:
        solver.step(7)
        weights = weights_of(solver)
    with make_solver(net(tmp_path), fields, tmp_path, recorder=resumed) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate{FORMATS[form]}")
        assert solver.iteration == 4
        solver.step(3)
        assert torch.equal(weights_of(solver), weights)
    assert resumed.losses == whole.losses[4:]
    assert not resumed.of(Warned)


@pytest.mark.parametrize("kind", SOLVERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_and_histories_come_back_to_the_bit(tmp_path, kind, dtype):
    weights, histories = snapshot(tmp_path, kind, dtype=dtype)
    assert len(histories) == SOLVERS[kind][1]
    assert all(history.abs().sum() > 0 for history in histories)
    text = f'type: "{kind}" {SOLVERS[kind][0]}'
    with make_solver(net(tmp_path), text, tmp_path, dtype=dtype) as solver:
        solver.restore(f"{tmp_path}/net_iter_3.solverstate.h5")
        assert torch.equal(weights_of(solver), weights)
        for restored, history in zip(solver._updater.histories, histories, strict=True):
            assert torch.equal(restored, history)


def test_the_layout_is_caffes(tmp_path):
    snapshot(tmp_path, "Adam", 'lr_policy: "multistep" base_lr: 0.1 gamma: 0.5 stepvalue: 1 stepvalue: 2')
    assert {path.name for path in tmp_path.iterdir()} > {"net_iter_3.caffemodel.h5", "net_iter_3.solverstate.h5"}
    with h5py.File(tmp_path / "net_iter_3.solverstate.h5") as file:
        assert set(file) == {"iter", "current_step", "learned_net", "history", "engine_state"}
        for name, value in (("iter", 3), ("current_step", 2)):
            assert (file[name].dtype, file[name].shape, file[name][0]) == (np.int32, (1,), value)
        # What H5LTmake_dataset_string writes: one string of fixed length, a zero byte at its end.
        kind, path = file["learned_net"].id.get_type(), f"{tmp_path}/net_iter_3.caffemodel.h5"
        assert not kind.is_variable_str() and kind.get_strpad() == h5py.h5t.STR_NULLTERM
        assert (file["learned_net"].shape, kind.get_size()) == ((), len(path) + 1)
        assert file["learned_net"][()] == path.encode()
        history = file["history"]
        shapes = [(6, 4), (6,), (3, 6), (3,)]
        assert [history[str(index)].shape for index in range(len(history))] == shapes * 2
        assert all(history[name].dtype == np.float32 for name in history)


def test_gradients_are_written_if_asked_for(tmp_path):
    snapshot(tmp_path, fields="snapshot_diff: true")
    with h5py.File(tmp_path / "net_iter_3.caffemodel.h5") as file:
        assert np.abs(file["diff/ip/2/0"][()]).sum() > 0


def test_the_events_name_the_files(tmp_path):
    recorder = Recorder()
    with make_solver(net(tmp_path), "snapshot_format: HDF5", tmp_path, recorder=recorder) as solver:
        solver.snapshot()
    names = [f"{tmp_path}/net_iter_0.{kind}.h5" for kind in ("caffemodel", "solverstate")]
    assert [event.path for event in recorder.of(SnapshotWriting)] == names
    assert [[event.weights, event.state] for event in recorder.of(SnapshotWritten)] == [names]


def test_weights_start_a_run(tmp_path):
    weights, _ = snapshot(tmp_path)
    start = f'weights: "{tmp_path}/net_iter_3.caffemodel.h5" random_seed: 5'
    with make_solver(net(tmp_path), start, tmp_path, dtype=torch.float32) as solver:
        assert torch.equal(weights_of(solver), weights)


def test_caffes_own_state_is_read(tmp_path):
    path = tmp_path / "caffe.solverstate.h5"
    with h5py.File(path, "w") as file:
        file["iter"], file["current_step"] = np.array([5], np.int32), np.array([1], np.int32)
        file["learned_net"] = np.bytes_(b"run_iter_5.caffemodel.h5")
        for index in range(12):
            file[f"history/{index}"] = np.full((2, 3), index, np.float32)
    state = read_state(path)
    assert state.progress == Progress(iteration=5, current_step=1)
    assert state.learned_net == "run_iter_5.caffemodel.h5"
    assert [values.flat[0] for values in state.history] == list(range(12))  # by number, not by the alphabet


def test_a_state_may_name_no_weights(tmp_path):
    snapshot(tmp_path)
    with h5py.File(tmp_path / "net_iter_3.solverstate.h5", "r+") as file:
        del file["learned_net"]
    state = read_state(tmp_path / "net_iter_3.solverstate.h5")
    assert (state.progress.iteration, state.learned_net, state.find_weights()) == (3, "", None)


def test_weights_whose_name_is_not_utf8_are_found(tmp_path):
    weights, _ = snapshot(tmp_path)
    state, name = tmp_path / "net_iter_3.solverstate.h5", os.fsdecode(b"b\xe4r.caffemodel.h5")
    (tmp_path / "net_iter_3.caffemodel.h5").rename(tmp_path / name)
    state.with_name(f"{state.name}.manifest.json").unlink()
    with h5py.File(state, "r+") as file:
        del file["learned_net"]
        file["learned_net"] = np.bytes_(os.fsencode(tmp_path / name))
    assert read_state(state).learned_net == str(tmp_path / name)
    with make_solver(net(tmp_path), SOLVERS["SGD"][0], tmp_path, dtype=torch.float32) as solver:
        solver.restore(str(state))
        assert torch.equal(weights_of(solver), weights)


def test_the_weights_may_have_moved_along(tmp_path):
    weights, _ = snapshot(tmp_path)
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("*.h5"):
        if path.name.startswith("net_iter"):
            path.rename(tmp_path / "moved" / path.name)
    with make_solver(net(tmp_path), SOLVERS["SGD"][0], tmp_path, dtype=torch.float32) as solver:
        solver.restore(f"{tmp_path}/moved/net_iter_3.solverstate.h5")
        assert torch.equal(weights_of(solver), weights)


def test_another_solver_type_is_refused(tmp_path):
    snapshot(tmp_path, "Adam")
    assert "solver type Adam, and this solver has type SGD" in refusal(tmp_path, tmp_path / "net_iter_3.solverstate.h5")


def test_what_is_no_solverstate_is_refused(tmp_path):
    snapshot(tmp_path)
    assert "is a caffemodel" in refusal(tmp_path, tmp_path / "net_iter_3.caffemodel.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["label"] = np.ones(3)
    assert "HDF5 and no solverstate" in refusal(tmp_path, tmp_path / "other.h5")
    assert "No such file" in refusal(tmp_path, tmp_path / "missing.solverstate.h5")
    whole = (tmp_path / "net_iter_3.solverstate.h5").read_bytes()
    path = tmp_path / "short.solverstate.h5"
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refusal(tmp_path, path)
    (tmp_path / "text.solverstate.h5").write_text("base_lr: 0.1\n")
    refusal(tmp_path, tmp_path / "text.solverstate.h5")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("iter", np.ones(2, np.int32)),
        ("iter", np.array([1.5])),
        ("learned_net", np.arange(3)),
        ("learned_net", np.zeros(1 << 17, np.uint8)),
        ("history", np.ones(2)),
        ("history/0", np.bytes_(b"text")),
        ("history/0", np.ones((2, 2))),
        ("history/x", np.ones((2, 2))),
        ("engine_state", np.full(9, 255, np.uint8)),
    ],
)
def test_changed_files_are_refused(tmp_path, name, values):
    snapshot(tmp_path)
    path = tmp_path / "net_iter_3.solverstate.h5"
    with h5py.File(path, "r+") as file:
        if name in file:
            del file[name]
        file[name] = values
    refusal(tmp_path, path)


def test_a_snapshot_that_cannot_be_written(tmp_path):
    with make_solver(net(tmp_path), "snapshot_format: HDF5", tmp_path) as solver:
        (tmp_path / "net_iter_0.caffemodel.h5").mkdir()
        with pytest.raises(SnapshotError, match=r"net_iter_0\.caffemodel\.h5: Is a directory") as caught:
            solver.snapshot()
    assert caught.value.exit_code == EXIT_CANNOT_WRITE
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob("*.solverstate.h5"))
