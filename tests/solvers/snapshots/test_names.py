"""What snapshots are called."""

from pathlib import Path

import pytest

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.snapshots.names import is_hdf5, snapshot_prefix, state_path, weights_path


def prefix(text, file="models/lenet_solver.prototxt"):
    source = parse_solver(f"max_iter: 1 {text}", file=file)
    return snapshot_prefix(source.param, source)


def test_a_prefix_is_taken_as_given():
    assert prefix('snapshot_prefix: "out/run"') == Path("out/run")


def test_without_a_prefix_snapshots_lie_beside_the_solver():
    assert prefix("") == prefix('snapshot_prefix: ""') == Path("models/lenet_solver")


def test_a_folder_holds_snapshots_named_after_the_solver(tmp_path):
    assert prefix(f'snapshot_prefix: "{tmp_path}"') == tmp_path / "lenet_solver"
    assert prefix('snapshot_prefix: "later/"') == Path("later/lenet_solver")


def test_a_solver_from_no_file_needs_a_prefix():
    with pytest.raises(SolverError, match="gives no snapshot_prefix"):
        snapshot_prefix(SolverParameter())
    assert snapshot_prefix(SolverParameter(snapshot_prefix="a")) == Path("a")


def test_files_are_named_as_by_caffe():
    assert weights_path(Path("out/run.v2"), 500) == Path("out/run.v2_iter_500.caffemodel")
    assert state_path(Path("run"), 7) == Path("run_iter_7.solverstate")
    assert weights_path(Path("run"), 7, hdf5=True) == Path("run_iter_7.caffemodel.h5")
    assert state_path(Path("run"), 7, hdf5=True) == Path("run_iter_7.solverstate.h5")


def test_the_format_is_the_solvers():
    assert not is_hdf5(SolverParameter())
    assert is_hdf5(parse_solver("snapshot_format: HDF5").param)
