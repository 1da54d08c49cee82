"""Snapshots of a run: written in the background, pruned, the best one kept, and no reason to stop training."""

import errno
import gc
import json
import os
import threading
import weakref
from pathlib import Path

import pytest
import torch

from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import EXIT_CANNOT_WRITE, SnapshotError, SolverError
from mgcaffe.solvers.events import Finished, IterationDone, Warned
from mgcaffe.solvers.events.snapshots import BestFound, SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.snapshots.copying import SnapshotCopy
from mgcaffe.solvers.snapshots.manifest import read_manifest
from mgcaffe.solvers.snapshots.state_file import read_state
from tests.support.solverkit import Recorder, kept, make_solver, weights_of

# -- in the background ----------------------------------------------------------------------------------------


class Gate:
    """Holds the writer back until it is opened."""

    def __init__(self, monkeypatch):
        self.opened, self.reached = threading.Event(), threading.Event()
        self.threads = []
        write = SnapshotCopy.write

        def held(copied, *args, **options):
            self.threads.append(threading.current_thread())
            self.reached.set()
            assert self.opened.wait(20)
            return write(copied, *args, **options)

        monkeypatch.setattr(SnapshotCopy, "write", held)


def test_training_goes_on_while_a_snapshot_of_the_earlier_weights_is_written(net, tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    recorder = Recorder()
    seen = []

    class Opener:
        def on_event(self, event):
            if isinstance(event, IterationDone) and event.iteration == 1:
                seen.append(weights_of(solver))
            if isinstance(event, IterationDone) and event.iteration == 4:
                assert gate.reached.wait(20) and not recorder.of(SnapshotWritten)
                gate.opened.set()

    with make_solver(net, "snapshot: 2 momentum: 0.9 max_iter: 5", tmp_path, recorder=recorder) as solver:
        solver.listeners.append(Opener())
        monkeypatch.setattr(solver._snapshots, "take", _first_only(solver._snapshots.take))
        solver.solve()
        assert threading.main_thread() not in gate.threads
    assert [event.iteration for event in recorder.of(SnapshotWritten)] == [2]
    with make_solver(net, "momentum: 0.9", tmp_path) as resumed:
        resumed.restore(str(tmp_path / "net_iter_2.solverstate"))
        assert torch.equal(weights_of(resumed), seen[0])


def _first_only(take):
    return lambda progress: take(progress) if progress.iteration == 2 else None


def test_a_snapshot_due_meanwhile_waits_and_is_not_lost(net, tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    recorder = Recorder()

    class Opener:
        """Opens the gate once the second snapshot is due, a moment after training has begun to wait."""

        def on_event(self, event):
            if isinstance(event, IterationDone) and event.iteration == 3:
                threading.Timer(0.2, gate.opened.set).start()

    with make_solver(net, "snapshot: 2", tmp_path, recorder=recorder) as solver:
        solver.listeners.append(Opener())
        solver.step(6)
    kinds = [
        (type(event).__name__, event.iteration)
        for event in recorder.events
        if isinstance(event, (SnapshotWriting, SnapshotWritten))
    ]
    # Nothing of the second one begins, its copy neither, before the first one is on disk.
    assert kinds.index(("SnapshotWritten", 2)) < kinds.index(("SnapshotWriting", 4))
    assert kept(tmp_path) == [2, 4, 6]


def test_closing_waits_for_the_snapshot(net, tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    solver = make_solver(net, "snapshot: 2", tmp_path)
    solver._take_snapshot()
    threading.Timer(0.2, gate.opened.set).start()
    solver.close()
    assert kept(tmp_path) == [0]


def test_the_foreground_can_be_asked_for(net, tmp_path):
    recorder = Recorder()
    with make_solver(net, "snapshot_background: false", tmp_path, recorder=recorder) as solver:
        solver._take_snapshot()
        assert len(recorder.of(SnapshotWritten)) == 1


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_a_snapshot_that_would_be_the_same_stays_under_a_new_manifest(net, tmp_path, form):
    suffix = ".h5" if form == "HDF5" else ""
    files = [tmp_path / f"net_iter_2.{kind}{suffix}" for kind in ("caffemodel", "solverstate")]

    def numbers():
        return [path.stat().st_ino for path in files]

    with make_solver(net, f"snapshot_format: {form}", tmp_path) as solver:
        solver.step(2)
        solver.snapshot()
    before, written_at = numbers(), read_manifest(files[1]).written_at
    with make_solver(net, f"snapshot_format: {form}", tmp_path) as solver:
        solver.restore(str(files[1]))
        solver.snapshot()
        assert numbers() == before
        assert read_manifest(files[1]).written_at > written_at
        solver.net.arena.data.add_(1.0)
        solver.snapshot()
    assert numbers()[0] != before[0]
    assert kept(tmp_path) == [2]


def test_all_is_on_disk_before_the_state_has_its_name(net, tmp_path, monkeypatch):
    """A power cut at any moment then leaves a whole snapshot or none."""
    done = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append(("flush", str(Path(f"/proc/self/fd/{file}").readlink()))))
    monkeypatch.setattr(
        Path, "replace", lambda path, name: (done.append(("name", str(path), str(name))), replace(path, name))[1]
    )
    with make_solver(net, "", tmp_path) as solver:
        solver.snapshot()
    state = f"{tmp_path}/net_iter_0.solverstate"
    files = [f"{tmp_path}/net_iter_0.caffemodel", f"{state}.manifest.json", state]
    named, folder = [event for event in done if event[0] == "name"], ("flush", str(tmp_path))
    assert [target for *_, target in named] == files
    assert all(("flush", event[1]) in done[: done.index(event)] for event in named)
    assert folder in done[done.index(named[1]) : done.index(named[2])] and done[-1] == folder


def test_no_state_is_left_beside_weights_of_another_snapshot(net, tmp_path, monkeypatch):
    """One without a manifest, which nothing would tell from a whole one, is replaced, and that is cut short."""
    with make_solver(net, "", tmp_path) as solver:
        solver.snapshot()
    state = tmp_path / "net_iter_0.solverstate"
    state.with_name(f"{state.name}.manifest.json").unlink()
    replace = Path.replace

    def cut_short(path, target):
        if target.suffix == ".json":
            raise OSError(errno.EIO, "Input/output error")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", cut_short)
    with make_solver(net, "random_seed: 8", tmp_path) as solver, pytest.raises(SnapshotError):
        solver.snapshot()
    assert not state.exists()


def test_without_a_thread_it_is_written_in_the_foreground(net, tmp_path, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "snapshot":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with make_solver(net, "snapshot: 2", tmp_path) as solver:
        solver.step(4)
    assert kept(tmp_path) == [2, 4]


def test_a_snapshot_holds_the_weights_of_layers_that_share_them(net, tmp_path):
    shared = net.replace("param { lr_mult: 1 }", 'param { name: "w" lr_mult: 1 }')
    twin = shared[shared.index('layer { name: "ip"') : shared.index('layer { name: "loss"')]
    twin = twin.replace('name: "ip"', 'name: "twin"').replace('top: "ip"', 'top: "twin"')
    both = shared + twin + 'layer { name: "silence" type: "Silence" bottom: "twin" }'
    for form in ("BINARYPROTO", "HDF5"):
        with make_solver(both, f"snapshot_format: {form} momentum: 0.9", tmp_path) as solver:
            solver.step(3)
            solver.snapshot()
            expected = weights_of(solver)
        with make_solver(both, "momentum: 0.9 random_seed: 8", tmp_path) as resumed:
            suffix = ".h5" if form == "HDF5" else ""
            resumed.restore(str(tmp_path / f"net_iter_3.solverstate{suffix}"))
            assert torch.equal(weights_of(resumed), expected)


# -- what cannot be written -----------------------------------------------------------------------------------


def test_a_failed_snapshot_warns_and_the_next_one_is_tried(net, tmp_path):
    recorder = Recorder()
    (tmp_path / "net_iter_4.solverstate.manifest.json").mkdir()
    with make_solver(net, "snapshot: 2 max_iter: 6", tmp_path, recorder=recorder) as solver:
        solver.solve()
    (warned,) = recorder.of(Warned)
    assert warned.text.startswith("no snapshot: cannot write ")
    assert warned.text.endswith("training goes on, and the next snapshot is tried")
    assert [event.iteration for event in recorder.of(SnapshotWritten)] == [2, 6]
    assert recorder.of(Finished)[0].snapshot == f"{tmp_path}/net_iter_6.solverstate"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_whose_last_snapshot_failed_ends_with_the_reason_on_every_rank(net, tmp_path, ranks):
    (tmp_path / "net_iter_4.solverstate.manifest.json").mkdir()
    recorders = [Recorder() for _ in range(ranks)]

    def train(communicator):
        recorder = recorders[communicator.rank]
        fields = "snapshot: 2 max_iter: 4"
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            with pytest.raises(SnapshotError, match="Is a directory") as caught:
                solver.solve()
            return caught.value.exit_code

    assert run_ranks(ranks, train) == [EXIT_CANNOT_WRITE] * ranks
    for recorder in recorders:
        (finished,) = recorder.of(Finished)
        assert (finished.iteration, finished.snapshot) == (4, f"{tmp_path}/net_iter_2.solverstate")


def test_all_ranks_stop_at_the_same_iteration_if_a_failed_snapshot_is_to_stop_them(net, tmp_path):
    (tmp_path / "net_iter_4.solverstate.manifest.json").mkdir()

    def train(communicator):
        fields = "snapshot: 2 max_iter: 50 snapshot_errors: STOP snapshot_background: false"
        with make_solver(net, fields, tmp_path, communicator=communicator) as solver:
            with pytest.raises(SnapshotError):
                solver.solve()
            return solver.iteration

    assert run_ranks(2, train) == [5, 5]


def test_an_unexpected_error_is_warned_about_as_well(net, tmp_path, monkeypatch):
    recorder = Recorder()

    def fail(*args, **options):
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(SnapshotCopy, "write", fail)
    with make_solver(net, "snapshot: 2", tmp_path, recorder=recorder) as solver:
        solver.step(3)
        with pytest.raises(SnapshotError, match="ZeroDivisionError: a mistake"):
            solver.snapshot()
    assert "ZeroDivisionError" in recorder.of(Warned)[0].text


@pytest.mark.parametrize("fails", [False, True])
def test_the_copy_is_gone_once_it_is_written_or_has_failed(net, tmp_path, monkeypatch, fails):
    """Of a large net it takes as much memory as training; no garbage collector need come by."""
    copies = []
    take = SnapshotCopy.__init__

    def noted(copied, *args, **options):
        take(copied, *args, **options)
        copies.extend(weakref.ref(parameter.data) for layer in copied._layers for parameter in layer.parameters)
        copies.extend(weakref.ref(history) for history in copied._history)

    monkeypatch.setattr(SnapshotCopy, "__init__", noted)
    if fails:
        monkeypatch.setattr("mgcaffe.solvers.snapshots.copying.publish", no_space)
    gc.disable()
    try:
        with make_solver(net, "snapshot: 2 momentum: 0.9 max_iter: 3", tmp_path) as solver:
            solver.step(2)
            solver._snapshots.wait()
            assert (solver._snapshots.failure is not None) == fails
            assert copies and not any(copied() is not None for copied in copies)
    finally:
        gc.enable()


def no_space(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device", "net_iter_2.caffemodel")


# -- the best one ---------------------------------------------------------------------------------------------


class Scores:
    """Gives the tests' losses, one a test."""

    def __init__(self, monkeypatch, values):
        from mgcaffe.solvers.testing import tester

        run_test, values = tester.run_test, iter(values)

        def scored(*args, **options):
            result = run_test(*args, **options)
            scores = tuple(type(score)(score.index, score.name, next(values)) for score in result.scores)
            return type(result)(scores, result.loss)

        monkeypatch.setattr(tester, "run_test", scored)


TESTED = 'test_iter: 2 test_interval: 2 test_initialization: false snapshot_best: "loss"'


def test_the_best_by_a_test_output_is_one_more(net, tmp_path, monkeypatch):
    recorder = Recorder()
    Scores(monkeypatch, [5.0, 3.0, 4.0, float("nan"), 3.0, 6.0])
    fields = f"{TESTED} snapshot: 3 snapshot_keep: 1"
    with make_solver(net, fields, tmp_path, recorder=recorder) as solver:
        solver.step(13)
    assert [(event.iteration, event.value) for event in recorder.of(BestFound)] == [(2, 5.0), (4, 3.0)]
    assert kept(tmp_path) == [4, 12]
    best = json.loads((tmp_path / "net_best.json").read_text())
    assert (best["iteration"], best["value"], best["weights"]) == (4, 3.0, "net_iter_4.caffemodel")


def test_a_due_snapshot_of_the_same_iteration_is_the_best_one_and_stays(net, tmp_path, monkeypatch):
    Scores(monkeypatch, [5.0, 6.0, 7.0, 8.0])
    recorder = Recorder()
    with make_solver(net, f"{TESTED} snapshot: 2 snapshot_keep: 1", tmp_path, recorder=recorder) as solver:
        solver.step(9)
    assert [event.iteration for event in recorder.of(SnapshotWritten)] == [2, 4, 6, 8]
    assert kept(tmp_path) == [2, 8]


def test_without_a_number_to_keep_only_the_superseded_best_ones_go(net, tmp_path, monkeypatch):
    Scores(monkeypatch, [5.0, 4.0, 3.0, 2.0])
    with make_solver(net, f"{TESTED} snapshot: 3", tmp_path) as solver:
        solver.step(9)
    assert kept(tmp_path) == [3, 6, 8, 9]


def test_a_resume_knows_the_best_score(net, tmp_path, monkeypatch):
    Scores(monkeypatch, [5.0, 2.0, 6.0, 3.0, 6.0])
    with make_solver(net, f"{TESTED} snapshot: 6 snapshot_keep: 1", tmp_path) as solver:
        solver.step(6)
    assert read_state(tmp_path / "net_iter_6.solverstate").progress.best.value == 2.0
    recorder = Recorder()
    with make_solver(net, f"{TESTED} snapshot: 6 snapshot_keep: 1", tmp_path, recorder=recorder) as solver:
        solver.restore(str(tmp_path / "net_iter_6.solverstate"))
        solver.step(6)
    assert not recorder.of(BestFound)
    assert kept(tmp_path) == [4, 12]


def test_the_best_one_resumes_to_the_same_bits(net, tmp_path, monkeypatch):
    recorders = [Recorder(), Recorder()]
    fields = TESTED.replace("loss", "loss:higher") + " momentum: 0.9"
    with make_solver(net, fields, tmp_path, recorder=recorders[0]) as solver:
        solver.step(8)
        expected = weights_of(solver)
    best = recorders[0].of(BestFound)[-1]
    with make_solver(net, fields, tmp_path, recorder=recorders[1]) as solver:
        solver.restore(best.state)
        solver.step(8 - best.iteration)
        assert torch.equal(weights_of(solver), expected)
    scores = [[event.scores for event in recorder.events if hasattr(event, "scores")] for recorder in recorders]
    assert scores[1] == scores[0][-len(scores[1]) :]


def test_a_run_killed_before_it_named_its_best_one_names_it_when_it_goes_on(net, tmp_path, monkeypatch):
    Scores(monkeypatch, [5.0, 3.0, 3.0, 4.0])
    fields = f"{TESTED} snapshot: 5"
    best = tmp_path / "net_best.json"
    with make_solver(net, fields, tmp_path) as solver:
        solver.step(3)
        named_before = best.read_bytes()
        solver.step(2)
    best.write_bytes(named_before)
    with make_solver(net, fields, tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_4.solverstate"))
        solver.step(1)
    assert json.loads(best.read_text())["state"] == "net_iter_4.solverstate"
    assert kept(tmp_path) == [4, 5]


def test_the_best_one_may_be_of_the_other_format(net, tmp_path, monkeypatch):
    Scores(monkeypatch, [3.0, 4.0, 5.0])
    with make_solver(net, f"{TESTED} snapshot: 4", tmp_path) as solver:
        solver.step(4)
    with make_solver(net, f"{TESTED} snapshot: 5 snapshot_format: HDF5 snapshot_keep: 1", tmp_path) as solver:
        solver.restore(str(tmp_path / "net_iter_4.solverstate"))
        solver.step(1)
    assert json.loads((tmp_path / "net_best.json").read_text())["weights"] == "net_iter_2.caffemodel"
    assert kept(tmp_path) == [2, 5]


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_resumed_snapshot_that_turns_out_the_best_is_not_written_again(net, tmp_path, monkeypatch, has_manifest):
    """Unless it has no manifest, as one of Caffe's: there is none to take as the best then."""
    Scores(monkeypatch, [5.0])
    with make_solver(net, "snapshot: 2", tmp_path) as solver:
        solver.step(2)
    state = tmp_path / "net_iter_2.solverstate"
    if not has_manifest:
        state.with_name(f"{state.name}.manifest.json").unlink()
    before = state.stat().st_ino, state.stat().st_mtime_ns
    recorder = Recorder()
    with make_solver(net, f"{TESTED} snapshot_keep: 1", tmp_path, recorder=recorder) as solver:
        solver.restore(str(state))
        solver.step(1)
    assert [event.iteration for event in recorder.of(BestFound)] == [2]
    assert not any("no snapshot" in event.text for event in recorder.of(Warned))
    assert ((state.stat().st_ino, state.stat().st_mtime_ns) == before) == has_manifest
    assert kept(tmp_path) == [2]


def test_every_rank_tests_and_one_keeps_the_best(net, tmp_path):
    def train(communicator):
        with make_solver(net, f"{TESTED} snapshot: 4", tmp_path, communicator=communicator) as solver:
            solver.step(5)
            return weights_of(solver)

    weights = run_ranks(2, train)
    assert torch.equal(*weights)
    assert (tmp_path / "net_best.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("los", "names 'los', which is no output of the test net. Did you mean 'loss'?"),
        ("3:loss", "names test net 3, and there are 1"),
    ],
)
def test_an_output_that_is_none_is_refused_before_training(net, tmp_path, text, message):
    with pytest.raises(SolverError) as caught:
        make_solver(net, TESTED.replace('"loss"', f'"{text}"'), tmp_path)
    assert message in str(caught.value)


def test_the_best_needs_a_test_net(net, tmp_path):
    with pytest.raises(SolverError, match="needs a test net"):
        make_solver(net, 'snapshot_best: "loss"', tmp_path)
