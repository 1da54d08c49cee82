"""`engine train --timeline` on two ranks and on one, and what may go wrong."""

from __future__ import annotations

import json
import os
import re
import threading
import time

import pytest

from mgcaffe.comm import run_ranks
from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes
from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.transport.clock import ClockOffset
from mgcaffe.solvers.events import IterationDone
from mgcaffe.tools.report.iteration_picture import iteration_picture
from mgcaffe.tools.report.spans import read_timeline
from mgcaffe.tools.timeline.file import IterationRecord, RankRecord, Span, write_timeline
from mgcaffe.tools.timeline.recorder import Timeline
from tests.support.engine_command import Engine
from tests.support.solverkit import CLASSIFIER, data_layer, make_solver, write_data

COMM = "comm_param {{ schedule: WFBP calibration_iterations: 2 {} }}\n"
OVERLAPS = ("", "overlap_forward: true")


def read(file):
    content = json.loads(file.read_text())
    return content["otherData"], content["traceEvents"]


def slices(events, category, rank=0):
    found = [e for e in events if e["ph"] == "X" and e["cat"] == category and e["pid"] == rank]
    return sorted(found, key=lambda event: event["ts"])


@pytest.fixture(scope="module")
def timelines(tmp_path_factory, mpi_ranks):
    """By what the solver says of overlapping, a timeline of two ranks and what rank 0 said."""
    engine = Engine(tmp_path_factory.mktemp("ranks"))
    net = engine.net.replace('layer {\n  name: "accuracy"', (
        'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }\n'
        'layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 4 '
        'weight_filler { type: "xavier" } } }\nlayer {\n  name: "accuracy"'
    ))  # fmt: skip
    head, separator, tail = net.partition('  name: "accuracy"')
    engine.write("net.prototxt", head + separator + tail.replace('bottom: "ip"', 'bottom: "ip2"'))
    said = {}
    for number, overlap in enumerate(OVERLAPS):
        engine.write(f"{number}.prototxt", engine.solver + "snapshot_background: false\n" + COMM.format(overlap))
        words = ["train", f"{number}.prototxt", f"--timeline={number}.json", "--timeline_iterations=8:12"]
        result = mpi_ranks(2).run(engine.folder, *words)
        assert result.returncode == 0, result.stderr
        said[overlap] = result.stderr
    return {each: (engine.folder / f"{number}.json", said[each]) for number, each in enumerate(OVERLAPS)}


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_two_ranks_write_one_file_with_everything_that_happened(timelines, overlap):
    file, said = timelines[overlap]
    assert f"Timeline of iterations 8 to 11 written to {file.name}" in said
    other, events = read(file)
    assert other["iterations"] == [8, 9, 10, 11]
    assert [entry["rank"] for entry in other["ranks"]] == [0, 1]
    assert abs(other["ranks"][1]["clock_offset_us"]) <= other["ranks"][1]["clock_uncertainty_us"]  # one host
    assert other["plan"]["layers"] == ["ip", "ip2"] and len(other["plan"]["groups"]) == 2
    assert all(event["dur"] >= 0 and event["ts"] >= -1000 for event in events if event["ph"] == "X")
    for rank in (0, 1):
        names = {(e["name"], e["args"].get("name")) for e in events if e["ph"] == "M" and e["pid"] == rank}
        assert {("thread_name", "compute"), ("thread_name", "comm")} <= names
        iterations = slices(events, "iteration", rank)
        assert [each["args"]["iteration"] for each in iterations] == [8, 9, 10, 11]
        for category in ("forward", "backward"):
            layers = slices(events, category, rank)
            # "ip" and the ReLU behind it run as one step, which is called after both.
            assert {re.split(r"\W", each["name"])[0] for each in layers} >= {"data", "ip", "ip2", "loss"}
            assert len(layers) == 4 * len({each["name"] for each in layers})
        reduced = slices(events, "allreduce", rank)
        assert sorted(each["args"]["group"] for each in reduced) == [0] * 4 + [1] * 4
        assert len(slices(events, "agree", rank)) == 4
        assert len(slices(events, "update", rank)) >= 8
        waits = [e for e in events if e["pid"] == rank and e.get("cat") == "queue"]
        assert sorted(e["ph"] for e in waits) == ["b"] * 8 + ["e"] * 8
        assert len(slices(events, "test", rank)) == 1  # at iteration 10
        # Each slice lies inside the one that it begins in: otherwise viewers draw nonsense.
        compute = sorted((e for e in events if e["ph"] == "X" and e["pid"] == rank and e["tid"] == 0),
                         key=lambda e: (e["ts"], -e["dur"]))  # fmt: skip
        stack = []
        for event in compute:
            while stack and event["ts"] >= stack[-1] - 1e-3:
                stack.pop()
            end = event["ts"] + event["dur"]
            assert not stack or end <= stack[-1] + 1e-2, event
            stack.append(end)
    assert len(slices(events, "snapshot")) == 1


def test_one_rank_records_a_few_iterations_after_its_warm_up(engine):
    result = engine.run("train", "solver.prototxt", "--timeline", "timeline.json")
    assert result.returncode == 0, result.stderr
    other, events = read(engine.folder / "timeline.json")
    assert other["iterations"] == list(range(3, 11)) and other["plan"] is None
    assert len(slices(events, "update")) == 8
    assert not slices(events, "allreduce") and not slices(events, "wait")


def test_a_run_that_ends_before_says_that_nothing_was_written(engine):
    result = engine.run("train", "solver.prototxt", "--timeline=timeline.json", "--timeline_iterations=50:60")
    assert result.returncode == 0
    assert "No timeline was written to timeline.json" in result.stderr
    assert not (engine.folder / "timeline.json").exists()
    engine.write("timeline.json", "of an earlier run")
    engine.run("train", "solver.prototxt", "--timeline=timeline.json", "--timeline_iterations=50:60")
    assert (engine.folder / "timeline.json").read_text() == "of an earlier run"


def test_a_link_stays_and_a_named_pipe_is_refused(engine):
    link = engine.folder / "link.json"
    link.symlink_to("target.json")
    words = ["train", "solver.prototxt", "--timeline=link.json"]
    assert engine.run(*words, "--timeline_iterations=50:60").returncode == 0
    assert link.is_symlink() and not link.exists()
    assert engine.run(*words).returncode == 0
    assert link.is_symlink() and (engine.folder / "target.json").stat().st_size
    os.mkfifo(engine.folder / "pipe")
    result = engine.run("train", "solver.prototxt", "--timeline=pipe")
    assert (result.returncode, "cannot write the timeline pipe: it is a named pipe" in result.stderr) == (73, True)


def test_a_run_that_ends_within_writes_what_there_is(engine):
    result = engine.run("train", "solver.prototxt", "--timeline=timeline.json", "--timeline_iterations=18:60")
    assert result.returncode == 0
    assert read(engine.folder / "timeline.json")[0]["iterations"] == [18, 19]


@pytest.mark.parametrize("text", ["8", "9:8", "8:8", "-1:4", "a:b"])
def test_a_range_that_is_none_is_refused(engine, text):
    result = engine.run("train", "solver.prototxt", "--timeline=t.json", f"--timeline_iterations={text}")
    assert result.returncode == 2
    assert "no range of iterations" in result.stderr


def test_a_file_that_cannot_be_written_stops_the_run_before_it_begins(engine):
    result = engine.run("train", "solver.prototxt", "--timeline=nowhere/timeline.json")
    assert result.returncode == 73
    assert "cannot write the timeline nowhere/timeline.json" in result.stderr
    assert "Solving" not in result.stderr


def test_other_clocks_are_put_onto_rank_0s(tmp_path):
    """Rank 1's clock is 1000 s ahead; its layer began 2 ms after rank 0's."""
    plan = Plan("single", 1, (Group(0, 0, 0, 4, 16, 0.001, 0.001, 0.004),), 0.002)
    report = CommReport(groups=[GroupTimes(16, 0.001, 0.0015, 0.004)], began=1000.003, plan=plan,
                        waits=[(0.002, 0.004, 0)])  # fmt: skip
    records = [
        RankRecord(0, "a", [IterationRecord(7, 0.0, True, [Span("ip", "forward", 0.0, 0.001)])]),
        RankRecord(1, "b", [IterationRecord(7, 1000.002, True, [Span("ip", "forward", 1000.002, 1000.003)], [report])]),
    ]
    path = tmp_path / "t.json"
    write_timeline(str(path), "net", ["ip"], records, [ClockOffset(0, 0), ClockOffset(1000.0, 1e-5)])
    content = json.loads(path.read_text())
    assert content["otherData"]["iterations"] == [7]
    events = content["traceEvents"]
    starts = {(e["pid"], e["cat"]): e["ts"] for e in events if e["ph"] == "X"}
    assert starts == pytest.approx(
        {(0, "forward"): 0.0, (1, "forward"): 2000.0, (1, "allreduce"): 4500.0, (1, "wait"): 5000.0}, abs=0.01
    )


def train_apart(folder, sync, watch, **fields):
    """Solve on two ranks as threads, with a timeline of iterations 4 to 7; `watch(rank, solver, event)` sees all."""
    settings = " ".join(f"{name}: {value}" for name, value in fields.items())
    text = data_layer(write_data(folder, classes=3), 2) + CLASSIFIER

    def rank(communicator):
        solver_fields = f"max_iter: 40 display: 4 comm_param {{ sync: {sync} {settings} }}"
        with make_solver(text, solver_fields, folder, communicator=communicator) as solver:
            solver.listeners.append(Listener(lambda event: watch(communicator.rank, solver, event)))
            Timeline(solver, communicator, str(folder / "timeline.json"), (4, 8))
            solver.solve()
            return solver.iteration

    return run_ranks(2, rank, timeout_s=10)


class Listener:
    """Hands events on."""

    def __init__(self, call):
        self.on_event = call


def test_a_trainer_that_is_stopped_before_the_recording_ends_holds_nobody_up(tmp_path):
    """The other one has recorded all of its iterations, while this one stops before it has."""
    past_recording = threading.Event()

    def watch(rank, solver, event):
        if isinstance(event, IterationDone) and rank == 0 and event.iteration == 12:
            past_recording.set()
        if isinstance(event, IterationDone) and rank == 1 and event.iteration == 5:
            past_recording.wait(10)
            solver.request_stop()

    fast, slow = train_apart(tmp_path, "SHADOW_MA", watch)
    assert fast > 12 and slow == 7
    content = json.loads((tmp_path / "timeline.json").read_text())
    assert content["otherData"]["iterations"] == [4, 5, 6, 7]


@pytest.mark.parametrize("sync", ["SHADOW_MA", "MA"])
def test_rounds_that_bring_replicas_together_are_recorded(tmp_path, sync):
    done = [0, 0]

    def watch(rank, solver, event):
        """In the background, let two rounds pass in each iteration."""
        if isinstance(event, IterationDone) and sync == "SHADOW_MA":
            done[rank] = solver._replicas.figures.synchronizations
            while solver._replicas.figures.synchronizations < done[rank] + 2:
                time.sleep(1e-4)

    fields = {"sync_every": 2} if sync == "MA" else {}
    assert train_apart(tmp_path, sync, watch, **fields) == [40, 40]
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    for rank in (0, 1):
        rounds = slices(events, "synchronization", rank)
        assert all(each["tid"] == 1 for each in rounds)
        numbers = [each["args"]["round"] for each in rounds]
        assert numbers == list(range(numbers[0], numbers[0] + len(rounds)))
        gaps = [each["args"]["gap"] for each in rounds]
        if sync == "MA":
            assert numbers == [2, 3] and gaps == [2, 2]  # after iterations 3 and 5; recording ends with iteration 7
        else:
            assert len(rounds) >= 8 and 4 <= sum(gaps) <= 6
        counters = [each for each in events if each["ph"] == "C" and each["pid"] == rank]
        assert [each["args"]["gap"] for each in counters if each["name"] == "gap"] == gaps
        assert len([each for each in counters if each["name"] == "distance"]) == len(rounds)
    page = iteration_picture(read_timeline(tmp_path / "timeline.json"), 5)
    if sync == "SHADOW_MA":
        assert "synchronize</text>" in page
        assert re.search(r"synchronization \d+: [\d.]+ ms, [01] iterations after the one before", page)
