"""Advice on DistributedDataParallel, its real buckets, and records of it: two ranks of gloo, each a process."""

import json
import sys

import pytest

from mgcaffe.tools.main import main
from mgcaffe.tools.report.data import read_run
from mgcaffe.tools.report.spans import read_timeline
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

MESSAGES = {
    "module": "advise needs a module that DistributedDataParallel wraps, and this is of type Sequential",
    "alone": "with one rank nothing is communicated",
    "batch": "on rank 1: the module fails on the sample batch: RuntimeError",
    "kind": "sample_batch is of type str",
    "lacking": "no gradient from the sample batch for '0.bias', '1.weight', '1.bias'",
    "module on one": "on rank 1: advise needs a module that DistributedDataParallel wraps, and this",
    "kind on one": "on rank 1: sample_batch is of type str",
    "ignored on one": "on rank 1: DistributedDataParallel ignores all parameters",
    "passes on one": "on rank 1: passes=1 are too few",
    "other passes": "advise was called with passes=8 on rank 1, and 16 on 0",
    "passes": "passes=1 are too few",
    "trials": "trials run over the link that is there",
    "hook": "it has a communication hook already",
    "buckets": "buckets are those of DistributedDataParallel, and this is of type Sequential",
    "recorder": "RunRecorder needs a MergedGradientParallel or a DistributedDataParallel",
    "iterations": "timeline_iterations=(8, 8) are none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def said(folder):
    """What each rank has said."""
    with RunningJob([sys.executable, "-m", "tests.support.programs.recorded_ranks", folder], cwd=ROOT) as job:
        result = job.end(100)
    assert result.code == 0 and not result.left_behind, result.describe()
    outcome = json.loads(result.stdout)
    assert outcome["codes"] == [0, 0], outcome["errors"]
    return outcome["said"]


def test_advice_leaves_the_module_as_it_was(said):
    for each in said:
        found = each["give_advice"]
        assert set(found["untouched"].values()) == {True}, found["untouched"]
        assert found["trains_on"]


def test_advice_is_a_table_of_bucket_sizes(said):
    text = said[0]["give_advice"]["text"]
    assert text == said[1]["give_advice"]["text"]
    assert "EMULATED LINK a=2e-4,b=1e-9" in text
    assert "Sequential in DistributedDataParallel on 2 ranks over gloo: 1,333 parameters" in text
    for row in ("present: the default", "bucket_cap_mb=1 ", "bucket_cap_mb=100", "best of ", "mgwfbp", "auto ("):
        assert row in text
    assert said[0]["give_advice"]["present"] == "the default"


def test_all_ranks_get_the_same_figures_of_all_bucket_sizes(said):
    for each in said:
        found = each["compare_sizes"]
        assert found["caps"] == [[1.0, 2], [5.0, 1], [25.0, 1], [100.0, 1]]
        assert found["present"] == ["bucket_cap_mb=0.5", 3]
        assert found["bytes"] == [24 * 66048, 24 * 66048]
        assert found["ordered"] and found["planned"] and found["times"] and found["same"]


def test_bucket_sizes_are_tried_if_asked_for(said):
    for each in said:
        found = each["try_buckets"]
        assert found["measured"] and found["best"] and found["column"] and found["warned"]
        assert set(found["untouched"].values()) == {True}, found["untouched"]


@pytest.mark.parametrize("case", ["default", "capped", "views", "unused", "types", "branches"])
def test_the_rules_give_the_buckets_that_are_reduced(said, case):
    for each in said:
        assert each["real_buckets"][case] == "equal"


def test_recorded_buckets_have_the_bits_of_those_that_are_not(said):
    for each in said:
        found = each["same_bits"]
        for name in ("default", "views"):
            assert found[name] and found[f"{name} times"] and found[f"{name} bytes"]
            assert found[f"{name} reports"] == 5


def test_on_a_device_buckets_are_reported_once_it_has_reached_them(said):
    for each in said:
        found = each["on_a_device"]
        # Whether buckets are settled must not depend on how far a rank's device is: ranks meet after that.
        assert found["early"] == [0, True] and found["late"] == [1, 6, 6]
        assert found["times"] and found["clock"]


@pytest.mark.parametrize("name", ["ddp", "ours"])
def test_a_report_shows_ddp_beside_ours(said, folder, name, capsys):
    assert [each["record"][name] for each in said] == [0, 0]
    log = read_run(folder / f"{name}.json")
    assert len(log.iterations) == 18 and "loss" not in log.iterations[0]
    timeline = read_timeline(folder / f"{name}.timeline.json")
    schedule = {"ddp": "DistributedDataParallel", "ours": "wfbp"}[name]
    assert timeline.plan["schedule"] == schedule == log.plan["plan"]
    assert len(timeline.groups()) == log.plan["groups"] == {"ddp": 3, "ours": 48}[name]
    assert sum(group.bytes for group in timeline.groups()) == 24 * 66048
    assert {box.rank for box in timeline.allreduces()} == {0, 1}
    assert main(["report", str(folder / f"{name}.json")]) == 0
    page = (folder / f"{name}.html").read_text()
    assert schedule in page and "23.bias" in page
    capsys.readouterr()


@pytest.mark.parametrize("case", MESSAGES)
def test_what_cannot_be_advised_on_or_recorded_is_said_on_all_ranks(said, case):
    for each in said:
        assert MESSAGES[case] in each["errors"][case]
