"""A log file for each rank."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest

from mgcaffe.errors import EngineError
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.logs.reader import read_logs


@pytest.mark.mpi
@pytest.mark.slow
def test_each_rank_has_a_file_of_its_own_with_glogs_name_and_head(engine, mpi_ranks):
    result = mpi_ranks(2).run(engine.folder, "train", "solver.prototxt", "--log_dir=logs")
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        link = engine.folder / "logs" / f"engine.rank{rank}.INFO"
        name = link.readlink().name
        assert re.fullmatch(rf"engine\.rank{rank}\..+\.log\.INFO\.\d{{8}}-\d{{6}}\.\d+", name), name
        lines = link.read_text().splitlines()
        assert [line.partition(":")[0] for line in lines[:3]] == [
            "Log file created at", "Running on machine", "Log line format",
        ]  # fmt: skip
        assert [row.iteration for row in read_logs([str(link)]).train] == [0, 10, 20]
    # Rank 0 alone speaks on standard error.
    assert result.stderr.count("] Solving tiny") == 1


def test_a_progress_line_does_not_keep_the_log_out_of_the_file(engine):
    result = engine.run("train", "solver.prototxt", "--progress", "--log_dir=logs", "--max_iter=1")
    assert result.returncode == 0, result.stderr
    assert "] Solving tiny" not in result.stderr
    assert "] Solving tiny" in (engine.folder / "logs" / "engine.rank0.INFO").read_text()


@pytest.mark.parametrize(
    ("folder", "message"),
    [("file", "file is no folder"), ("file/logs", "cannot write the log file .*: Not a directory")],
)
def test_a_folder_that_cannot_be_written_ends_with_code_73(tmp_path, folder, message):
    (tmp_path / "file").write_text("x")
    with pytest.raises(EngineError, match=message) as caught:
        start_logging(True, log_dir=str(tmp_path / folder))
    assert caught.value.exit_code == 73


def test_a_full_disk_is_said_once_and_ends_only_the_file(tmp_path, capsys):
    logger = start_logging(True, rank=3, log_dir=str(tmp_path))
    handler = logger.handlers[1]
    handler.close()
    handler.baseFilename = "/dev/full"
    handler.stream = Path("/dev/full").open("w")
    log_line("one")
    log_line("two")
    shown = capsys.readouterr().err
    assert shown.count("warning: cannot write /dev/full any more: No space left on device") == 1
    assert "one" in shown
    assert "two" in shown
    assert handler not in logger.handlers
    assert handler.stream is None


def test_a_full_disk_under_the_log_file_and_standard_error_ends_nothing(tmp_path, monkeypatch):
    full = Path("/dev/full").open("w")
    monkeypatch.setattr(sys, "stderr", full)
    logger = start_logging(True, log_dir=str(tmp_path))
    handler = logger.handlers[1]
    handler.close()
    handler.stream = Path("/dev/full").open("w")
    log_line("one")
    assert handler not in logger.handlers
    with pytest.raises(OSError, match="No space left"):
        full.close()


def test_a_warning_for_every_rank_is_shown_with_its_rank(capsys):
    start_logging(False, rank=2)
    log = logging.getLogger("mgcaffe.engine")
    log.warning("a record is bad", extra={"from_every_rank": True})
    log.warning("a field has no effect")
    assert re.fullmatch(r"W.*\] rank 2: a record is bad\n", capsys.readouterr().err)
