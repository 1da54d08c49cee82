"""Which snapshots stay: the newest of the run, whole ones, and none of another run is removed."""

import itertools
import shutil
from types import SimpleNamespace

import pytest
import torch

from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.snapshots import writer
from mgcaffe.solvers.snapshots.copying import SnapshotCopy
from mgcaffe.solvers.solver import Solver
from tests.support.solverkit import Recorder, kept, make_solver, solver_source


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_the_newest_stay(net, tmp_path, form):
    with make_solver(net, f"snapshot: 2 snapshot_keep: 2 snapshot_format: {form}", tmp_path) as solver:
        solver.step(3)
        assert kept(tmp_path) == [2]
        solver.step(6)
    assert kept(tmp_path) == [6, 8]


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_what_is_left_of_one_whose_removal_was_cut_short_goes_with_the_next(net, tmp_path, form):
    with make_solver(net, f"snapshot: 2 snapshot_keep: 1 snapshot_format: {form}", tmp_path) as solver:
        solver.step(2)
        (tmp_path / f"net_iter_2.solverstate{'.h5' if form == 'HDF5' else ''}").unlink()  # the first of its files
        solver.step(4)
    assert kept(tmp_path) == [6]


def test_a_resumed_run_removes_what_is_left_under_its_own_prefix_alone(net, tmp_path):
    with make_solver(net, "snapshot: 2", tmp_path) as solver:
        solver.step(4)
    others = [f"net2_iter_2.{kind}" for kind in ("caffemodel", "solverstate.manifest.json")]
    for name in others:
        shutil.copy(tmp_path / name.replace("net2", "net"), tmp_path / name)
    (tmp_path / "net_iter_2.solverstate").unlink()
    with make_solver(net, "snapshot: 2 snapshot_keep: 1", tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_4.solverstate"))
        solver.step(2)
    assert kept(tmp_path) == [6]
    assert sorted(path.name for path in tmp_path.glob("net2*")) == others


def test_all_stay_unless_a_number_is_given(net, tmp_path):
    with make_solver(net, "snapshot: 1", tmp_path) as solver:
        solver.step(4)
    assert kept(tmp_path) == [1, 2, 3, 4]


def test_a_resumed_run_goes_on_pruning_and_leaves_snapshots_of_caffe_alone(net, tmp_path):
    with make_solver(net, "snapshot: 1", tmp_path) as solver:
        solver.step(4)
    (tmp_path / "net_iter_2.solverstate.manifest.json").unlink()
    with make_solver(net, "snapshot: 1 snapshot_keep: 2", tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_4.solverstate"))
        solver.step(1)
    left = sorted(path.name for path in tmp_path.glob("*.solverstate"))
    assert left == [f"net_iter_{iteration}.solverstate" for iteration in (2, 4, 5)]


def test_a_damaged_one_does_not_count_among_those_to_keep(net, tmp_path):
    recorder = Recorder()
    with make_solver(net, "snapshot: 1", tmp_path) as solver:
        solver.step(3)
    damaged = tmp_path / "net_iter_3.caffemodel"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with make_solver(net, "snapshot: 2 snapshot_keep: 2", tmp_path, recorder=recorder) as solver:
        solver.restore(str(tmp_path / "net_iter_2.solverstate"))
        solver.step(2)
    assert "net_iter_3.caffemodel is cut short" in recorder.of(Warned)[-1].text
    left = sorted(path.name for path in tmp_path.glob("*.solverstate"))
    assert left == [f"net_iter_{iteration}.solverstate" for iteration in (2, 3, 4)]


def test_nothing_is_removed_if_the_new_one_is_not_on_disk_as_it_was_written(net, tmp_path, monkeypatch):
    recorder = Recorder()
    write = SnapshotCopy.write

    def damaging(copied, *args, **options):
        state = write(copied, *args, **options)
        if copied.progress.iteration == 3:
            state.write_bytes(state.read_bytes()[:-1])
        return state

    monkeypatch.setattr(SnapshotCopy, "write", damaging)
    with make_solver(net, "snapshot: 1 snapshot_keep: 2", tmp_path, recorder=recorder) as solver:
        solver.step(3)
    assert "net_iter_3.solverstate is cut short" in recorder.of(Warned)[0].text
    assert sorted(path.name for path in tmp_path.glob("*.solverstate")) == [
        f"net_iter_{iteration}.solverstate" for iteration in (1, 2, 3)
    ]


@pytest.mark.parametrize("is_removed", [True, False])
def test_another_run_under_the_prefix_that_takes_the_new_one_away_is_suspected(net, tmp_path, monkeypatch, is_removed):
    recorder = Recorder()
    write = SnapshotCopy.write

    def spoiling(copied, *args, **options):
        state = write(copied, *args, **options)
        if is_removed:
            state.unlink()
        else:
            write(copied, *args, **{**options, "written_at": 2e9})
        return state

    monkeypatch.setattr(SnapshotCopy, "write", spoiling)
    with make_solver(net, "snapshot: 1 snapshot_keep: 2", tmp_path, recorder=recorder) as solver:
        solver.step(1)
    assert "net_iter_1.solverstate is not there any more, or another run has written" in recorder.of(Warned)[0].text


@pytest.mark.parametrize("is_set_back", [False, True])
def test_what_is_written_last_is_the_newest_whatever_its_iteration(net, tmp_path, monkeypatch, is_set_back):
    """A run that starts anew under an old prefix must not lose its own snapshots to old ones, by no clock."""
    with make_solver(net, "snapshot: 5", tmp_path) as solver:
        solver.step(10)
    if is_set_back:
        clock = itertools.count(1e9, -60)
        monkeypatch.setattr(writer, "time", SimpleNamespace(time=lambda: next(clock)))
    with make_solver(net, "snapshot: 1 snapshot_keep: 2", tmp_path) as solver:
        solver.step(3)
    assert kept(tmp_path) == [2, 3, 5, 10]  # those of the run before are not this one's to remove
    with make_solver(net, "snapshot: 1 snapshot_keep: 2", tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_3.solverstate"))
        solver.step(1)
    assert kept(tmp_path) == [3, 4]


def test_two_runs_under_one_prefix_do_not_remove_each_others(net, tmp_path):
    fields = "snapshot: 2 snapshot_keep: 1"
    with make_solver(net, fields, tmp_path) as first, make_solver(net, fields, tmp_path) as second:
        first.step(3)
        second.restore(str(tmp_path / "net_iter_2.solverstate"))
        first.step(6)
        assert kept(tmp_path) == [8]
        second.step(3)
        assert kept(tmp_path) == [4, 8]
        first.step(2)
    assert kept(tmp_path) == [4, 10]


@pytest.mark.parametrize("prefix", ["other/net", "net2"])
def test_a_run_that_goes_on_from_another_prefix_leaves_what_lies_under_its_own(net, tmp_path, prefix):
    (tmp_path / "other").mkdir()
    fields = 'test_iter: 1 test_interval: 1 snapshot: 1 snapshot_best: "loss"'
    with make_solver(net, f'{fields} snapshot_prefix: "{tmp_path / prefix}" random_seed: 8', tmp_path) as solver:
        solver.step(2)
    with make_solver(net, fields, tmp_path) as solver:
        solver.step(2)
    named = (tmp_path / "net_best.json").read_bytes()
    fields = fields.replace("test_interval: 1", "test_interval: 10 snapshot_keep: 1")
    with make_solver(net, fields, tmp_path) as solver:
        solver.restore(str(tmp_path / f"{prefix}_iter_2.solverstate"))
        solver.step(3)
    assert kept(tmp_path) == [1, 2, 5]
    assert (tmp_path / "net_best.json").read_bytes() == named


def test_a_snapshot_that_is_a_link_to_another_folder_is_the_runs_own(net, tmp_path):
    with make_solver(net, "snapshot: 1", tmp_path) as solver:
        solver.step(2)
    (tmp_path / "elsewhere").mkdir()
    for path in list(tmp_path.glob("net_iter_2.*")):
        path.rename(tmp_path / "elsewhere" / path.name)
        path.symlink_to(tmp_path / "elsewhere" / path.name)
    with make_solver(net, "snapshot: 1 snapshot_keep: 1", tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_2.solverstate"))
        solver.step(1)
    assert kept(tmp_path) == [3]


def test_a_run_without_snapshots_of_its_own_needs_no_prefix_to_go_on(net, tmp_path):
    with make_solver(net, "snapshot: 1", tmp_path) as solver:
        solver.step(1)
    source = solver_source(net, "snapshot_keep: 1", tmp_path)
    source.param.ClearField("snapshot_prefix")
    with Solver(source.param, dtype=torch.float64) as solver:
        solver.restore(str(tmp_path / "net_iter_1.solverstate"))
        solver.step(1)
