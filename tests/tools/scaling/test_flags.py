"""`engine simulate --sync`: what its flags describe, and one message for each mistake."""

from __future__ import annotations

import argparse
import json

import pytest

from mgcaffe.tools import main
from mgcaffe.tools.scaling.flags import bandwidth
from tests.support.paths import GOLDEN

TRACE = str(GOLDEN / "traces" / "googlenet_k80_batch64.csv")
MEASURED = str(GOLDEN / "traces" / "osu_allreduce_10gbe.csv")
TRAINER = ("--iteration_ms=20", "--batch=200", "--parameter_bytes=10000000")


@pytest.fixture
def simulate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main.main(["simulate", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def predictions(simulate, tmp_path):
    def run(*words):
        code, _, errors = simulate(*words, "--json=out.json")
        assert code == 0, errors
        return {
            (row["sync"], row["every"], row["trainers"]): row for row in json.loads((tmp_path / "out.json").read_text())
        }

    return run


def test_every_system_on_the_default_numbers_of_trainers(predictions):
    found = predictions("--sync=all", *TRAINER, "--bandwidth=25gbit", "--sync_servers=2")
    assert len(found) == (4 * 4 + 4) * 7
    assert {trainers for _, _, trainers in found} == {5, 10, 20, 50, 100, 200, 500}
    # The servers' links saturate, and the background does not notice.
    assert found["easgd", 5, 500]["examples_per_s"] == pytest.approx(312_500)
    assert found["shadow_easgd", None, 500]["examples_per_s"] == 500 * 200 / 0.02
    assert found["shadow_easgd", None, 500]["gap"] == pytest.approx(80)
    assert found["ma", 1, 5]["round_s"] == pytest.approx(2 * 4 / 5 * 1e7 * 8 / 25e9)


def test_flags_reach_the_model(predictions):
    def only(*words):
        (row,) = predictions(*words, "--trainers=4").values()
        return row

    measured = ("--sync=MA", *TRAINER, "--sync_ms=60", "--sync_every=5")
    assert only(*measured)["examples_per_s"] == pytest.approx(4 * 200 / 0.032)
    assert only(*measured, "--sync_processor_ms=40")["examples_per_s"] == pytest.approx(4 * 200 / 0.040)
    assert only(*measured, "--hogwild_threads=2")["examples_per_s"] == pytest.approx(4 * 200 / (0.01 + 0.06 / 5))
    assert only(*measured, "--straggler_ms=20")["examples_per_s"] == pytest.approx(4 * 200 / 0.052)
    assert only(*measured, "--spread=0.5")["examples_per_s"] < 4 * 200 / 0.034
    shadow = ("--sync=shadow_ma", *TRAINER, "--sync_ms=60")
    assert only(*shadow)["gap"] == pytest.approx(3)
    assert only(*shadow, "--sync_interval_ms=200")["gap"] == pytest.approx(10)
    groups = ("--sync=ds_sync", *TRAINER, "--bandwidth=8gbit", "--latency_us=1000", "--sync_every=1")
    assert only(*groups)["round_s"] == pytest.approx(2e-3 + 0.01)  # a pair on a ring
    nine = (*groups, "--sync_groups=grid")
    assert predictions(*nine, "--trainers=9")["ds_sync", 1, 9]["round_s"] == pytest.approx(4e-3 + 4 / 3 * 0.01)
    servers = ("--sync=easgd", *TRAINER, "--bandwidth=8gbit", "--latency_us=1000", "--sync_every=1", "--sync_servers=1")
    assert only(*servers)["round_s"] == pytest.approx(0.06)  # four at 20 ms each, after 20 ms of training


def test_a_trace_gives_the_iteration_and_the_size(predictions):
    found = predictions(TRACE, "--sync=none,ma", "--batch=64", "--bandwidth=25gbit", "--trainers=8", "--sync_every=1")
    iteration = 0.30800
    assert found["none", None, 8]["examples_per_s"] == pytest.approx(8 * 64 / iteration, rel=1e-3)
    size = 13_379_136 * 4
    assert found["ma", 1, 8]["round_s"] == pytest.approx(2 * 7 / 8 * size * 8 / 25e9)
    faster = predictions(TRACE, "--sync=none", "--batch=64", "--sync_ms=1", "--trainers=8", "--backward_scale=0.5")
    assert faster["none", None, 8]["examples_per_s"] == pytest.approx(8 * 64 / iteration * 2, rel=1e-3)


def test_the_time_of_a_synchronization_may_be_measured(predictions):
    found = predictions("--sync=ma", *TRAINER, f"--network={MEASURED}", "--trainers=2,4,8", "--sync_every=1")
    assert found["ma", 1, 2]["round_s"] < found["ma", 1, 8]["round_s"]


def test_bandwidths_are_bits_a_second():
    assert [bandwidth(text) for text in ("8gbit", "100mbit", "1.6Gbit")] == [1e9, 12.5e6, 0.2e9]
    for text in ("", "8", "gbit", "0gbit", "8 GB/s"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a speed such as"):
            bandwidth(text)


def test_flags_that_some_of_the_systems_use_are_taken(predictions):
    served = (
        "--sync=ma,easgd",
        "--sync_servers=2",
        "--bandwidth=8gbit",
        "--latency_us=1000",
        "--network=affine:a=1,b=0",
    )
    found = predictions(*served, *TRAINER, "--trainers=2", "--sync_every=1")
    assert found["ma", 1, 2]["round_s"] == 1
    assert found["easgd", 1, 2]["round_s"] == pytest.approx(1e-3 + 0.02)


def test_all_may_stand_in_a_list(predictions):
    every = {sync for sync, _, _ in predictions("--sync=all", *TRAINER, "--sync_ms=1", "--trainers=4")}
    found = predictions("--sync=shadow_ma,ALL", *TRAINER, "--sync_ms=1", "--trainers=4")
    assert {sync for sync, _, _ in found} == every and next(iter(found))[0] == "shadow_ma"


ALL = ("--sync=shadow_ma", *TRAINER)
EASGD = ("--sync=easgd", *TRAINER)
SERVED = ("--sync=none,easgd", *TRAINER, "--sync_servers=2", "--bandwidth=1gbit")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--sync=shadow",), 2, "--sync: unknown 'shadow'"),
        (("--sync=all,shadow",), 2, "--sync: unknown 'shadow'"),
        (("--sync=gradients",), 2, "leave --sync out"),
        (("--sync=ma",), 2, "the time of an iteration is missing"),
        (("--sync=ma", "--iteration_ms=20"), 2, "the number of examples in an iteration is missing"),
        (("--sync=ma", "--iteration_ms=20", "--batch=8"), 2, "the size of the parameters is missing"),
        (ALL, 2, "what a synchronization takes is missing"),
        ((*ALL, "--sync_ms=1", "--network=affine:a=1,b=0"), 2, "both say what a synchronization takes"),
        ((*EASGD, "--sync_servers=2"), 2, "--sync_servers needs the speed of their links"),
        ((*ALL, "--network=affine:a=1,b=0", "--bandwidth=1mbit", "--latency_us=9"), 2, "--bandwidth would not be used"),
        ((*ALL, "--sync_ms=10", "--bandwidth=1mbit"), 2, "--bandwidth would not be used: --network or --sync_ms"),
        ((*ALL, "--sync_ms=10", "--latency_us=9"), 2, "--latency_us would not be used: it goes with --bandwidth"),
        ((*ALL, "--bandwidth=1gbit", "--sync_servers=2"), 2, "--sync_servers would not be used: --sync names neither"),
        ((*ALL, "--sync_ms=10", "--sync_groups=grid"), 2, "--sync_groups would not be used: --sync does not name"),
        ((*ALL, "--sync_ms=10", "--sync_every=5"), 2, "--sync_every would not be used: --sync names nothing in the"),
        ((*EASGD, "--sync_ms=10", "--sync_interval_ms=5"), 2, "--sync_interval_ms would not be used: --sync names"),
        ((*SERVED, "--sync_ms=10"), 2, "--sync_ms would not be used: trainers exchange with servers alone"),
        ((*SERVED, "--network=affine:a=1,b=0"), 2, "--network would not be used: trainers exchange with servers"),
        ((*ALL, "--sync_ms=10", "--backward_scale=2"), 2, "--backward_scale would not be used: the time of an"),
        ((TRACE, *ALL, "--sync_ms=10", "--forward_ratio=2"), 2, "--forward_ratio would not be used: the time of an"),
        ((*ALL, "--network=affine:a=0,b=0"), 2, "a background round takes no time"),
        ((*ALL, "--bandwidth=25"), 2, "'25' is not a speed such as 25gbit"),
        ((*ALL, "--sync_ms=1", "--spread=2"), 2, "2 is above 1"),
        ((*ALL, "--sync_ms=1", "--straggler_ms=-1"), 2, "-1 is below 0"),
        ((*ALL, "--sync_ms=1", "--latency_us=x"), 2, "'x' is not a number"),
        ((*ALL, "--sync_ms=1", "--sync_every=0"), 2, "0 is too small"),
        ((*ALL, "--sync_ms=1", "--sync_every="), 2, "no number is given"),
        ((*ALL, "--sync_ms=1", "--workers=8"), 2, "--workers goes with schedules of gradients"),
        ((TRACE, "--network=affine:a=1,b=0", "--trainers=8"), 2, "--trainers goes with --sync"),
        (("--sync=ds_sync", *TRAINER, "--sync_ms=1", "--sync_groups=grid"), 2, "10 ranks make no square grid"),
        ((*ALL, "--run=absent.json"), 65, "cannot read absent.json"),
        ((TRACE, "--network=affine:a=1,b=0", "--run=x.json"), 2, "--run goes with --sync"),
        ((*ALL, f"--network={MEASURED}"), 65, "was measured with 2, 4, 8 workers, not with 5"),
        ((*ALL, "--sync_ms=1", "--csv=absent/out.csv"), 73, "cannot write absent/out.csv"),
    ],
)
def test_mistakes_are_reported_in_one_message(simulate, words, code, message):
    result = simulate(*words)
    assert result[0] == code and message in result[2]
    assert "Traceback" not in result[2]
