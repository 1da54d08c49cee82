"""The folder of a job's records: whose it is, what is in it, and who removes it."""

from __future__ import annotations

import errno
import os

import pytest

from mgcaffe.comm.supervision import record_folders, status
from mgcaffe.comm.supervision.record_folders import read_places


def test_what_is_no_record_is_passed_over(tmp_path):
    (tmp_path / "0").write_bytes(b"")
    (tmp_path / "1").write_bytes(b"x" * status.SIZE)
    (tmp_path / "launcher").write_text("1")
    assert read_places(tmp_path) == {} == read_places(tmp_path / "absent") == read_places(None)


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
    folder = record_folders.job_folder(environ)
    assert folder == record_folders.job_folder(dict(environ))
    assert folder != record_folders.job_folder({"PMIX_NAMESPACE": "another"})
    assert folder != record_folders.job_folder({**environ, "SLURM_JOB_ID": "18", "PMIX_NAMESPACE": "another"})


def test_ranks_that_torchrun_starts_again_have_another_folder():
    first, second = (record_folders.job_folder({"TORCHELASTIC_RESTART_COUNT": count}) for count in "01")
    assert first != second and first.name.removesuffix("-0") == second.name.removesuffix("-1")


def test_the_launchers_folder_comes_first(tmp_path):
    environ = {record_folders.FOLDER_VARIABLE: str(tmp_path), "PMIX_NAMESPACE": "x"}
    assert record_folders.job_folder(environ) == tmp_path


def test_a_folder_that_cannot_be_filled_is_not_left(tmp_path, monkeypatch):
    def refuse(*words, **options):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(record_folders, "records_folder", lambda: tmp_path)
    monkeypatch.setattr(record_folders.Path, "write_text", refuse)
    with pytest.raises(OSError, match="File too large"):
        record_folders.new_folder()
    assert not list(tmp_path.iterdir())


def test_the_last_rank_of_a_host_leaves_no_folder(tmp_path, monkeypatch):
    folder = tmp_path / "job"
    other = record_folders.open_status(folder, 0, 2)
    monkeypatch.setattr(status, "_current", record_folders.open_status(folder, 1, 2))
    with monkeypatch.context() as patch:
        patch.delenv(record_folders.FOLDER_VARIABLE, raising=False)
        record_folders.end(status.ENDED, 0)
        assert read_places(folder)[1].state == status.ENDED
        other.finish(status.ENDED, 0)
        (folder / "launcher").write_text("4711")
        patch.setenv(record_folders.FOLDER_VARIABLE, str(folder))
        assert record_folders.is_launchers()
        record_folders.end(status.ENDED, 0)
        assert folder.exists()
        patch.delenv(record_folders.FOLDER_VARIABLE)
        record_folders.end(status.ENDED, 75)
    assert not folder.exists()


def test_on_another_host_than_the_launchers_the_last_rank_leaves_no_folder_either(tmp_path, monkeypatch):
    folder = tmp_path / "job"
    monkeypatch.setenv(record_folders.FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(status, "_current", record_folders.open_status(folder, 2, 3))
    assert not record_folders.is_launchers()
    record_folders.end(status.ENDED, 0)
    assert not folder.exists()
