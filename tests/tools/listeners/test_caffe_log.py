"""What a run's events look like in Caffe's log."""

from __future__ import annotations

import io
import re

import pytest

from mgcaffe.solvers import events
from mgcaffe.solvers.events.statistics import BlobStatistics, NetStatistics
from mgcaffe.tools.listeners.caffe_log import CaffeLogListener
from mgcaffe.tools.listeners.communication_lines import data_line
from mgcaffe.tools.listeners.glog import start_logging
from tests.support.run_events import REPLICAS, RUN

# The expressions with which Caffe's own tools/extra/parse_log.py reads a log.
_PARSE_LOG = {
    "iteration": r"Iteration (\d+)",
    "train": r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)",
    "test": r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)",
    "rate": r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)",
}


@pytest.fixture
def log():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=100, ranks=2)
    for event in RUN:
        listener.on_event(event)
    return [re.sub(r"^[IW].*?\] ", "", line) for line in stream.getvalue().splitlines()]


def test_caffes_lines_come_word_for_word(log):
    assert "Solving LeNet" in log
    assert "Learning Rate Policy: inv" in log
    assert log[log.index("Iteration 0, Testing net (#0)") :][1:4] == [
        "Test loss: 2.4",
        "    Test net output #0: accuracy = 0.0975",
        "    Test net output #1: loss = 2.4 (* 1 = 2.4 loss)",
    ]
    start = log.index("Iteration 100 (50.1 iter/s, 1.99s/100 iters), loss = 0.2604")
    assert log[start + 1] == "    Train net output #0: loss = 0.260412 (* 1 = 0.260412 loss)"
    assert "Iteration 100, lr = 0.00992565" in log[start:]
    assert "Snapshotting to binary proto file x_iter_200.caffemodel" in log
    assert "Snapshotting solver state to binary proto file x_iter_200.solverstate" in log
    assert "Iteration 200, loss = 0.1" in log
    assert "Optimization Done." in log


def test_steps_of_the_rate_have_the_place_of_caffes_lines():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=100, ranks=1)
    for text in ("MultiStep Status: Iteration 3, step = 1", "something else"):
        listener.on_event(events.Noted(text))
    steps, other = stream.getvalue().splitlines()
    assert steps.endswith(" sgd_solver.cpp:46] MultiStep Status: Iteration 3, step = 1")
    assert ".cpp" not in other


def test_the_end_names_accuracy_communication_and_snapshot(log):
    assert log[-4:] == [
        "Test net #0: accuracy = 0.985",
        "Communication: 3.000 ms hidden, 1.000 ms exposed per iteration; 75.0 % hidden",
        "Speed: 3200.0 images/s over 4.0 s",
        "Snapshot: x_iter_200.solverstate (go on with --snapshot=x_iter_200.solverstate)",
    ]


def test_each_display_shows_the_communication_since_the_last_one(log):
    shown = [line for line in log if line.startswith("Communication: ")]
    assert shown[0].startswith("Communication: 0.000 ms hidden, 2.000 ms exposed")
    assert shown[1].startswith("Communication: 3.000 ms hidden, 1.000 ms exposed")


def test_each_display_shows_how_long_the_iterations_since_the_last_one_waited_for_data(log):
    start = log.index("Iteration 100 (50.1 iter/s, 1.99s/100 iters), loss = 0.2604")
    assert "Data: 0.010 ms waited per iteration; 5.0 % of its time" in log[start : start + 5]


def test_where_much_is_waited_for_data_their_slowest_stage_is_named():
    stages = {"read": 0.1, "decode": 0.7, "transform": 0.1, "batch": 0.1}
    assert data_line(0.1, 1.0, 10, stages).endswith("10.0 % of its time; decoding takes 70 % of making a batch")
    assert data_line(0.04, 1.0, 10, stages).endswith("4.0 % of its time")
    assert data_line(0.1, 1.0, 10, {}).endswith("10.0 % of its time")


def test_debug_info_comes_in_caffes_words():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=100, ranks=1)
    for event in (
        BlobStatistics("Forward", "conv1", "top blob", "conv1", data=0.06450371),
        BlobStatistics("Forward", "conv1", "param blob", "0", data=0.1),
        BlobStatistics("Backward", "ip2", "bottom blob", "ip1", diff=2e-7),
        BlobStatistics("Update", "conv1", "param", "0", data=0.1, diff=0.001),
        BlobStatistics("Update", "conv2", "param", "w", diff=0.5, owner=("conv1", "w")),
        NetStatistics(1456.19, 122.196, 11.0502, 1.36324),
    ):
        listener.on_event(event)
    lines = stream.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "    [Forward] Layer conv1, top blob conv1 data: 0.0645037",
        "    [Forward] Layer conv1, param blob 0 data: 0.1",
        "    [Backward] Layer ip2, bottom blob ip1 diff: 2e-07",
        "    [Update] Layer conv1, param 0 data: 0.1; diff: 0.001",
        "    [Update] Layer conv2, param blob w (owned by layer conv1, param w) diff: 0.5",
        "    [Backward] All net params (data, diff): L1 norm = (1456.19, 122.196); L2 norm = (11.0502, 1.36324)",
    ]
    assert [line[0] for line in lines] == ["I", "I", "I", "I", "I", "E"]


def test_lines_of_our_own_are_not_taken_for_caffes(log):
    for line in log:
        if line.startswith(("Communication:", "Data:", "Schedule", "Speed:", "Snapshot:", "Test net #")):
            assert not any(re.search(expression, line) for expression in _PARSE_LOG.values()), line


def test_parse_log_finds_iterations_rates_and_outputs(log):
    text = "\n".join(log)
    assert re.findall(_PARSE_LOG["rate"], text)[1][0] == "0.00992565"
    assert ("0", "accuracy", "0.0975") in re.findall(_PARSE_LOG["test"], text)
    assert re.findall(_PARSE_LOG["train"], text)[0] == ("0", "loss", "0.260412")


def test_a_trainer_with_a_replica_of_its_own_shows_its_synchronization():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=20, ranks=1)
    for event in REPLICAS:
        listener.on_event(event)
    text = stream.getvalue()
    figures = "18.333 ms (1.000 ms of processor time) and 2.0 KiB each, distance 0.125, 4.400 ms waited per iteration"
    assert (
        f"Replicas: 24 synchronizations, gap 4.17 iterations, {figures}; 5000 examples/s in all, trainers at iterations"
        " 70 to 100\n" in text
    )
    assert "Test net #0: accuracy = 0.985\n" in text
    assert "Test net #0, mean of all replicas: accuracy = 0.99\n" in text
    assert (
        f"Replicas: 24 synchronizations, gap 4.17 iterations, {figures}; iterations of the trainers 100, 70\n" in text
    )
    assert "Communication" not in text
