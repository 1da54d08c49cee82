"""`engine report`: the page of a run, read as text, as a tree, and as headless Chromium shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mgcaffe.tools.report.charts import Series, group_chart, line_chart, thin_out
from mgcaffe.tools.report.spans import Box, GroupLine, TimelineData, read_timeline
from mgcaffe.tools.report.svg import Drawing, Scale
from tests.support.counted_lines import counted_lines

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Tree(HTMLParser):
    """Checks that tags close, and collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def line(kind, **values):
    return json.dumps({"event": kind, **values}) + "\n"


def json_log(iterations=50, ranks=2, **plan):
    text = line("start", net="tiny <net>", max_iter=iterations, ranks=ranks, parameters=1234, iter=0)
    text += line("plan", **{"iter": 5, "schedule": "auto", "plan": "auto: optimal", "groups": [[0, 1, 800]], **plan})
    for number in range(iterations):
        text += line(
            "iteration", iter=number, loss=2 / (number + 1), smoothed_loss=2 / (number + 1), lr=0.1, seconds=0.02,
            images_per_s=3200.0, data_wait_ms=1.0, comm_hidden_ms=3.0, comm_exposed_ms=4.0,
        )  # fmt: skip
        if number % 10 == 0:
            text += line("test", iter=number, net=0, scores={"accuracy": number / 50, "curve": [1, 2]}, loss=None)
    return text + line("finish", iter=iterations, stopped_early=False)


def prediction(workers):
    return {"schedule": "wfbp", "groups": 3, "iteration_s": 1.0, "exposed_s": 0.1, "workers": workers, "speedup": 1.5}


TRIALS = [
    {"plan": "optimal", "blocking": False, "groups": 1, "predicted_ms": 9.0, "measured_ms": 9.5, "exposed_ms": 1.0},
    {"plan": "wfbp", "blocking": True, "groups": 3, "predicted_ms": 8.0, "measured_ms": 12.5, "exposed_ms": 2.0},
]


def timeline():
    """Two ranks, one iteration of 20 ms: forward 5, backward 10 (1 ms waits for data in forward), wait 2, update 1."""

    def event(rank, name, category, start, length, thread=0, **facts):
        facts = {"iteration": 7, **facts}
        return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": start * 1e3,
                "dur": length * 1e3, "args": facts}  # fmt: skip

    events = []
    for rank in (0, 1):
        events += [
            event(rank, "iteration 7", "iteration", 0, 20),
            event(rank, "data", "forward", 0, 1),
            event(rank, "wait for data", "data", 0, 1),
            event(rank, "ip1", "forward", 1, 4),
            event(rank, "ip2", "backward", 5, 4),
            event(rank, "ip1", "backward", 9, 6),
            event(rank, "wait for group 1", "wait", 15, 2),
            event(rank, "update", "update", 17, 1),
            event(rank, "all-reduce of group 0", "allreduce", 9, 3, 1, group=0, layers="ip2", bytes=800,
                  ready_ms=4.0, start_ms=4.0, end_ms=7.0),
            event(rank, "all-reduce of group 1", "allreduce", 15, 2, 1, group=1, layers="ip1", bytes=2048,
                  ready_ms=10.0, start_ms=10.0, end_ms=12.0),
        ]  # fmt: skip
    group = {"layers": 1, "first": "ip1", "last": "ip1"}
    plan = {
        "schedule": "auto: optimal",
        "layers": ["ip1", "ip2"],
        "backward_ms": 9.5,
        "groups": [
            {**group, "bytes": 800, "ready_ms": 3.9, "start_ms": 3.9, "end_ms": 6.5},
            {**group, "bytes": 2048, "ready_ms": 9.5, "start_ms": 9.5, "end_ms": 11.0},
        ],
    }
    ranks = [{"rank": rank, "host": "h", "clock_offset_us": 0.0, "clock_uncertainty_us": 3.0} for rank in (0, 1)]
    other = {"format": "mgcaffe timeline 1", "net": "tiny", "iterations": [7], "ranks": ranks, "plan": plan}
    return json.dumps({"otherData": other, "traceEvents": events})


def page_of(engine, *words):
    result = engine.run("report", "run.json", *words)
    assert result.returncode == 0, result.stderr
    page = (engine.folder / "run.html").read_text()
    tree = Tree()
    tree.feed(page)
    assert tree.open == [] and tree.loads == []
    assert "http" not in page.replace("http-equiv", "")
    return page


def test_the_page_answers_where_the_time_went(engine):
    engine.write("run.json", json_log(trials=TRIALS))
    engine.write("timeline.json", timeline())
    page = page_of(engine)
    assert "tiny &lt;net&gt;" in page
    assert (
        "Of 20.00 ms per iteration: <b>backward 50 %</b>, <b>forward 20 %</b>, <b>waiting for communication 10 %"
        in page
    )
    assert "waiting for data: 1.000 ms, 5.0 %" in page and "other: 2.000 ms, 10.0 %" in page
    assert "hidden behind computing: 3.000 ms, 60.0 %" in page and "waited for: 2.000 ms, 40.0 %" in page
    assert "Predicted: backward 9.50 ms, communication ends at 11.00 ms." in page
    assert "backward 10.00 ms, communication ends at 12.00 ms." in page
    assert "group 0 measured: ready 4.000, start 4.000, end 7.000 ms" in page
    assert "9.50 ms — chosen" in page and "wfbp, blocking: 3 groups" in page


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            {"predicted_from": "trials"},
            "Predicted after the trials, from what this plan took in them: backward 9.50 ms",
        ),
        (
            {"predicted_from": "calibration"},
            "Predicted from the calibration, before training by this plan: backward 9.5",
        ),
        ({"predicted_from": None}, "Predicted where the plan file was made: backward 9.50 ms"),
        ({"predicted_from": "trials", "iter": 8}, "Predicted before the last plan was chosen: backward 9.50 ms"),
        ({}, "Predicted: backward 9.50 ms"),
    ],
)
def test_the_page_says_what_its_predictions_rest_on(engine, facts, text):
    engine.write("run.json", json_log(**facts))
    engine.write("timeline.json", timeline())
    assert text in page_of(engine)


def test_the_page_of_a_resumed_run_says_that_another_run_predicted(engine):
    engine.write("run.json", "".join(each for each in json_log().splitlines(True) if '"event": "plan"' not in each))
    engine.write("timeline.json", timeline())
    assert "Predicted by the run that found this plan: backward 9.50 ms" in page_of(engine)


@pytest.mark.parametrize(("last", "fact"), [(45, "test accuracy, iteration 45"), (50, "test accuracy")])
def test_scores_of_a_test_before_the_end_name_its_iteration(engine, last, fact):
    engine.write("run.json", json_log() + line("test", iter=last, net=0, scores={"accuracy": 0.5}, loss=None))
    assert f"<b>0.5</b>{fact}<" in page_of(engine)


def test_without_a_timeline_the_log_alone_gives_the_shares(engine):
    engine.write("run.json", json_log())
    page = page_of(engine)
    assert "Of 20.00 ms per iteration: <b>computing 75 %</b>, <b>waiting for communication 20 %" in page
    assert "train with --timeline=FILE" in page and "train with --schedule=auto" in page


def test_a_run_that_waits_for_data_is_told_which_stage_takes_the_most(engine):
    text = json_log()
    for stages, advice in (
        ({}, "Reading data is the bottleneck: a faster source, or more prefetch, helps."),
        (
            {"data_decode_ms": 7.5, "data_read_ms": 2.5},
            "bottleneck: decoding takes 75 % of making a batch.",
        ),
    ):
        more = {"data_wait_ms": 9.0, **stages}
        lines = [json.dumps(json.loads(each) | more) if '"iteration"' in each else each for each in text.splitlines()]
        engine.write("run.json", "\n".join(lines) + "\n")
        assert advice in page_of(engine)


def test_predictions_of_engine_plan_stand_in_for_trials(engine):
    engine.write("run.json", json_log())
    rows = [{"schedule": name, "groups": groups, "iteration_s": seconds, "exposed_s": 0.001, "workers": 4, "speedup": 3}
            for name, groups, seconds in (("single", 1, 0.03), ("mgwfbp", 4, 0.02))]  # fmt: skip
    engine.write("plan.json", json.dumps(rows))
    page = page_of(engine, "--plan=plan.json")
    assert "mgwfbp: 4 groups" in page and "20.00 ms predicted" in page


def test_the_logs_warnings_and_last_lines_are_shown(engine):
    engine.write("run.json", json_log())
    lines = ["W1121 01:00:00.1 7 x.cpp:1] beware of <this>", *(f"I1121 01:00:01.1 7 x.cpp:1] {n}" for n in range(40))]
    engine.write("run.log", "\n".join(lines))
    page = page_of(engine, "--log=run.log")
    assert "beware of &lt;this&gt;" in page and "x.cpp:1] 39" in page and "x.cpp:1] 5\n" not in page


def test_a_run_of_one_rank_with_its_timeline(engine):
    assert engine.run("train", "solver.prototxt", "--timeline=run.timeline.json", "--json_log=run.json").returncode == 0
    page = page_of(engine)
    assert "backward" in page and "waiting for communication" not in page and "Schedules compared" not in page


def test_a_resumed_or_broken_off_log_is_read(engine):
    first, second = json_log(30), json_log(50)
    engine.write("run.json", first + second + '{"event": "iterat')
    assert "50 of 50" in page_of(engine)


@pytest.mark.parametrize(
    ("words", "files", "code", "message"),
    [
        ((), {}, 2, "the run is missing"),
        (("run.json",), {}, 65, "cannot read run.json"),
        (
            ("run.json",),
            {"run.json": "hello\n"},
            65,
            "run.json:1:1: not a line of a JSON log: no JSON",
        ),
        (("run.json",), {"run.json": line("start", net="x")}, 65, "it holds no iteration"),
        (("run.json", "--timeline=t"), {"run.json": json_log(), "t": "{}"}, 65, "t:1:1: not a timeline"),
        (
            ("run.json", "--timeline=t"),
            {"run.json": json_log(), "t": "[]"},
            65,
            "t:1:1: not a timeline of engine train: the document should be an object, not a list\n",
        ),
        (("run.json", "--plan=p"), {"run.json": json_log(), "p": "{}x"}, 65, "p:1:3: no predictions"),
        (
            ("run.json", "--plan=p"),
            {"run.json": json_log(), "p": json.dumps([prediction(2), prediction(4)])},
            65,
            "p: predictions for several numbers of workers",
        ),
        (("run.json", "--output=no/where.html"), {"run.json": json_log()}, 73, "cannot write no/where.html"),
    ],
)
def test_what_cannot_be_read_or_written_is_reported(engine, words, files, code, message):
    for name, text in files.items():
        engine.write(name, text)
    result = engine.run("report", *words)
    assert result.returncode == code and message in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"iter": 7',
            '"iter": [7]',
            "run.json:11:32: not a line of a JSON log: iter should be a",
        ),
        ('"loss": 0.25,', '"loss": "low",', "loss should be a number, not "),
        ('"seconds": 0.02', '"seconds": 1e999', "seconds should be a number, not Infinity"),
        (
            '"ranks": 2',
            '"ranks": ' + "9" * 30,
            "run.json:1:66: not a line of a JSON log: ranks",
        ),
        ('"predicted_ms": 9.0, ', "", "'predicted_ms' is missing in trials[0]"),
        ('"groups": [[0, 1, 800]]', '"groups": 1', "groups should be a list, not 1"),
        ('"scores": {"accuracy"', '"scores": {"accuracy": {}, "a"', "scores.accuracy should be a number"),
    ],
)
def test_a_log_with_values_of_other_types_is_refused_with_their_place(engine, old, new, message):
    text = json_log(trials=TRIALS)
    assert old in text
    engine.write("run.json", text.replace(old, new, 1))
    result = engine.run("report", "run.json")
    assert result.returncode == 65 and message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"iterations": [7]', '"iterations": []', "one or more, each named once"),
        ('"iterations": [7]', '"iterations": [7, 7]', "one or more, each named once"),
        ('"iterations": [7]', '"iterations": [7, 8]', "rank 0 has no span for iteration 8"),
        ('"pid": 1', '"pid": 2', "pid should be a whole number from 0 to 1, not 2"),
        ('"dur": 20000.0', '"dur": -1', "traceEvents[0].dur should be a number of 0 or more, not -1"),
        ('"group": 0', '"group": null', "args.group should be a whole number, not null"),
        ('"backward_ms": 9.5', '"backward_ms": {}', "otherData.plan.backward_ms should be a number"),
        ('"ready_ms": 3.9', '"ready": 3.9', "'ready_ms' is missing in otherData.plan.groups[0]"),
        ('"format": "mgcaffe timeline 1"', '"format": "x"', "its format is not 'mgcaffe timeline 1'"),
    ],
)
def test_a_timeline_with_values_of_other_types_is_refused_with_their_place(engine, old, new, message):
    text = timeline()
    assert old in text
    engine.write("run.json", json_log())
    engine.write("t.json", text.replace(old, new, 1))
    result = engine.run("report", "run.json", "--timeline=t.json")
    assert result.returncode == 65 and message in result.stderr and "Traceback" not in result.stderr
    assert "t.json:1:" in result.stderr


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-300, 5e-324, 0])
def test_curves_of_any_finite_numbers_are_drawn(engine, value):
    text = json_log(5).replace('"lr": 0.1', f'"lr": {value}').replace('"loss": 1.0', f'"loss": {value}')
    engine.write("run.json", text)
    page_of(engine)


def test_a_run_that_was_cut_off_and_resumed_in_the_same_file_is_read_on(engine):
    cut = json_log(10).splitlines()
    engine.write("run.json", "\n".join([*cut[:6], cut[6][:30], *json_log(20).splitlines()]) + "\n")
    assert "20 of 20" in page_of(engine)


def test_many_ranks_and_iterations_are_read_by_few_lines_each(tmp_path):
    content = json.loads(timeline())
    spans = [event for event in content["traceEvents"] if event["pid"] == 0 and event["cat"] == "iteration"]
    content["otherData"]["ranks"] *= 2000
    content["otherData"]["iterations"] = list(range(2000))
    content["traceEvents"] = [
        {**spans[0], "pid": pid, "args": {"iteration": number}} for number in range(2000) for pid in (0, number)
    ]
    (tmp_path / "t.json").write_text(json.dumps(content))

    def read():
        data = read_timeline(tmp_path / "t.json")
        return data.phases(), data.typical_iteration(), data.backward_ms(), data.groups()

    assert counted_lines(read) < 700 * 2000  # 321 each


def test_spans_inside_others_are_not_counted_twice(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(timeline())
    phases = read_timeline(path).phases()
    assert phases == pytest.approx(
        {"forward": 4, "backward": 10, "wait": 2, "agree": 0, "update": 1, "data": 1, "test": 0, "other": 2}
    )
    boxes = [Box(0, "iteration 1", "iteration", 0, 10, {"iteration": 1}), Box(0, "ip", "forward", 0, 8, {}),
             Box(0, "wait", "wait", 1, 3, {}), Box(0, "update", "update", 3, 4, {})]  # fmt: skip
    overlapped = TimelineData(path, [{}], [1], None, boxes).phases()
    assert (overlapped["forward"], overlapped["wait"], overlapped["update"], overlapped["other"]) == (5, 2, 1, 2)


def test_agreeing_while_groups_are_reduced_counts_as_waiting(tmp_path):
    boxes = [Box(0, "iteration 1", "iteration", 0, 10, {"iteration": 1}), Box(0, "agree", "agree", 4, 8, {}),
             Box(0, "all-reduce", "allreduce", 1, 5, {}), Box(0, "all-reduce", "allreduce", 5, 6, {}),
             Box(0, "update", "update", 8, 9, {})]  # fmt: skip
    phases = TimelineData(tmp_path, [{}], [1], None, boxes).phases()
    assert (phases["wait"], phases["agree"], phases["other"]) == (2, 2, 5)


def test_thinning_out_keeps_every_peak():
    points = [(float(x), 0.0) for x in range(100_000)]
    points[77_777] = (77_777.0, 9.0)
    thinned = thin_out(points)
    assert (77_777.0, 9.0) in thinned and len(thinned) <= 1000
    assert thinned == sorted(thinned)


def test_ticks_are_round_and_inside():
    assert Scale(0, 10, 0, 100).ticks(5) == [0, 2, 4, 6, 8, 10]
    assert Scale(0, 0.0007, 0, 1).ticks(4) == pytest.approx([0, 0.0002, 0.0004, 0.0006])
    assert Scale(3, 3, 0, 1)(3) == 0


def test_texts_that_do_not_fit_are_shortened_or_left_out():
    drawing = Drawing(100, 10, "x")
    drawing.fitted_text(0, 5, 300, "convolution")
    drawing.fitted_text(0, 5, 50, "convolution")
    drawing.fitted_text(0, 5, 12, "convolution")
    assert re.findall(r">([^<>]+)</text>", drawing.render()) == ["convolution", "convol…"[:5] + "…"]


def test_a_chart_of_nothing_says_so():
    assert "nothing was recorded of it" in line_chart("loss", [Series("loss", [], "#000")])


def test_a_chart_of_one_point_shows_it():
    assert line_chart("loss", [Series("loss", [(0, 1.5)], "#000")]).count("<circle") == 1


@pytest.mark.parametrize("value", [1.04e20, -1.5e-7, 123_456_789.0])
def test_long_numbers_beside_an_axis_are_not_cut_off(value):
    shown = line_chart("learning rate", [Series("rate", [(0, value), (1, value)], "#000")])
    labels = re.findall(r'<text x="([0-9.]+)"[^>]*text-anchor="end">([^<]+)<', shown)
    assert all(float(x) > 6 * len(text) for x, text in labels)


@pytest.mark.parametrize(("low", "high"), [(6.9069, 6.9089), (5000.1, 5000.9), (10.0, 10.0 + 1e-9)])
def test_numbers_beside_an_axis_tell_its_marks_apart(low, high):
    shown = line_chart("loss", [Series("loss", [(200_000, low), (200_003, high)], "#000")])
    for anchor in ("end", "middle"):
        labels = re.findall(rf'text-anchor="{anchor}">([-+.,e0-9]+)<', shown)
        assert len(labels) > 2 and len(set(labels)) == len(labels)


def test_lines_for_whose_names_there_is_no_space_are_counted():
    lines = [Series(f"accuracy_{number}", [(0, number), (1, number)], "#000") for number in range(100)]
    shown = line_chart("test scores", lines)
    assert "accuracy_0</text>" in shown and "and 97 more</text>" in shown and "accuracy_3</text>" not in shown
    lefts = [float(x) for x in re.findall(r'<text x="([-0-9.]+)" y="16.0"', shown)]
    assert min(lefts[1:]) > 46 + 7 * len("test scores")
    longest = line_chart("loss", [Series("x" * 200, [(0, 1)], "#000"), Series("y", [(0, 1)], "#000")])
    assert "x" * 29 + "…</text>" in longest and "y</text>" in longest


def test_a_run_that_counts_no_images_says_nothing_of_their_speed(engine):
    engine.write("run.json", json_log().replace("3200.0", "0.0"))
    engine.write("timeline.json", timeline())
    assert "images per second" not in page_of(engine)


@pytest.fixture
def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium is installed here")


def test_chromium_shows_the_page_and_needs_nothing_from_elsewhere(engine, chromium, tmp_path):
    engine.write("run.json", json_log(trials=TRIALS))
    engine.write("timeline.json", timeline())
    page_of(engine)
    # The probe lays the numbers that only a browser knows into the page's title.
    page = Path("run.html").read_text()
    probe = (
        "<script>addEventListener('load',()=>{const boxes=[...document.querySelectorAll('svg')].map("
        "e=>e.getBoundingClientRect());const texts=[...document.querySelectorAll('svg text')].filter(t=>{"
        "const a=t.getBoundingClientRect(),b=t.ownerSVGElement.getBoundingClientRect();"
        "return a.left<b.left-1||a.right>b.right+1||a.top<b.top-1||a.bottom>b.bottom+1}).map(t=>t.textContent);"
        "document.title=JSON.stringify({pictures:boxes.length,empty:boxes.filter(b=>b.width<300||b.height<20).length,"
        "wide:document.documentElement.scrollWidth>innerWidth,outside:texts,"
        "loaded:performance.getEntriesByType('resource').length})})</script></body>"
    )
    engine.write("probed.html", page.replace("</body>", probe))
    result = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--window-size=1280,2000", "--virtual-time-budget=2000", "--dump-dom", f"file://{tmp_path / 'probed.html'}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = re.search(r"<title>(\{.*?\})</title>", result.stdout)
    assert found, result.stderr[-2000:]
    seen = json.loads(found[1])
    assert seen == {"pictures": 9, "empty": 0, "wide": False, "outside": [], "loaded": 0}


@pytest.mark.parametrize(("backward", "predicted"), [(10.0, 9.9), (9.9, 10.0), (10.0, 10.0)])
def test_labels_near_the_right_edge_lie_on_the_left_of_their_lines(backward, predicted):
    picture = group_chart([GroupLine(0, "ip", 4, (9.0, 9.0, 9.5), (9.0, 9.0, 9.6))], backward, predicted)
    for label in ("backward ends", "backward is predicted to end"):
        (text,) = re.findall(rf"<text[^>]*>{label}<", picture)
        assert 'text-anchor="end"' in text
