"""Measuring in a process of its own: what is sent and what comes back, and how it may end."""

import logging
import os
import pickle
import platform
import signal
import subprocess
import sys
import threading

import pytest
import torch

from mgcaffe.engine import heap
from mgcaffe.engine.kernels import linear_ways, measuring
from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation
from mgcaffe.engine.kernels.choice.survey import Survey
from mgcaffe.engine.kernels.convolution_forward import FORWARD, Forward
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.measuring import Answer, MeasuringEnded, measure
from mgcaffe.engine.tuning import tune
from tests.support.netkit import inputs, make_net

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
    """Have a program of Python run in the place of the process; `answers` is the file that it answers into."""
    program = tmp_path / "python"
    head = "import os, pickle, re, sys\nexec(sys.argv[2].partition('; from')[0])\n"
    head += "answers = os.fdopen(int(re.search(r'serve.(\\d+)', sys.argv[2])[1]), 'wb')\n"
    program.write_text(f"#!{sys.executable}\n{head}{text}")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_what_is_asked_is_measured_in_order(processes):
    asked = survey_of(6, 5, bound=1e-5)
    answers = list(measure(asked, 1e-5))
    assert [text for text, _ in answers] == [*asked]
    for _, measured in answers[:2]:
        assert measured.rule == "aten"
        assert {"aten", "onednn", "winograd_tiles_f43"} <= measured.seconds.keys() | measured.unfit
    assert {"mm", "onednn"} <= answers[2][1].seconds.keys()
    (process,) = processes
    assert process.returncode is not None


def test_every_operation_that_a_net_asks_for_is_known():
    net = make_net(
        inputs(x=(2, 4, 6, 6), t=(2, 3))
        + """
        layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
        layer { name: "d" type: "Deconvolution" bottom: "c" top: "d"
          convolution_param { num_output: 4 kernel_size: 3 } }
        layer { name: "w" type: "DepthwiseConvolution" bottom: "d" top: "w" convolution_param { kernel_size: 3 } }
        layer { name: "ip" type: "InnerProduct" bottom: "w" top: "ip" inner_product_param { num_output: 5 } }
        layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
        layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 3 } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "t" top: "loss" }
        """,
        dtype=torch.float32,
        keep_blobs=False,
    )
    survey = Survey({})
    tune(net, survey)
    assert {each.operation for each in survey.open.values()} == {*measuring.OPERATIONS}


def test_the_process_gets_the_callers_threads_and_bound(monkeypatch, tmp_path):
    asked, sent = survey_of(6), tmp_path / "sent"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    text = f"open({str(sent)!r}, 'wb').write(pickle.dumps(pickle.load(sys.stdin.buffer)))"
    instead(tmp_path, monkeypatch, text)
    with pytest.raises(MeasuringEnded):
        list(measure(asked, 0.5))
    assert pickle.loads(sent.read_bytes()) == (7, 0.5, asked)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one core, or no binding"
)
def test_the_process_may_use_the_cores_of_all_threads(monkeypatch, tmp_path):
    cores, sent, done = os.sched_getaffinity(0), tmp_path / "sent", threading.Event()
    other = threading.Thread(target=done.wait, daemon=True)
    other.start()
    instead(tmp_path, monkeypatch, f"open({str(sent)!r}, 'w').write(repr(os.sched_getaffinity(0)))")
    os.sched_setaffinity(0, {min(cores)})
    try:
        with pytest.raises(MeasuringEnded):
            list(measure(survey_of(6), 0.0))
        assert os.sched_getaffinity(0) == {min(cores)}
    finally:
        os.sched_setaffinity(0, cores)
        done.set()
    assert sent.read_text() == repr(cores)


def test_what_the_process_logs_is_logged_here(monkeypatch, tmp_path, caplog):
    measured, texts = Measured("aten", "aten", {"aten": 1.0}), [*survey_of(6, 5)]
    logged = [(logging.WARNING, "autotune: layer 'one': 50 % are wrong")]
    answers = [None, Answer(measured, logged), Answer(None, []), Answer(measured, [])]
    (tmp_path / "answers").write_bytes(b"".join(map(pickle.dumps, answers)))
    instead(tmp_path, monkeypatch, f"answers.write(open({str(tmp_path / 'answers')!r}, 'rb').read())")
    assert list(measure(survey_of(6, 5), 0.0)) == [(texts[0], measured), (texts[2], measured)]
    assert caplog.messages == ["autotune: layer 'one': 50 % are wrong"]


def test_what_candidates_are_dropped_for_and_what_cannot_be_measured_is_part_of_the_answer(monkeypatch):
    def halved(call):
        if len(call.x) > 3:
            raise RuntimeError("not enough memory")
        return call.x / 2

    halving = Operation(
        "halving",
        [Candidate("rule", lambda call: True, halved), Candidate("wrong", lambda call: True, lambda call: call.x)],
        lambda call: "rule", lambda call: (call.x.shape,), ("x",),
    )  # fmt: skip
    monkeypatch.setitem(measuring.OPERATIONS, "halving", halving)
    survey = Survey({})
    for size in (3, 4, 2):
        survey.meet(halving, f"halving: x {size}", Forward(torch.ones(size), torch.ones(1), None, GEOMETRY, False))
    survey.open = {text: each._replace(layer=f"layer '{text[-1]}'") for text, each in survey.open.items()}
    answers = list(measuring.answer_all(survey.open, 0.0))
    assert [each.measured and each.measured.unfit for each in answers] == [{"wrong"}, None, {"wrong"}]
    messages = [message for each in answers for _, message in each.logged]
    assert {level for each in answers for level, _ in each.logged} == {logging.WARNING}
    assert messages[0].startswith("autotune: layer '3': candidate 'wrong' differs from 'rule' by ")
    assert messages[1] == "autotune: layer '4': not measured, by rule: not enough memory (halving: x 4)"
    assert len(messages) == 3
    assert not any(isinstance(each, measuring._Log) for each in logging.getLogger(Contest.__module__).handlers)


_READ = "sys.stdin.buffer.read(1)\n"
# What is asked is read, but not loaded, which would import torch.
_BEGIN = "sys.stdin.buffer.read(ASKED); answers.write(pickle.dumps(None)); answers.flush()\n"


@pytest.mark.parametrize(
    ("text", "how", "was_measuring"),
    [
        (_BEGIN + "os.kill(os.getpid(), 9)", r"while it measured .* of layer 'one', by signal 9 \(Killed\)", True),
        (_BEGIN + "answers.write(b'half'); sys.exit(3)", "while it measured convolution forward.* exit code 3", True),
        (_READ + "sys.exit(3)", "before it could measure, with exit code 3", False),
        ("sys.exit(3)", "before it could measure, with exit code 3", False),
    ],
)
def test_a_process_that_ends_early_is_said(monkeypatch, tmp_path, text, how, was_measuring):
    asked = survey_of(6)
    # More than a pipe holds: a process that does not read it breaks the pipe.
    asked |= {str(number): next(iter(asked.values())) for number in range(10_000)}
    length = len(pickle.dumps((torch.get_num_threads(), 0.0, asked)))
    instead(tmp_path, monkeypatch, text.replace("ASKED", str(length)))
    with pytest.raises(MeasuringEnded, match=f"the process that measures ended {how}") as caught:
        list(measure(asked, 0.0))
    assert caught.value.text == (next(iter(asked)) if was_measuring else None)


def test_a_process_that_cannot_be_started_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    message = f"cannot start a process that measures: .* No such file or directory: '{tmp_path}/absent'"
    with pytest.raises(MeasuringEnded, match=message) as caught:
        list(measure(survey_of(6), 0.0))
    assert caught.value.text is None


def test_no_pipe_is_said_as_well(monkeypatch):
    def fail():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(measuring.os, "pipe", fail)
    with pytest.raises(MeasuringEnded, match=r"cannot start a process that measures: .* Too many open files") as caught:
        list(measure(survey_of(6), 0.0))
    assert caught.value.text is None


def test_a_process_that_closes_its_end_and_stays_is_not_waited_for(monkeypatch, tmp_path, processes):
    monkeypatch.setattr(measuring, "_PATIENCE_S", 0.1)
    instead(tmp_path, monkeypatch, "answers.close(); sys.stdin.buffer.read()")
    with pytest.raises(MeasuringEnded, match=r"before it could measure, and did not exit within 0\.1 s"):
        list(measure(survey_of(6), 0.0))
    assert processes[0].returncode == -signal.SIGKILL


def test_a_caller_that_stops_ends_the_process(monkeypatch, tmp_path, processes):
    answers = pickle.dumps(None) + pickle.dumps(Answer(Measured("aten", "aten", {"aten": 1.0}), []))
    instead(tmp_path, monkeypatch, f"answers.write({answers!r}); answers.flush(); sys.stdin.buffer.read()")
    measuring_all = measure(survey_of(6, 5), 0.0)
    next(measuring_all)
    assert processes[0].poll() is None
    measuring_all.close()
    assert processes[0].returncode == -signal.SIGKILL


_BUSY_FOR_AN_HOUR = """
import sys, time
import torch
from mgcaffe.engine import heap
from mgcaffe.engine.kernels import measuring
def answer_all(asked, bound):
    yield (asked, bound, torch.get_num_threads(), open("/proc/self/oom_score_adj").read().strip(), heap._bound)
    yield from map(time.sleep, [3600])
measuring.answer_all = answer_all
measuring.serve(int(sys.argv[1]))
"""


def test_the_process_computes_by_the_callers_threads_and_ends_with_it():
    """The caller's end of the pipe is closed when it dies."""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", _BUSY_FOR_AN_HOUR, str(writing)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writing]) as process,
        os.fdopen(reading, "rb") as answers,
    ):
        os.close(writing)
        pickle.dump((2, 0.5, {"one": 1}), process.stdin)
        process.stdin.flush()
        assert pickle.load(answers) is None
        *answer, bound = pickle.load(answers)
        assert answer == [{"one": 1}, 0.5, 2, "1000"]
        assert bound == (heap.MAX_BYTES if platform.libc_ver()[0] == "glibc" else 0)
        process.stdin.close()
        assert process.wait(60) == 0


def test_it_says_nothing_where_the_caller_ends_before_it_has_asked():
    program = "from mgcaffe.engine.kernels import measuring; measuring.serve(1)"
    for sent in (b"", pickle.dumps((2, 0.5, {"one": 1}))[:-3]):
        result = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, timeout=60)
        assert (result.returncode, result.stderr) == (0, b"")


def test_its_signals_are_not_the_callers(monkeypatch, tmp_path):
    sent = tmp_path / "sent"
    instead(tmp_path, monkeypatch, f"open({str(sent)!r}, 'w').write(str(os.getsid(0) == os.getpid()))")
    with pytest.raises(MeasuringEnded):
        list(measure(survey_of(6), 0.0))
    assert sent.read_text() == "True"
