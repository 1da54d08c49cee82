"""Whether a run shows a progress line or Caffe's log."""

from __future__ import annotations

import sys

import pytest

from mgcaffe.prototxt import SolverParameter
from mgcaffe.tools.commands.train import parser
from mgcaffe.tools.running.training_run import _shows_progress


@pytest.mark.parametrize(
    ("words", "debug_info", "progress"),
    [
        ([], False, True),
        (["--no_progress"], False, False),
        ([], True, False),
        (["--progress"], True, True),
    ],
)
def test_on_a_terminal_a_progress_line_is_shown_unless_its_place_is_needed(words, debug_info, progress, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    flags = parser().parse([*words, "solver.prototxt"])
    assert _shows_progress(flags, SolverParameter(debug_info=debug_info)) == progress
