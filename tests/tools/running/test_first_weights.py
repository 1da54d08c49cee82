"""With which weights a run goes on from a solverstate that names none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mgcaffe.engine.weights.hdf5 import is_hdf5, read_message
from mgcaffe.prototxt import blob_array, read_net
from mgcaffe.tools.running.first_weights import first_weights
from tests.support.solverkit import take_weights_out

_STATE = "tiny_iter_10.solverstate"


@pytest.fixture(params=["", ".h5"], ids=["binary", "hdf5"])
def bare(request, engine):
    """A snapshot of iteration 10 without weights, and other weights, of iteration 1; gives the engine and its state."""
    form = "HDF5" if request.param else "BINARYPROTO"
    engine.solver += f"snapshot_format: {form}\n"
    engine.write("solver.prototxt", engine.solver)
    for iterations in (1, 10):
        result = engine.run("train", "solver.prototxt", f"--max_iter={iterations}")
        assert result.returncode == 0, result.stderr
    take_weights_out(engine.folder / f"{_STATE}{request.param}")
    (engine.folder / f"tiny_iter_1.caffemodel{request.param}").rename(engine.folder / "first.caffemodel")
    return engine, f"{_STATE}{request.param}"


def values(path):
    net = read_message(path) if is_hdf5(path) else read_net(path)
    return [blob_array(blob).tolist() for layer in net.layer for blob in layer.blobs]


@pytest.mark.parametrize("by_flag", [False, True])
def test_the_weights_are_those_of_the_solver_or_the_flag(bare, by_flag):
    engine, state = bare
    weights = values(engine.folder / "first.caffemodel")
    more = "" if by_flag else 'weights: "first.caffemodel"\n'
    # Nothing is left to train, so that the snapshot at the end holds what the run began with.
    engine.write("other.prototxt", engine.solver.replace('"tiny"', '"other"').replace("snapshot: 10", more))
    flags = ["--weights=first.caffemodel"] if by_flag else []
    result = engine.run("train", "other.prototxt", f"--snapshot={state}", "--max_iter=10", *flags)
    assert result.returncode == 0, result.stderr
    assert "Finetuning from first.caffemodel" in result.stderr
    assert "names no weights (learned_net)" in result.stderr
    written = state.replace("tiny", "other").replace("solverstate", "caffemodel")
    assert values(engine.folder / written) == weights


def test_a_dry_run_begins_with_them_too(bare):
    engine, state = bare
    result = engine.run("train", "solver.prototxt", "--dry_run", f"--snapshot={state}", "--weights=absent.caffemodel")
    assert result.returncode == 65 and "absent.caffemodel" in result.stderr


def test_weights_beside_a_state_that_names_its_own_are_refused(engine):
    assert engine.run("train", "solver.prototxt", "--max_iter=1").returncode == 0
    words = ("train", "solver.prototxt", "--weights=tiny_iter_1.caffemodel")
    result = engine.run(*words, "--snapshot=tiny_iter_1.solverstate")
    assert result.returncode == 2 and "--snapshot and --weights exclude each other" in result.stderr
    assert engine.run(*words, "--snapshot=auto", "--max_iter=2").returncode == 0


def test_a_state_that_is_not_there_is_said_to_be_so_also_beside_weights(engine):
    result = engine.run("train", "solver.prototxt", "--weights=x.caffemodel", "--snapshot=absent.solverstate")
    assert result.returncode == 65 and "absent.solverstate" in result.stderr
    assert "exclude" not in result.stderr


def test_the_other_ranks_need_no_copy_of_a_state_that_names_no_weights():
    class Rank1:
        rank = 1

        def broadcast_object(self, value):
            assert value is None
            return False

    flags = SimpleNamespace(weights=["a.caffemodel"], snapshot="absent.solverstate")
    assert first_weights(flags, "absent.solverstate", Rank1()) == ["a.caffemodel"]
