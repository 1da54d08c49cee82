"""benchmarks/auto_steps.py searches without each step of `auto`, and prints a row for each."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from types import SimpleNamespace

import auto_steps
import auto_steps_sides
import pytest

from mgcaffe.comm import AffineCost, Segment, SingleCommunicator, make_plan
from mgcaffe.comm.tuning.drift import WINDOW
from mgcaffe.comm.tuning.settings import TunerSteps
from tests.support.mpirun import run_mpi
from tests.support.paths import ROOT

TRACE = "layer,elements,backward_us\n" + "".join(f"layer{index},{200 * (index + 1)},500\n" for index in range(6))


def test_each_step_is_left_out_once():
    for step in fields(TunerSteps):
        steps = auto_steps.without(step.name)
        assert [each.name for each in fields(TunerSteps) if not getattr(steps, each.name)] == [step.name]


def test_several_steps_are_left_out_at_once():
    assert auto_steps.without("trials+contention") == TunerSteps(trials=False, contention=False)
    assert auto_steps.step_names("trials+contention") == "trials+contention"
    with pytest.raises(argparse.ArgumentTypeError, match="there is no step none"):
        auto_steps.step_names("trials+none")


class _UnnoticedSide:
    """A link whose drift nobody notices."""

    def __init__(self):
        self.link, self.ranks = auto_steps_sides.ChangingLink(AffineCost(1e-3, 0.0)), SingleCommunicator()
        self.plan = make_plan("single", [Segment("layer", 0, 4)], [0.0], AffineCost(1e-3, 0.0), element_bytes=4)

    def search(self, steps):
        return SimpleNamespace(plan=self.plan), 60

    def notice_drift(self, limit):
        assert self.link.factor == auto_steps.SLOWER and limit >= 2 * WINDOW
        return None

    def iterate(self, plan):
        return self.link(16)

    def predicted(self, decision):
        return 1e-3


def test_a_slower_link_that_nobody_notices_keeps_the_plan_and_comes_to_an_end():
    side = _UnnoticedSide()
    row = auto_steps.compare_after_drift(side, 2)
    assert row.same == [True] and row.ratios == [1.0, 1.0] and row.iterations == [4 * WINDOW]
    assert row.errors == [pytest.approx(auto_steps.SLOWER - 1)] and side.link.factor == 1.0


@pytest.mark.mpi
@pytest.mark.slow
def test_a_short_run_prints_a_row_for_each_step(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    options = ["--trace", trace, "--emulate_link", "a=5e-4,b=1e-7", "--time_scale", "1", "--rounds", "2"]
    result = run_mpi([ROOT / "benchmarks/auto_steps.py", *options, "--repeats", "1"], timeout=300)
    assert result.returncode == 0 and not result.hung, result.describe()
    rows = re.findall(r"^\| ([\w ]+?)(?: \(.*?\))? \| ([\d.]+) \| ([\d.]+) \|", result.stdout, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["all steps", *(each.name for each in fields(TunerSteps))]
    assert all(float(milliseconds) > 0 and float(ratio) > 0 for _, milliseconds, ratio in rows)
    assert rows[0][2] == "1.000"
