"""Flags in every spelling that Caffe's users know, and mistakes in them."""

from __future__ import annotations

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.tools.commands import test as test_command
from mgcaffe.tools.commands import time as time_command
from mgcaffe.tools.commands import train
from mgcaffe.tools.flags.parsing import blob_shape, words_list


@pytest.mark.parametrize(
    "words", [["--solver=s.prototxt"], ["-solver=s.prototxt"], ["--solver", "s.prototxt"],
              ["-solver", "s.prototxt"], ["s.prototxt"]],
)  # fmt: skip
def test_the_solver_is_understood_in_every_spelling(words):
    assert train.parser().parse(words).solver == "s.prototxt"


def test_caffe_command_lines_parse():
    flags = train.parser().parse(["-solver=a", "-gpu", "all", "-weights", "x,y", "-sigint_effect=snapshot"])
    assert (flags.gpu, flags.weights, flags.sigint_effect) == ("all", ["x", "y"], "snapshot")
    flags = test_command.parser().parse(["-model", "m", "-weights=w", "-iterations", "7", "-gpu=0"])
    assert (flags.model, flags.weights, flags.iterations, flags.gpu) == ("m", ["w"], 7, "0")
    flags = time_command.parser().parse(["-model=m", "-iterations=3", "-phase", "TEST", "-level=2"])
    assert (flags.phase, flags.iterations, flags.level) == ("TEST", 3, 2)


def test_switches_of_glog_that_ask_for_what_is_done_anyway_are_taken():
    words = ["-solver=s", "-logtostderr=1", "--alsologtostderr", "-logtostderr=true", "-gpu", "0"]
    flags = train.parser().parse(words)
    assert (flags.solver, flags.gpu, flags.words) == ("s", "0", ["--solver=s", "--gpu=0"])


def test_words_of_a_flag_may_be_joined_by_dashes():
    assert train.parser().parse(["s", "--json-log", "x.json"]).json_log == "x.json"


def test_the_word_after_a_flag_is_its_value_whatever_it_begins_with():
    assert train.parser().parse(["--json_log", "-", "s"]).json_log == "-"
    with pytest.raises(UsageError, match="-1 is too small"):
        test_command.parser().parse(["m", "--iterations", "-1"])


def test_an_empty_stage_adds_no_stage():
    assert train.parser().parse(["s", "-stage", ""]).stage == []
    assert words_list("a, b,,c") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--solvr=x"], r"unknown flag '--solvr'; did you mean '--solver'\?"),
        (["-schedul", "wfbp"], r"unknown flag '-schedul'; did you mean '--schedule'\?"),
        (["--sol", "x"], r"unknown flag '--sol'"),
        (["s", "--logtostderr=0"], r"log lines always go to standard error: leave out --logtostderr=0"),
        (["s", "-noalsologtostderr"], r"log lines always go to standard error: leave out -noalsologtostderr"),
        (["--qqqqqqqq"], r"unknown flag '--qqqqqqqq'\n"),
        (["s", "--schedule=fast"], r"--schedule: invalid choice: 'fast' .*wfbp"),
        (["s", "--bucket_mb=0"], r"--bucket_mb: 0 is not above 0"),
        (["s", "--max_iter=ten"], r"--max_iter: 'ten' is not a whole number"),
        (["s", "--solver"], r"--solver needs a value"),
        (["s", "--max_iter=--"], r"--max_iter needs a value, and '--' is none"),
        (["s", "--weights", "--"], r"--weights needs a value, and '--' is none"),
        (["s", "--calibration_iterations=2147483648"], r"2147483648 is too large; 2147483647 is the most"),
        (["s", "--threads=4097"], r"--threads: 4097 is too large; 4096 is the most"),
        (["s", "--level=-2147483649"], r"-2147483649 is too small; -2147483648 is the least"),
        (["s", "--strict=yes"], r"--strict takes no value"),
        (["s", "t"], r"unexpected argument 't'"),
        (["s", "--solver=t"], r"two files for --solver: 't' and 's'"),
    ],
)
def test_a_mistake_is_reported_in_one_message(words, message):
    with pytest.raises(UsageError, match=message) as error:
        train.parser().parse(words)
    assert error.value.exit_code == 2


def test_input_shapes_name_a_blob_or_every_source():
    assert blob_shape("data=1,3,227,227") == ("data", (1, 3, 227, 227))
    assert blob_shape("3x8x8") == ("", (3, 8, 8))
    flags = time_command.parser().parse(["m", "--input_shape", "data=2,3,4,5", "-input_shape=label=2"])
    assert flags.input_shape == [("data", (2, 3, 4, 5)), ("label", (2,))]
    for wrong in ("data=", "data=1,x", "data=0,3", "=1,2"):
        with pytest.raises(UsageError, match="is not a shape"):
            time_command.parser().parse(["m", f"--input_shape={wrong}"])


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as end:
        train.parser().parse(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for flag in ("solver", "snapshot", "weights", "gpu", "level", "stage", "sigint_effect", "sighup_effect",
                 "schedule", "bucket_mb", "calibration_iterations", "plan_file", "cost_file", "emulate_link",
                 "deterministic", "json_log", "progress",
                 "threads", "dtype", "strict", "max_iter"):  # fmt: skip
        assert f"--{flag}" in text


@pytest.mark.parametrize("name", ["overlap_forward", "hierarchical"])
def test_a_setting_may_be_left_out_or_switched_on_or_off(name):
    values = [getattr(train.parser().parse(["s", *words]), name) for words in ([], [f"--{name}"], [f"-{name}=true"])]
    assert values == [None, True, True]
    off = train.parser().parse(["s", f"--{name}=false"])
    assert getattr(off, name) is False and off.words == [f"--{name}=false", "s"]
    with pytest.raises(UsageError, match=f"--{name} takes no value, but 'no' was given"):
        train.parser().parse(["s", f"--{name}=no"])
