"""The record that a rank leaves of what it does."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from mgcaffe.comm.supervision import status


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = status.open_status(tmp_path / "job", 2, 4)
    record.iteration(17)
    record.doing(status.encode("backward, layer 'conv1'"))
    (place,) = status.read_places(tmp_path / "job").values()
    assert place == record.read()
    assert (place.rank, place.size, place.pid, place.state, place.beat) == (2, 4, os.getpid(), status.RUNNING, 1)
    assert place.describe() == "iteration 17, backward, layer 'conv1'"
    record.terminated()
    record.finish(status.FAILED, 65)
    (place,) = status.read_places(tmp_path / "job").values()
    assert (place.state, place.code, place.terminated) == (status.FAILED, 65, True)


def test_a_record_outlives_its_process(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from mgcaffe.comm.supervision import status\n"
        "status.use(status.open_status(Path(sys.argv[1]), 1, 2)); status.current().iteration(5)\n"
        "status.doing('forward'); os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=60)
    assert result.returncode == -signal.SIGKILL
    place = status.read_places(tmp_path)[1]
    assert place.describe() == "iteration 5, forward" and not status.is_alive(place.pid)


def test_a_text_that_is_too_long_is_cut(tmp_path):
    record = status.open_status(tmp_path, 0, 1)
    record.doing(status.encode("ä" * 500))
    assert record.read().doing.startswith("ä" * 90)


def test_without_a_folder_the_record_lies_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file"):
        record = status.open_status(folder, 0, 1)
        assert record.path is None and record.read().doing == status.STARTING


def test_what_is_no_record_is_passed_over(tmp_path):
    (tmp_path / "0").write_bytes(b"")
    (tmp_path / "1").write_bytes(b"x" * status.SIZE)
    (tmp_path / "launcher").write_text("1")
    assert status.read_places(tmp_path) == {} == status.read_places(tmp_path / "absent") == status.read_places(None)


@pytest.mark.parametrize(
    "environ",
    [
        {"PMIX_NAMESPACE": "prterun-node7-4711@1"},
        {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2"},
        {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", "SLURM_RESTART_COUNT": "1"},
        {},
    ],
)
def test_each_job_has_a_folder_of_its_own(environ):
    folder = status.job_folder(environ)
    assert folder == status.job_folder(dict(environ))
    assert folder != status.job_folder({"PMIX_NAMESPACE": "another"})
    assert folder != status.job_folder({**environ, "SLURM_JOB_ID": "18", "PMIX_NAMESPACE": "another"})


def test_ranks_that_torchrun_starts_again_have_another_folder():
    first, second = (status.job_folder({"TORCHELASTIC_RESTART_COUNT": count}) for count in "01")
    assert first != second and first.name.removesuffix("-0") == second.name.removesuffix("-1")


def test_the_launchers_folder_comes_first(tmp_path):
    environ = {status.FOLDER_VARIABLE: str(tmp_path), "PMIX_NAMESPACE": "x"}
    assert status.job_folder(environ) == tmp_path


def test_a_folder_that_cannot_be_filled_is_not_left(tmp_path, monkeypatch):
    def refuse(*words, **options):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(status, "records_folder", lambda: tmp_path)
    monkeypatch.setattr(status.Path, "write_text", refuse)
    with pytest.raises(OSError, match="File too large"):
        status.new_folder()
    assert not list(tmp_path.iterdir())


def test_the_last_rank_of_a_host_leaves_no_folder(tmp_path, monkeypatch):
    folder = tmp_path / "job"
    other = status.open_status(folder, 0, 2)
    monkeypatch.setattr(status, "_current", status.open_status(folder, 1, 2))
    with monkeypatch.context() as patch:
        patch.delenv(status.FOLDER_VARIABLE, raising=False)
        status.end(status.ENDED, 0)
        assert status.read_places(folder)[1].state == status.ENDED
        other.finish(status.ENDED, 0)
        (folder / "launcher").write_text("4711")
        patch.setenv(status.FOLDER_VARIABLE, str(folder))
        assert status.is_launchers()
        status.end(status.ENDED, 0)
        assert folder.exists()
        patch.delenv(status.FOLDER_VARIABLE)
        status.end(status.ENDED, 75)
    assert not folder.exists()


def test_on_another_host_than_the_launchers_the_last_rank_leaves_no_folder_either(tmp_path, monkeypatch):
    folder = tmp_path / "job"
    monkeypatch.setenv(status.FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(status, "_current", status.open_status(folder, 2, 3))
    assert not status.is_launchers()
    status.end(status.ENDED, 0)
    assert not folder.exists()
