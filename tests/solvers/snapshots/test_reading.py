"""Snapshots are read with their manifest or without, and the newest whole one is found."""

import pytest
import torch

from mgcaffe.comm import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.engine import Net
from mgcaffe.errors import EXIT_BAD_INPUT, SnapshotError
from mgcaffe.prototxt import NetParameter, SolverParameter
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.events.snapshots import NothingToRestore, Restored
from mgcaffe.solvers.snapshots.named_weights import names_weights
from mgcaffe.solvers.snapshots.reading import newest_snapshot, read_snapshot
from tests.support.paths import GOLDEN
from tests.support.solverkit import (
    LEAST_SQUARES,
    Recorder,
    data_layer,
    make_solver,
    take_weights_out,
    weights_of,
    write_data,
)

SOLVERS = GOLDEN / "solvers"


@pytest.fixture
def net(tmp_path):
    return data_layer(write_data(tmp_path), 5) + LEAST_SQUARES


@pytest.fixture(params=["", ".h5"], ids=["binary", "hdf5"])
def snapshots(request, net, tmp_path):
    """Three snapshots, of the iterations 2, 4 and 6; gives the end of the files' names."""
    form = "HDF5" if request.param else "BINARYPROTO"
    with make_solver(net, f"snapshot: 2 snapshot_format: {form}", tmp_path) as solver:
        solver.step(6)
    return request.param


def find(folder, recorder):
    param = SolverParameter(snapshot_prefix=f"{folder}/net")
    return newest_snapshot(param, None, SingleCommunicator(), recorder.on_event)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def test_the_newest_is_found(snapshots, tmp_path):
    recorder = Recorder()
    assert find(tmp_path, recorder) == f"{tmp_path}/net_iter_6.solverstate{snapshots}"
    assert not recorder.events


def test_damaged_ones_are_passed_over_with_the_reason(snapshots, tmp_path):
    recorder = Recorder()
    cut(tmp_path / f"net_iter_6.caffemodel{snapshots}")
    cut(tmp_path / f"net_iter_4.solverstate{snapshots}.manifest.json")
    assert find(tmp_path, recorder) == f"{tmp_path}/net_iter_2.solverstate{snapshots}"
    texts = {event.text for event in recorder.of(Warned)}
    assert len(texts) == 2
    assert any(f"net_iter_6.caffemodel{snapshots} is cut short" in text for text in texts)
    assert any("manifest.json is damaged" in text for text in texts)


def test_damaged_ones_without_manifest_are_passed_over_too(snapshots, tmp_path):
    recorder = Recorder()
    for manifest in tmp_path.glob("*.manifest.json"):
        manifest.unlink()
    cut(tmp_path / f"net_iter_6.solverstate{snapshots}")
    (tmp_path / f"net_iter_4.caffemodel{snapshots}").write_bytes(b"\x89HDF" if snapshots else b"\xa2\x06\xff")
    assert find(tmp_path, recorder) == f"{tmp_path}/net_iter_2.solverstate{snapshots}"
    assert len(recorder.of(Warned)) == 2


def test_without_any_training_starts_anew_and_says_so(tmp_path):
    recorder = Recorder()
    (tmp_path / "net_iter_x.solverstate").touch()
    (tmp_path / "other_iter_3.solverstate").touch()
    assert find(tmp_path, recorder) is None
    assert recorder.events == [NothingToRestore(f"{tmp_path}/net")]


def test_all_ranks_agree_on_the_one_that_rank_0_finds(snapshots, tmp_path):
    def look(communicator):
        prefix = f"{tmp_path}/net" if communicator.rank == 0 else "/nowhere/net"
        return newest_snapshot(SolverParameter(snapshot_prefix=prefix), None, communicator, lambda event: None)

    assert run_ranks(3, look) == [f"{tmp_path}/net_iter_6.solverstate{snapshots}"] * 3


def test_a_snapshot_of_caffe_needs_no_manifest():
    state, weights = read_snapshot(SOLVERS / "sgd" / "snap_iter_5.solverstate")
    assert state.progress.iteration == 5
    assert weights.name == "snap_iter_5.caffemodel"


def test_a_state_without_weights_restores_iteration_and_histories_alone(snapshots, net, tmp_path):
    path = tmp_path / f"net_iter_6.solverstate{snapshots}"
    recorder = Recorder()
    state, _ = read_snapshot(path)
    assert names_weights(path)
    take_weights_out(path)
    assert names_weights(path) is False
    with make_solver(net, "", tmp_path, recorder=recorder) as solver:
        before = weights_of(solver)
        solver.restore(str(path))
        assert solver.iteration == 6
        assert torch.equal(weights_of(solver), before)
        for values, blob in zip(state.history, solver._updater.history_blobs(solver.net.parameters), strict=True):
            assert torch.equal(torch.tensor(values), blob.reshape(values.shape))
        solver.step(1)
    assert [event.weights for event in recorder.of(Restored)] == [None]
    (text,) = [event.text for event in recorder.of(Warned) if f"{path} names no weights (learned_net)" in event.text]
    assert text.endswith("training goes on with the weights that the net has now")
    # A run that is to begin where it can goes on from one with weights.
    assert find(tmp_path, recorder) == f"{tmp_path}/net_iter_4.solverstate{snapshots}"


def test_of_a_state_that_cannot_be_read_nothing_is_known(snapshots, tmp_path):
    """Whoever reads it next says what is wrong with it."""
    path = tmp_path / f"net_iter_6.solverstate{snapshots}"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for each in (path, tmp_path / "missing", tmp_path, "a\0b"):
        assert names_weights(each) is None


def test_a_moved_snapshot_is_compared_with_its_manifest(snapshots, net, tmp_path):
    """The weights beside the state are meant, whatever the state says."""
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in tmp_path.glob("net_iter_6.*"):
        (moved / path.name).write_bytes(path.read_bytes())
    cut(moved / f"net_iter_6.caffemodel{snapshots}")
    with pytest.raises(SnapshotError, match=r"moved/net_iter_6\.caffemodel.*cut short") as caught:
        read_snapshot(moved / f"net_iter_6.solverstate{snapshots}")
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_a_snapshot_that_another_run_replaces_while_it_is_read_is_refused(snapshots, net, tmp_path, monkeypatch):
    """What is read would be the state of one run and the weights of the other."""
    form = "HDF5" if snapshots else "BINARYPROTO"
    path = f"{tmp_path}/net_iter_2.solverstate{snapshots}"
    copy = Net.copy_trained_layers

    def replacing(*args, **options):
        monkeypatch.setattr(Net, "copy_trained_layers", copy)
        with make_solver(
            net, f"snapshot: 2 lr_policy: 'fixed' base_lr: 0.5 snapshot_format: {form}", tmp_path
        ) as other:
            other.step(2)
        return copy(*args, **options)

    with make_solver(net, f"snapshot_format: {form}", tmp_path) as solver:
        monkeypatch.setattr(Net, "copy_trained_layers", replacing)
        with pytest.raises(SnapshotError, match=r"net_iter_2\..* was replaced or removed while it was read") as caught:
            solver.restore(path)
        assert caught.value.exit_code == EXIT_BAD_INPUT
        solver.restore(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "cut short"),
        # Caffe takes it: there are as many histories.
        ('type: "AdaGrad"', "holds the state of solver type SGD, and this solver has type AdaGrad"),
    ],
)
def test_a_refused_snapshot_leaves_the_solver_as_it_was(snapshots, net, tmp_path, fields, message):
    recorder = Recorder()
    if not fields:
        cut(tmp_path / f"net_iter_6.solverstate{snapshots}")
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        before = weights_of(solver)
        with pytest.raises(SnapshotError, match=message) as caught:
            solver.restore(str(tmp_path / f"net_iter_6.solverstate{snapshots}"))
        assert caught.value.exit_code == EXIT_BAD_INPUT
        assert torch.equal(weights_of(solver), before)
        assert solver.iteration == 0
    assert not recorder.of(Restored)


def test_weights_that_lack_a_layer_of_the_net_do_not_make_a_resume(net, tmp_path):
    with make_solver(net, "snapshot: 2", tmp_path) as solver:
        solver.step(2)
    weights = tmp_path / "net_iter_2.caffemodel"
    message = NetParameter.FromString(weights.read_bytes())
    next(layer for layer in message.layer if layer.name == "ip").name = "renamed"
    weights.write_bytes(message.SerializeToString())
    (tmp_path / "net_iter_2.solverstate.manifest.json").unlink()
    with make_solver(net, "", tmp_path) as solver, pytest.raises(SnapshotError, match=r"lacks the weights of .*'ip'"):
        solver.restore(str(tmp_path / "net_iter_2.solverstate"))


def test_a_run_without_momentum_leaves_its_last_step_to_one_with_momentum(net, tmp_path):
    with make_solver(net, "", tmp_path) as solver:
        solver.step(3)
        before = weights_of(solver)
        solver.step(1)
        step = before - weights_of(solver)
        solver.snapshot()
    state = str(tmp_path / "net_iter_4.solverstate")
    # Resumed, the history is there for a snapshot before an update, and for momentum.
    for fields in ("", "momentum: 0.9"):
        with make_solver(net, fields, tmp_path) as solver:
            solver.net.arena.diff.fill_(1)
            solver.restore(state)
            torch.testing.assert_close(solver._updater.histories[0], step, rtol=1e-9, atol=1e-15)
            solver.snapshot()
