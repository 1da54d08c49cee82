"""Ranks that stay: what they return, and that a command that ends them fails its test alone."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version

import pytest

from tests.support.standing_ranks import StandingRanks

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_commands_run_one_after_the_other_and_again_after_one_that_ends_the_ranks(tmp_path):
    said = sorted(f"engine {version('mgcaffe')}\n" * 2)  # one rank may print between the other's line and its end
    with closing(StandingRanks(2)) as ranks:
        for _ in range(2):
            result = ranks.run(tmp_path, "--version")
            assert (result.returncode, sorted(result.stdout), result.stderr) == (0, said, "")
        first = ranks.job.process.pid
        with pytest.raises(AssertionError, match=r"engine trainn: exit code 2 (.|\n)*unknown command 'trainn'"):
            ranks.run(tmp_path, "trainn")
        assert sorted(ranks.run(tmp_path, "--version").stdout) == said and ranks.job.process.pid != first
        members = ranks.job.members()
    assert len(members) >= 2 and not ranks.job.members()


def test_a_command_that_takes_too_long_is_ended_with_the_ranks(tmp_path):
    (tmp_path / "solver.prototxt").write_text(
        """max_iter: 1000000000 base_lr: 0.1 lr_policy: "fixed" snapshot_after_train: false solver_mode: CPU net_param {
        layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" } }"""
    )
    with closing(StandingRanks(1)) as ranks:
        with pytest.raises(AssertionError, match=r"engine train solver\.prototxt: hung after"):
            ranks.run(tmp_path, "train", "solver.prototxt", timeout=0.5)
        assert not ranks.job.members()
