"""The bar on a terminal, and the lines of a log."""

from __future__ import annotations

import io

from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.listeners.glog import log_line, start_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_caffes_line_every_thousand_records(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    start_logging(speaks=True)
    with RecordProgress(2500, "convert_imageset.cpp:144") as progress:
        progress.advance(None)
        for records in range(1, 2500):
            progress.advance(records)
    lines = stream.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in lines] == ["Processed 1000 files.", "Processed 2000 files."]
    assert "convert_imageset.cpp:144" in lines[0]


def test_a_terminal_gets_a_bar_and_the_log_again_after_it(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("mgcaffe.tools.datasets.record_progress._REFRESH_S", 0.0)
    start_logging(speaks=True)
    with RecordProgress(2000, done=500) as progress:
        for records in range(501, 2001):
            progress.advance(records)
    log_line("Done.")
    text = stream.getvalue()
    assert "2000/2000" in text and "images/s" in text
    assert "Processed 1000 files." not in text
    assert text.rstrip().endswith("Done.")
