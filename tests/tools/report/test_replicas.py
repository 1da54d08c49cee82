"""`engine report` of trainers with replicas of their own: their gaps, distances and speeds."""

from __future__ import annotations

import json
import re

import pytest

from mgcaffe.tools.report.data import read_run
from mgcaffe.tools.report.replicas import replicas_body, stretches


def line(kind, **values):
    return json.dumps({"event": kind, **values}) + "\n"


def sync(iteration, other, done, /, **values):
    counts = {"iterations": [iteration, other], "rounds": [done] * 2, "distances": [0.01, 0.02]}
    if not done:  # the trainers have not agreed yet
        counts |= {"rounds": [], "distances": []}
    figures = {
        "synchronizations": done, "gap": None, "sync_bytes": 2048 * done, "sync_ms": 20.0 if done else None,
        "sync_processor_s": 0.5,
    }  # fmt: skip
    return line("sync", **{"iter": iteration, "examples_per_s": 3000.0, **counts, **figures, **values})


def log(*syncs, **end):
    text = line("start", net="digits", max_iter=60, ranks=2, parameters=1234, iter=0)
    for number in range(60):
        text += line("iteration", iter=number, loss=1.0, smoothed_loss=1.0, seconds=0.02, images_per_s=1600.0)
    text += "".join(syncs)
    scores = {"accuracy": 0.985, "loss": 0.1}
    means = [scores | {"accuracy": 0.99}]
    return text + line("finish", iter=60, examples_per_s=2500.0, scores=[scores], mean_scores=means, **end)


@pytest.fixture
def run(tmp_path):
    def read(text):
        (tmp_path / "run.json").write_text(text)
        return read_run(tmp_path / "run.json")

    return read


def charts(body):
    """The label of each chart, with the number of points of each of its lines."""
    pictures = re.findall(r'<svg[^>]* aria-label="([^"]*)">(.*?)</svg>', body)
    return {
        label: [len(points.split()) for points in re.findall(r'<polyline points="([^"]*)"', picture)]
        for label, picture in pictures
    }


def test_each_trainer_has_its_lines(run):
    body = replicas_body(run(log(sync(0, 0, 0), sync(20, 10, 5), sync(40, 30, 10), sync(50, 60, 12))))
    assert charts(body) == {
        "synchronization gap": [3, 3],
        "distance": [3, 3],
        "examples per second": [3, 3],
        "time of a synchronization, ms": [3],
    }
    assert "2 trainers; 50 to 60 iterations as of the last display, at iteration 50. " in body
    assert "Rank 0 has synchronized 12 times, 20.00 ms and 2 KiB each" in body
    assert "rank 0</text>" in body and "rank 1</text>" in body
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>", body)
    assert rows == [("accuracy", "0.985", "0.99"), ("loss", "0.1", "0.1")]


def test_totals_are_those_of_the_end_of_the_run(run):
    totals = {"synchronizations": 20, "gap": 3.0, "sync_ms": 25.0, "sync_bytes": 20 * 3072, "sync_exposed_ms": 7.0}
    record = run(log(sync(0, 0, 0), sync(20, 10, 5, sync_exposed_ms=2.0), **totals, iterations=[60, 62]))
    assert (
        "2 trainers; 60 to 62 iterations at the end of the run. Rank 0 has synchronized 20 times, 25.00 ms and 3 KiB"
        " each; its gap is 3.00. "
    ) in replicas_body(record)
    assert record.waited_for_rounds_ms == 7.0


def test_gap_and_speed_are_those_since_the_display_before(run):
    """Of 3,000 examples/s the trainer with 20 of 30 iterations has 2,000; 20 iterations in 5 rounds are a gap of 4."""
    record = run(log(sync(0, 0, 0), sync(20, 10, 5), sync(40, 20, 15, sync_ms=30.0)))
    first, second = stretches(record)
    assert (first.at, first.gaps, first.distances) == (20, [4.0, 2.0], [0.01, 0.02])
    assert first.speeds == pytest.approx([2000, 1000]) and first.sync_ms == pytest.approx(20)
    # 5 of 20 ms, and 15 of 30 ms on average: the later 10 took 35 ms.
    assert second.gaps == [2.0, 1.0] and second.sync_ms == pytest.approx(35)


def test_with_servers_each_trainer_has_rounds_of_its_own(run):
    record = run(log(sync(10, 10, 5), sync(20, 30, 10, rounds=[10, 15]), sync(30, 40, 20, rounds=[20, 15])))
    assert [each.gaps for each in stretches(record)] == [[2.0, 2.0], [1.0, None]]


def test_a_resumed_run_leaves_a_hole_in_its_lines(run):
    before = [sync(0, 0, 0), sync(20, 20, 10), sync(40, 40, 20)]
    found = run(log(*before, sync(50, 50, 5), sync(59, 59, 9)))
    assert charts(replicas_body(found))["synchronization gap"] == [3, 3]


def test_replicas_that_never_meet_have_speeds_alone(run):
    found = run(log(*(sync(number, number, 0) for number in (0, 20, 40))))
    body = replicas_body(found)
    assert "There were no synchronizations." in body
    assert charts(body)["examples per second"] == [2, 2] and charts(body)["synchronization gap"] == []
    assert body.count("nothing was recorded of it") == 3


def test_of_many_trainers_the_first_are_drawn(run):
    lists = [{"iterations": [number] * 20, "rounds": [number] * 20, "distances": [0.1] * 20} for number in (1, 20, 40)]
    many = [sync(each["rounds"][0], 0, each["rounds"][0], **each) for each in lists]
    body = replicas_body(run(log(*many)))
    assert "20 trainers, of which the first 8 are drawn; 40 iterations each as of" in body
    assert charts(body)["distance"] == [2] * 8


def test_a_run_in_step_has_no_such_part(run, engine):
    assert replicas_body(run(log())) == ""
    engine.write("run.json", log())
    assert engine.run("report", "run.json").returncode == 0
    assert "Replicas kept together" not in (engine.folder / "run.html").read_text()


def test_the_page_shows_the_examples_of_all_trainers(engine):
    engine.write("run.json", log(sync(0, 0, 0), sync(20, 10, 5)))
    result = engine.run("report", "run.json")
    assert result.returncode == 0, result.stderr
    page = (engine.folder / "run.html").read_text()
    assert "<h2>Replicas kept together</h2>" in page
    assert "<b>2,500</b>examples per second, all trainers" in page and "<b>1,600</b>examples per second, rank 0" in page
    assert "Schedules compared" not in page
    assert "Of 20.00 ms per iteration: <b>computing 100 %</b>." in page


def test_the_wait_in_the_foreground_counts_among_what_an_iteration_takes(engine):
    engine.write("run.json", log(sync(0, 0, 0), sync(20, 20, 4, sync_exposed_ms=20.0)))
    assert engine.run("report", "run.json").returncode == 0
    page = (engine.folder / "run.html").read_text()
    shares = "<b>computing 50 %</b>, <b>synchronizing replicas 50 %</b>"
    assert f"Of 40.00 ms per iteration: {shares}. Much of it waits for synchronizations" in page


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"iterations": 3}, "iterations should be a list, not 3"),
        ({"iterations": [-1, 2]}, "iterations[0] should be a whole number of 0 or more, not -1"),
        ({"rounds": {}}, "rounds should be a list, not"),
        ({"distances": ["x", 0.1]}, 'distances[0] should be a number, not "x"'),
        ({"synchronizations": "many"}, 'synchronizations should be a whole number, not "many"'),
    ],
)
def test_values_of_other_types_are_refused_with_their_place(engine, values, message):
    engine.write("run.json", log(sync(20, 10, 5, **values)))
    result = engine.run("report", "run.json")
    assert result.returncode == 65 and message in result.stderr and "run.json:62:" in result.stderr
