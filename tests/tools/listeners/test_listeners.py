"""What a run's events look like in Caffe's log, as JSON lines, and on a terminal."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.errors import EngineError
from mgcaffe.solvers import events
from mgcaffe.tools.listeners.caffe_log import CaffeLogListener
from mgcaffe.tools.listeners.glog import start_logging
from mgcaffe.tools.listeners.json_log import JsonLog
from mgcaffe.tools.listeners.progress import ProgressListener

# The expressions with which Caffe's own tools/extra/parse_log.py reads a log.
_PARSE_LOG = {
    "iteration": r"Iteration (\d+)",
    "train": r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)",
    "test": r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)",
    "rate": r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)",
}
_LOSS = events.OutputValue(0, "loss", 0.26041234, 1.0)
_PLAN = Plan("mgwfbp", 2, (Group(0, 1, 0, 512, 2048, 0.004, 0.004, 0.005),), 0.004)
_RUN = [
    events.Started("LeNet", "SGD", "inv", 0, 200, 64, 431080, 2, 1),
    events.Testing(0, 0),
    events.Tested(
        0, 0, (events.OutputValue(0, "accuracy", 0.0975), events.OutputValue(1, "loss", 2.4, 1.0)), 2.4, 0.5
    ),
    events.Displayed(0, 2.3, 0.0, 0.25, 100, (_LOSS,), 0.0, 0.002),
    events.LearningRate(0, 0.01),
    events.IterationDone(0, 2.3, 2.3, 0.01, 64, 0.02, 0.001, 0.003, 0.001),
    events.PlanChosen(10, "mgwfbp", _PLAN, None),
    events.Displayed(100, 0.2604, 50.1, 1.99, 100, (_LOSS,), 0.3, 0.1),
    events.LearningRate(100, 0.00992565),
    events.IterationDone(100, float("nan"), 0.26, 0.00992565, 64, 0.02, 0.0, 0.0, 0.0),
    events.Warned("something"),
    events.SnapshotWriting(200, "x_iter_200.caffemodel", "weights"),
    events.SnapshotWriting(200, "x_iter_200.solverstate", "state"),
    events.SnapshotWritten(200, "x_iter_200.caffemodel", "x_iter_200.solverstate"),
    events.Displayed(200, 0.1, None, None, None, ()),
    events.Finished(200, False, 4.0, 12800, 0.6, 0.2, "x_iter_200.solverstate",
                    ((events.OutputValue(0, "accuracy", 0.985),),)),
]  # fmt: skip


@pytest.fixture
def log():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=100, ranks=2)
    for event in _RUN:
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


def test_the_end_names_accuracy_communication_and_snapshot(log):
    assert log[-4:] == [
        "Test net #0: accuracy = 0.985",
        "Communication: 3.000 ms hidden, 1.000 ms exposed an iteration; 75.0 % hidden",
        "Speed: 3200.0 images/s over 4.0 s",
        "Snapshot: x_iter_200.solverstate (go on with --snapshot=x_iter_200.solverstate)",
    ]


def test_each_display_shows_the_communication_since_the_last_one(log):
    shown = [line for line in log if line.startswith("Communication: ")]
    assert shown[0].startswith("Communication: 0.000 ms hidden, 2.000 ms exposed")
    assert shown[1].startswith("Communication: 3.000 ms hidden, 1.000 ms exposed")


def test_each_display_shows_how_long_the_iterations_since_the_last_one_waited_for_data(log):
    start = log.index("Iteration 100 (50.1 iter/s, 1.99s/100 iters), loss = 0.2604")
    assert "Data: 0.010 ms waited for an iteration; 5.0 % of its time" in log[start : start + 5]


def test_debug_info_comes_in_caffes_words():
    stream = io.StringIO()
    start_logging(True, stream)
    listener = CaffeLogListener(display=100, ranks=1)
    for event in (
        events.BlobStatistics("Forward", "conv1", "top blob", "conv1", data=0.06450371),
        events.BlobStatistics("Forward", "conv1", "param blob", "0", data=0.1),
        events.BlobStatistics("Backward", "ip2", "bottom blob", "ip1", diff=2e-7),
        events.BlobStatistics("Update", "conv1", "param", "0", data=0.1, diff=0.001),
        events.BlobStatistics("Update", "conv2", "param", "w", diff=0.5, owner=("conv1", "w")),
        events.NetStatistics(1456.19, 122.196, 11.0502, 1.36324),
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


def test_json_lines_hold_every_iteration_test_and_snapshot(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"event": "earlier run"}\n')
    log = JsonLog(path)
    for event in _RUN:
        log.on_event(event)
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds == ["earlier run", "start", "test", "iteration", "plan", "iteration", "warning", "snapshot",
                     "finish"]  # fmt: skip
    first = lines[3]
    assert first["iter"] == 0
    assert first["loss"] == 2.3
    assert first["lr"] == 0.01
    assert first["images_per_s"] == pytest.approx(3200)
    assert first["data_wait_ms"] == pytest.approx(1)
    assert (first["comm_hidden_ms"], first["comm_exposed_ms"]) == (pytest.approx(3), pytest.approx(1))
    assert lines[5]["loss"] is None  # NaN is no JSON
    assert lines[2]["scores"] == {"accuracy": 0.0975, "loss": 2.4}
    assert lines[7]["state"] == "x_iter_200.solverstate"
    assert lines[8]["hidden_share"] == pytest.approx(0.75)


def test_a_json_log_says_what_a_plan_predicts(tmp_path):
    group = Group(0, 3, 0, 250, 1000, ready_at=0.004, start_at=0.004, end_at=0.007)
    log = JsonLog(tmp_path / "run.json")
    log.on_event(events.PlanChosen(10, "single", Plan("single", 4, (group,), backward_end=0.005), None))
    log.on_event(events.PlanChosen(0, "single", Plan("single", 4, (group,), backward_end=0.0), None))
    log.close()
    measured, unmeasured = (json.loads(line) for line in (tmp_path / "run.json").read_text().splitlines())
    assert measured["predicted"] == pytest.approx({"backward_ms": 5.0, "communication_ms": 3.0, "exposed_ms": 2.0})
    assert unmeasured["predicted"] is None


def test_an_unwritable_json_log_ends_with_code_73(tmp_path):
    with pytest.raises(EngineError, match=r"cannot write the JSON log .*No such file") as error:
        JsonLog(tmp_path / "absent" / "run.json")
    assert error.value.exit_code == 73


def test_a_json_log_on_a_full_disk_is_given_up_with_one_warning(caplog):
    log = JsonLog("/dev/full")
    for _ in range(3):
        log.on_event(events.Warned("x"))
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write the JSON log /dev/full any more: No space left on device"
    ]


def test_the_progress_line_shows_loss_speed_and_exposed_communication():
    stream = io.StringIO()
    listener = ProgressListener(2, Console(file=stream, force_terminal=True, width=140, color_system=None))
    try:
        for event in _RUN:
            listener.on_event(event)
    finally:
        listener.close()
    text = stream.getvalue()
    for part in ("Solving LeNet", "101/200", "loss 0.26", "lr 0.00992565", "3200 images/s", "0.0 ms exposed",
                 "test net #0: accuracy = 0.0975", "something", "snapshot x_iter_200.solverstate",
                 "Optimization Done.", "75.0 % hidden"):  # fmt: skip
        assert part in text, part


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
        listener.on_event(_RUN[0])
        listener.on_event(events.IterationDone(0, 2.3, 2.3, 0.01, 64, 0.02, 0.0105, 0.0, 0.0))
    finally:
        listener.close()
    assert "10.5 ms waiting for data" in stream.getvalue()
