"""What a run's events look like on a terminal."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest
from rich.console import Console

from mgcaffe.solvers import events
from mgcaffe.tools.listeners.progress import ProgressListener
from tests.support.run_events import REPLICAS, RUN


def test_the_progress_line_shows_loss_speed_and_exposed_communication():
    stream = io.StringIO()
    listener = ProgressListener(2, Console(file=stream, force_terminal=True, width=140, color_system=None))
    try:
        for event in RUN:
            listener.on_event(event)
    finally:
        listener.close()
    text = stream.getvalue()
    for part in ("Solving LeNet", "101/200", "loss 0.26", "lr 0.00992565", "3200 images/s", "0.0 ms exposed",
                 "test net #0: accuracy = 0.0975", "something", "snapshot x_iter_200.solverstate",
                 "Optimization Done.", "75.0 % hidden"):  # fmt: skip
        assert part in text, part


def test_a_terminal_that_hangs_up_ends_nothing(monkeypatch):
    master, slave = os.openpty()
    terminal = os.fdopen(slave, "w")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        listener = ProgressListener(2)
        try:
            listener.on_event(RUN[0])
            os.close(master)
            for event in RUN[1:]:
                listener.on_event(event)
        finally:
            listener.close()
    with pytest.raises(OSError, match="Input/output error"):
        terminal.close()


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (60, "100001/200000 loss 2.0123  lr 0.00992565", "images"),
        (80, "100001/200000 loss 2.0123 lr 0.00992565 12800 images/s 62.5 ms exposed", "waiting"),
        (100, "100001/200000 loss 2.0123  lr 0.00992565  12800 images/s  62.5 ms exposed", "waiting"),
    ],
)
def test_a_narrow_terminal_shows_iteration_and_time_left_and_what_fits(width, shown, left_out):
    stream = io.StringIO()
    listener = ProgressListener(2, Console(file=stream, force_terminal=True, width=width, color_system=None))
    try:
        listener.on_event(events.Started("GoogLeNet", "SGD", "inv", 100000, 200000, 64, 1, 2, 1))
        listener.on_event(events.IterationDone(100000, 2.0123, 2.0123, 0.00992565, 6400, 0.5, 0.25, 0.0625, 0.0625))
    finally:
        listener.close()
    line = [line for line in re.split("[\r\n]", stream.getvalue()) if "loss" in line][-1]
    assert shown in line and left_out not in line and line.rstrip().endswith(":--")


def test_the_progress_line_shows_a_wait_for_data_that_matters():
    stream = io.StringIO()
    listener = ProgressListener(1, Console(file=stream, force_terminal=True, width=140, color_system=None))
    try:
        listener.on_event(RUN[0])
        listener.on_event(events.IterationDone(0, 2.3, 2.3, 0.01, 64, 0.02, 0.0105, 0.0, 0.0))
    finally:
        listener.close()
    assert "10.5 ms waiting for data" in stream.getvalue()


def test_the_progress_line_shows_synchronizations_and_gap_of_a_trainer():
    stream = io.StringIO()
    listener = ProgressListener(1, Console(file=stream, force_terminal=True, width=140, color_system=None))
    try:
        for event in REPLICAS:
            listener.on_event(event)
    finally:
        listener.close()
    text = stream.getvalue()
    assert "3200 images/s  24 syncs, gap 4.2" in text and "exposed" not in text
