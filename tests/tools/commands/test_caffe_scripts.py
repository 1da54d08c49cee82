"""draw_net, parse_log, plot_training_log and extract_seconds, with the flags and outputs of Caffe's scripts."""

from __future__ import annotations

import pytest
from PIL import Image

from mgcaffe.tools.commands import draw_net, extract_seconds, parse_log, plot_training_log
from tests.support.paths import MODELS

LOG = """\
Log file created at: 2016/02/24 00:31:50
I0224 00:32:03.000000   655 solver.cpp:279] Solving LeNet
I0224 00:32:03.000100   655 solver.cpp:280] Learning Rate Policy: inv
I0224 00:32:03.250000   655 solver.cpp:337] Iteration 0, Testing net (#0)
I0224 00:32:04.500000   655 solver.cpp:404]     Test net output #0: accuracy = 0.1
I0224 00:32:04.500000   655 solver.cpp:404]     Test net output #1: loss = 2.4 (* 1 = 2.4 loss)
I0224 00:32:05.000000   655 solver.cpp:228] Iteration 0, loss = 2.5
I0224 00:32:05.000000   655 solver.cpp:244]     Train net output #0: loss = 2.6 (* 1 = 2.6 loss)
I0224 00:32:05.000000   655 sgd_solver.cpp:106] Iteration 0, lr = 0.01
some line of another program, Iteration 3
I0224 00:33:05.500000   655 solver.cpp:228] Iteration 100, loss = 0.5
I0224 00:33:05.500000   655 solver.cpp:244]     Train net output #0: loss = 0.4 (* 1 = 0.4 loss)
I0224 00:33:05.500000   655 sgd_solver.cpp:106] Iteration 100, lr = 0.005
I0224 00:33:06.000000   655 solver.cpp:337] Iteration 100, Testing net (#0)
I0224 00:33:07.000000   655 solver.cpp:404]     Test net output #0: accuracy = 0.9
I0224 00:33:07.000000   655 solver.cpp:404]     Test net output #1: loss = 0.3 (* 1 = 0.3 loss)
I0224 00:33:08.000000   655 solver.cpp:322] Optimization Done.
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.log").write_text(LOG)
    return tmp_path


def test_parse_log_writes_both_tables_as_caffes(log, capsys):
    (log / "tables").mkdir()
    assert parse_log.main(["run.log", "tables", "--verbose"]) == 0
    assert (log / "tables" / "run.log.train").read_text().splitlines() == [
        "NumIters,Seconds,LearningRate,loss", "0.0,2.0,0.01,2.6", "100.0,62.5,0.005,0.4"
    ]  # fmt: skip
    assert (log / "tables" / "run.log.test").read_text().splitlines() == [
        "NumIters,Seconds,LearningRate,accuracy,loss", "0.0,0.25,0.01,0.1,2.4", "100.0,63.0,0.005,0.9,0.3"
    ]  # fmt: skip
    assert capsys.readouterr().out == "Wrote tables/run.log.train\nWrote tables/run.log.test\n"


def test_parse_log_takes_another_delimiter_and_logs_without_tests(log, capsys):
    end = "I0224 00:33:08.500000   655 solver.cpp:310] Iteration 200, loss = 0.4\n"  # no row of its own
    (log / "run.log").write_text("".join(line for line in LOG.splitlines(True) if "Test" not in line) + end)
    assert parse_log.main(["--delimiter=\\t", "--verbose=true", "run.log", "."]) == 0
    assert [row.split("\t") for row in (log / "run.log.train").read_text().splitlines()[1:]] == [
        ["0.0", "2.0", "0.01", "2.6"], ["100.0", "62.5", "0.005", "0.4"]
    ]  # fmt: skip
    assert not (log / "run.log.test").exists()
    assert "Not writing run.log.test; no lines to write" in capsys.readouterr().out


def test_parse_log_gives_further_test_nets_their_own_tables(log):
    lines = LOG.splitlines(True)
    second = "".join(lines[13:16]).replace("(#0)", "(#1)").replace("= 0.9", "= 0.8")
    (log / "run.log").write_text("".join([*lines[:16], second, lines[16]]))
    assert parse_log.main(["run.log", "."]) == 0
    assert (log / "run.log.test").read_text().splitlines()[2] == "100.0,63.0,0.005,0.9,0.3"
    assert (log / "run.log.test1").read_text().splitlines()[1] == "100.0,63.0,0.005,0.8,0.3"


def test_extract_seconds_writes_the_time_of_each_iteration_line(log, capsys):
    assert extract_seconds.main(["run.log", "seconds.txt"]) == 0
    assert (log / "seconds.txt").read_text().split() == [
        "0.250000", "2.000000", "2.000000", "62.500000", "62.500000", "63.000000"
    ]  # fmt: skip
    assert "run.log: 1 line that holds 'Iteration' but no time left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (["1231 23:59:59", "0101 00:00:01.5", "1231 23:59:59.5", "0102 00:00:00"], [2.5, 0.5, 86401]),
        (["0228 23:59:59", "0301 00:00:00", "0228 23:59:59.5", "0301 00:00:01"], [1, 0.5, 2]),
        (["0228 23:59:59", "0229 00:00:00", "0229 23:59:59", "0301 00:00:01"], [1, 86400, 86402]),
        (["1231 23:59:59", "0101 00:00:00", "0228 23:59:59", "0301 00:00:00"], [1, 59 * 86400, 59 * 86400 + 1]),
        (["20240228 23:59:59", "20240301 00:00:00"], [86401]),
    ],
)
def test_extract_seconds_counts_on_over_the_ends_of_february_and_of_the_year(log, times, seconds):
    first, *others = times
    lines = [f"I{first} 1 solver.cpp:1] Solving net", *(f"I{time} 1 solver.cpp:1] Iteration 0" for time in others)]
    (log / "run.log").write_text("\n".join(lines))
    assert extract_seconds.main(["run.log", "seconds.txt"]) == 0
    assert list(map(float, (log / "seconds.txt").read_text().split())) == seconds


@pytest.mark.parametrize("number", range(8))
def test_plot_training_log_draws_every_type(log, number, capsys):
    (log / "other.log").write_text(LOG.replace("0.9", "0.7"))
    assert plot_training_log.main([str(number), "out.png", "run.log", "other.log"]) == 0
    assert len(Image.open("out.png").convert("RGB").getcolors(1 << 20)) > 20
    assert capsys.readouterr().out == "wrote out.png\n"


@pytest.mark.parametrize(
    ("number", "points"),
    [
        (0, [(0, 0.1), (100, 0.9)]),
        (1, [(0.25, 0.1), (63, 0.9)]),
        (2, [(0, 2.4), (100, 0.3)]),
        (4, [(0, 0.01), (100, 0.005)]),
        (5, [(2, 0.01), (62.5, 0.005)]),
        (6, [(0, 2.5), (100, 0.5)]),
    ],
)
def test_what_each_type_shows(log, monkeypatch, number, points):
    seen = []
    monkeypatch.setattr("mgcaffe.tools.logs.plot.draw_panels", lambda *words, **options: seen.append((words, options)))
    assert plot_training_log.main([str(number), "out.png", "run.log"]) == 0
    [((path, title, [(field, series)]), options)] = seen
    assert (path, title) == ("out.png", f"{field} vs. {options['across']}")
    assert series == {"run": points}


@pytest.mark.parametrize("ending", ["png", "svg", "html", "dot"])
@pytest.mark.parametrize("words", [(), ("--rankdir", "TB", "--phase=TEST", "--display_lrm")])
def test_draw_net_draws_all_phases_without_data(log, capsys, ending, words):
    model = MODELS / "lenet" / "train_val.prototxt"
    assert draw_net.main([str(model), f"net.{ending}", *words]) == 0
    assert capsys.readouterr().out == f"Drawing net to net.{ending}\n"
    content = (log / f"net.{ending}").read_bytes()
    if ending in ("svg", "dot"):
        assert content.count(b"mnist") >= (1 if words else 2)
        assert (b"lr mult: 2" in content) == bool(words)
        assert b"accuracy" in content


@pytest.mark.parametrize(
    ("script", "words", "code", "message"),
    [
        (draw_net, ["net.prototxt"], 2, "draw_net takes 2 words, not 1"),
        (draw_net, ["absent.prototxt", "a.svg"], 65, "absent.prototxt"),
        (draw_net, ["run.log", "a.svg"], 65, "run.log:1:"),
        (draw_net, [str(MODELS / "lenet" / "deploy.prototxt"), "no/a.svg"], 73, "cannot write no/a.svg"),
        (draw_net, [str(MODELS / "lenet" / "deploy.prototxt"), "a.svg", "--rankdir=XX"], 2, "choose from"),
        (draw_net, [str(MODELS / "lenet" / "deploy.prototxt"), "a.svg", "--phse=TEST"], 2, "did you mean '--phase'?"),
        (parse_log, ["run.log"], 2, "parse_log takes 2 words, not 1"),
        (parse_log, ["absent.log", "."], 65, "log 'absent.log' cannot be read"),
        (parse_log, ["run.log", "no"], 73, "cannot write no/run.log.train"),
        (parse_log, ["run.log", ".", "--delimiter=ab"], 2, "it should be one character"),
        (extract_seconds, ["run.log", "no/out"], 73, "cannot write no/out"),
        (extract_seconds, ["absent.log", "out"], 65, "log 'absent.log' cannot be read"),
        (extract_seconds, ["other.txt", "out"], 65, "no line 'Solving ...' with a time"),
        (plot_training_log, ["0", "out.png"], 2, "takes 3 or more words, not 2"),
        (plot_training_log, ["8", "out.png", "run.log"], 2, "'8' is no chart type"),
        (plot_training_log, ["-1", "out.png", "run.log"], 2, "unknown flag '-1'"),
        (plot_training_log, ["0", "out.gif", "run.log"], 2, "should end in one of .png"),
        (plot_training_log, ["0", "out.png", "untested.log"], 65, "has no 'Test accuracy' over 'Iters'"),
        (plot_training_log, ["0", "no/out.png", "run.log"], 73, "cannot write no/out.png"),
    ],
)
def test_mistakes_are_named(log, capsys, script, words, code, message):
    (log / "other.txt").write_text("Iteration 3\n")
    (log / "untested.log").write_text("".join(line for line in LOG.splitlines(True) if "Test" not in line))
    assert script.main(words) == code
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize("script", [draw_net, parse_log, plot_training_log, extract_seconds])
def test_help_names_the_command_and_its_words(script, capsys):
    assert script.main(["--help"]) == 0
    name = script.__name__.rpartition(".")[2]
    assert f"usage: {name} " in capsys.readouterr().out
