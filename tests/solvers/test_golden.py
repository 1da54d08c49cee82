"""Trajectories, snapshots and resumes that a real Caffe computed (tests/golden/solvers)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mgcaffe.prototxt import NetParameter, SolverState, blob_array, read_solver_source
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Warned
from tests.support.paths import GOLDEN
from tests.support.solverkit import Recorder

SOLVERS = GOLDEN / "solvers"
CASES = [
    "sgd",
    "sgd_clip",
    "sgd_iter_size",
    "sgd_l1",
    "sgd_momentum",
    "sgd_momentum_decay",
    "step",
    "exp",
    "inv",
    "poly",
    "nesterov",
    "adagrad",
    "rmsprop",
    "adadelta",
    "adam",
    "adam_iter_size",
]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes the solver of a case, started from Caffe's own weights and writing to tmp_path."""
    monkeypatch.chdir(SOLVERS)
    solvers = []

    def build(case, weights=None, recorder=None):
        source = read_solver_source(f"{case}/solver.prototxt")
        source.param.snapshot_prefix = str(tmp_path / "snap")
        source.param.solver_mode = source.param.CPU
        names = [f"{case}/init.caffemodel"] if weights is None else weights
        listeners = [recorder] if recorder else []
        solver = Solver(source.param, source=source, weights=names, listeners=listeners)
        solvers.append(solver)
        return solver

    yield build
    for solver in solvers:
        solver.close()


def assert_parameters(solver, trajectory, iteration):
    layers = {layer.name: layer for layer in solver.net.layers}
    keys = [key for key in trajectory if key.startswith(f"iter{iteration}/")]
    assert keys, f"the golden case has no parameters after iteration {iteration}"
    for key in keys:
        _, layer, index = key.split("/")
        ours = layers[layer].parameters[int(index)].data.numpy()
        caffes = trajectory[key]
        np.testing.assert_allclose(ours, caffes, rtol=0, atol=3e-4 * np.abs(caffes).max() + 1e-12, err_msg=key)


@pytest.mark.parametrize("case", CASES)
def test_a_run_follows_caffes(case, make):
    trajectory = np.load(SOLVERS / case / "trajectory.npz")
    stored = {int(key.split("/")[0][4:]) for key in trajectory if key.startswith("iter")}
    solver = make(case)
    assert_parameters(solver, trajectory, 0)
    for iteration in range(1, 13):
        solver.step(1)
        ((name, loss),) = solver.net.output_values()
        assert name == "loss"
        assert float(loss) == pytest.approx(float(trajectory[f"loss/{iteration}"]), abs=1e-3)
        if iteration in stored:
            assert_parameters(solver, trajectory, iteration)
    assert {1, 12} <= stored


@pytest.mark.parametrize("case", CASES)
def test_caffes_own_snapshot_is_resumed(case, make):
    trajectory = np.load(SOLVERS / case / "trajectory.npz")
    recorder = Recorder()
    solver = make(case, weights=[], recorder=recorder)
    # The state names its weights by a path of the machine that wrote it; they lie beside it.
    solver.restore(f"{case}/snap_iter_5.solverstate")
    assert solver.iteration == 5
    batches = 5 * solver.param.iter_size
    assert [layer.position() for layer in solver.net.data_layers] == [5 * batches]
    assert "the snapshot doesn't say where the data stood" in recorder.of(Warned)[-1].text
    for iteration in range(6, 13):
        solver.step(1)
        ((_, loss),) = solver.net.output_values()
        assert float(loss) == pytest.approx(float(trajectory[f"loss/{iteration}"]), abs=1e-3)
    assert_parameters(solver, trajectory, 12)


def assert_blob(ours, caffes):
    assert list(ours.shape.dim) == list(caffes.shape.dim)
    scale = np.abs(blob_array(caffes)).max()
    np.testing.assert_allclose(blob_array(ours), blob_array(caffes), rtol=0, atol=3e-4 * scale + 1e-9)


def describe(layer):
    return layer.name, layer.type, list(layer.bottom), list(layer.top), layer.phase


def read_plainly(path, message):
    message.ParseFromString(Path(path).read_bytes())
    return message


@pytest.mark.parametrize("case", ["sgd", "sgd_momentum_decay", "step", "adam", "adadelta"])
def test_our_snapshots_hold_what_caffes_hold(case, make, tmp_path):
    solver = make(case)
    solver.step(5)
    ours = read_plainly(tmp_path / "snap_iter_5.solverstate", SolverState())
    caffes = read_plainly(SOLVERS / case / "snap_iter_5.solverstate", SolverState())
    assert (ours.iter, ours.current_step) == (caffes.iter, caffes.current_step)
    assert ours.learned_net == str(tmp_path / "snap_iter_5.caffemodel")
    assert len(ours.history) == len(caffes.history) == 4 * len(solver._updater.histories)
    for mine, theirs in zip(ours.history, caffes.history, strict=True):
        assert_blob(mine, theirs)
    ours = read_plainly(tmp_path / "snap_iter_5.caffemodel", NetParameter())
    caffes = read_plainly(SOLVERS / case / "snap_iter_5.caffemodel", NetParameter())
    assert [describe(layer) for layer in ours.layer] == [describe(layer) for layer in caffes.layer]
    for mine, theirs in zip(ours.layer, caffes.layer, strict=True):
        assert [list(blob.shape.dim) for blob in mine.blobs] == [list(blob.shape.dim) for blob in theirs.blobs]
        for blob, reference in zip(mine.blobs, theirs.blobs, strict=True):
            scale = np.abs(blob_array(reference)).max()
            np.testing.assert_allclose(blob_array(blob), blob_array(reference), rtol=0, atol=3e-4 * scale + 1e-12)


def test_our_own_snapshot_goes_on_to_the_same_bits(make, tmp_path):
    whole = make("sgd_momentum_decay")
    whole.step(5)
    resumed = make("sgd_momentum_decay", weights=[])
    resumed.restore(str(tmp_path / "snap_iter_5.solverstate"))
    whole.step(7)
    resumed.step(7)
    assert torch.equal(whole.net.arena.data, resumed.net.arena.data)
