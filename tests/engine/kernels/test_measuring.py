"""Measuring in a process of its own: what is sent and what comes back, and how it may end."""

import logging
import pickle
import signal
import subprocess
import sys

import pytest
import torch

from mgcaffe.engine.kernels import linear_ways, measuring
from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation
from mgcaffe.engine.kernels.choice.survey import Survey
from mgcaffe.engine.kernels.convolution_forward import FORWARD, Forward
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.measuring import MeasuringEnded, measure

GEOMETRY = Geometry((3, 3), (1, 1), (1, 1), (1, 1))


def survey_of(*sizes, bound=0.0):
    """Return what a survey notes of forward convolutions of images of these sizes, and of one addition."""
    survey = Survey({}, bound)
    survey.layer = "layer 'one'"
    for size in sizes:
        x = torch.ones(2, 8, size, size).contiguous(memory_format=torch.channels_last)
        survey.run(FORWARD, Forward(x, torch.ones(8, 8, 3, 3), None, GEOMETRY, True))
    total, rows = torch.zeros(4, 3), torch.ones(5, 4)
    survey.run(linear_ways.ADD_PRODUCT, linear_ways.AddProduct(total, 0.0, rows, torch.ones(5, 3)))
    return survey.open


@pytest.fixture
def processes(monkeypatch):
    """The processes that are started."""
    started, popen = [], subprocess.Popen

    def start(*args, **options):
        started.append(popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(measuring.subprocess, "Popen", start)
    return started


def instead(tmp_path, monkeypatch, text):
    """Have a program of Python run in the place of the process."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{text}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_what_is_asked_is_measured_in_order_by_as_many_threads(processes):
    asked = survey_of(6, 5, bound=1e-5)
    answers = list(measure(asked, 1e-5))
    assert [text for text, _ in answers] == [*asked]
    for _, measured in answers[:2]:
        assert measured.rule == "aten"
        assert {"aten", "onednn", "winograd_tiles_f43"} <= measured.seconds.keys() | measured.unfit
    assert {"mm", "onednn"} <= answers[2][1].seconds.keys()
    (process,) = processes
    assert process.returncode is not None


def test_the_process_gets_the_callers_threads_and_bound(monkeypatch, tmp_path):
    asked, sent = survey_of(6), tmp_path / "sent"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    instead(tmp_path, monkeypatch, "import os, pickle, sys\nsys.path[:0] = os.environ['PYTHONPATH'].split(':')\n"
            f"open({str(sent)!r}, 'wb').write(pickle.dumps(pickle.load(sys.stdin.buffer)))")  # fmt: skip
    with pytest.raises(MeasuringEnded):
        list(measure(asked, 0.5))
    assert pickle.loads(sent.read_bytes()) == (7, 0.5, asked)


def test_what_the_process_logs_is_logged_here(monkeypatch, tmp_path, caplog):
    answers = [(text, Measured("aten", "aten", {"aten": 1.0}), []) for text in survey_of()]
    answers[0][2].append((logging.WARNING, "autotune: layer 'one': 50 % are wrong"))
    (tmp_path / "answers").write_bytes(b"".join(map(pickle.dumps, answers)))
    instead(tmp_path, monkeypatch, f"import sys\nsys.stdin.buffer.read(1)\n"
            f"sys.stdout.buffer.write(open({str(tmp_path / 'answers')!r}, 'rb').read())")  # fmt: skip
    assert list(measure(survey_of(), 0.0)) == [(text, measured) for text, measured, _ in answers]
    assert caplog.messages == ["autotune: layer 'one': 50 % are wrong"]


def test_what_candidates_are_dropped_for_is_part_of_the_answer(monkeypatch):
    doubling = Operation(
        "doubling",
        [
            Candidate("rule", lambda call: True, lambda call: call.x * 2),
            Candidate("wrong", lambda call: True, lambda call: call.x),
        ],
        lambda call: "rule", lambda call: (call.x.shape,), ("x",),
    )  # fmt: skip
    monkeypatch.setitem(measuring.OPERATIONS, "doubling", doubling)
    survey = Survey({})
    for size in (3, 4):
        survey.layer = f"layer '{size}'"
        survey.run(doubling, Forward(torch.ones(size), torch.ones(1), None, GEOMETRY, False))
    answers = list(measuring.answer_all(survey.open, 0.0))
    assert [measured.unfit for _, measured, _ in answers] == [frozenset({"wrong"})] * 2
    for size, (_, _, ((level, message),)) in zip((3, 4), answers, strict=True):
        assert level == logging.WARNING
        assert message.startswith(f"autotune: layer '{size}': candidate 'wrong' differs from 'rule' by 0.5 ")
    assert not any(isinstance(each, measuring._Log) for each in logging.getLogger(Contest.__module__).handlers)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("import os; os.kill(os.getpid(), 9)", r"was ended by signal 9 \(SIGKILL\) while it measured convolution"),
        ("raise SystemExit(3)", "ended with exit code 3 while it measured convolution forward: x 2x8x6x6"),
        ("print('no pickle')", "ended with exit code 0 while"),
    ],
)
def test_a_process_that_ends_early_is_said(monkeypatch, tmp_path, text, how):
    asked = survey_of(6)
    instead(tmp_path, monkeypatch, f"import sys\nsys.stdin.buffer.read(1)\n{text}\n")
    with pytest.raises(MeasuringEnded, match=f"the process that measures {how}"):
        list(measure(asked, 0.0))


def test_a_process_that_cannot_be_started_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(MeasuringEnded, match=f"cannot start {tmp_path}/absent: No such file or directory"):
        list(measure(survey_of(6), 0.0))


def test_a_caller_that_stops_ends_the_process(processes):
    answers = measure(survey_of(6, 5), 0.0)
    next(answers)
    assert processes[0].poll() is None
    answers.close()
    assert processes[0].returncode == -signal.SIGKILL


_BUSY_FOR_AN_HOUR = """
import sys, time
from mgcaffe.engine.kernels import measuring
def answer_all(asked, bound):
    print("busy", file=sys.stderr, flush=True)
    yield from map(time.sleep, [3600])
measuring.answer_all = answer_all
measuring.serve()
"""


def test_the_process_ends_with_the_caller_and_not_by_ctrl_c():
    """The caller's end of the pipe is closed when it dies."""
    command, pipe = [sys.executable, "-c", _BUSY_FOR_AN_HOUR], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        pickle.dump((1, 0.0, {}), process.stdin)
        process.stdin.flush()
        assert process.stderr.readline() == b"busy\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.stdin.close()
        assert process.wait(60) == 0
