"""The record that a rank leaves of what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from mgcaffe.comm.supervision import status
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.supervision.record_folders import open_status, read_places


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = open_status(tmp_path / "job", 2, 4)
    record.iteration(17)
    record.doing(status.encode("backward, layer 'conv1'"))
    (place,) = read_places(tmp_path / "job").values()
    assert place == record.read()
    assert (place.rank, place.size, place.pid, place.state, place.beat) == (2, 4, os.getpid(), status.RUNNING, 1)
    assert place.describe() == "iteration 17, backward, layer 'conv1'"
    record.terminated()
    record.finish(status.FAILED, 65)
    (place,) = read_places(tmp_path / "job").values()
    assert (place.state, place.code, place.terminated) == (status.FAILED, 65, True)


def test_a_record_outlives_its_process(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from mgcaffe.comm.supervision import status\n"
        "from mgcaffe.comm.supervision.record_folders import open_status\n"
        "status.use(open_status(Path(sys.argv[1]), 1, 2)); status.current().iteration(5)\n"
        "status.doing('forward'); os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=60)
    assert result.returncode == -signal.SIGKILL
    place = read_places(tmp_path)[1]
    assert place.describe() == "iteration 5, forward" and not is_alive(place.pid)


def test_a_text_that_is_too_long_is_cut_and_one_of_no_characters_is_taken(tmp_path):
    record = open_status(tmp_path, 0, 1)
    record.doing(status.encode("ä" * 500))
    assert record.read().doing.startswith("ä" * 90)
    record.doing(status.encode(os.fsdecode(b"reading \xff.lmdb")))  # a name of a file in another encoding
    assert record.read().doing == "reading ?.lmdb"


def test_without_a_folder_the_record_lies_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file"):
        record = open_status(folder, 0, 1)
        assert record.path is None and record.read().describe() == status.STARTING
