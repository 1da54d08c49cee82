"""Predictions of every system on any number of trainers, and the tables of docs/shadowsync.md."""

import re

import pytest

from mgcaffe.comm.planning.networks import AlgorithmNetwork, Link, parse_network
from mgcaffe.comm.replicas.scaling import by_system, scale, system_name
from mgcaffe.comm.replicas.workload import SYNCS, Exchange, Training
from tests.support.paths import ROOT

COUNTS = (5, 10, 20, 50, 100, 200, 500)
PAGE = (ROOT / "docs" / "shadowsync.md").read_text(encoding="utf-8")
BANDWIDTH = 25e9 / 8
RING = AlgorithmNetwork("ring", Link(20e-6, 1 / BANDWIDTH))


def test_the_foreground_comes_with_each_k_and_the_rest_once():
    training = Training(0.02, 200)
    exchange = Exchange(1000, parse_network("affine:a=0.06,b=0"))
    found = scale(SYNCS, [1, 5], [2, 4], training, exchange)
    assert [each.trainers for each in found] == [2] * 12 + [4] * 12
    names = [system_name(each) for each in found[:12]]
    assert names == [
        "none", "ma every 1", "ma every 5", "bmuf every 1", "bmuf every 5", "easgd every 1", "easgd every 5",
        "ds_sync every 1", "ds_sync every 5", "shadow_ma", "shadow_bmuf", "shadow_easgd",
    ]  # fmt: skip
    assert list(by_system(found)) == [
        "none", "ma, bmuf, easgd, ds_sync every 1", "ma, bmuf, easgd, ds_sync every 5",
        "shadow_ma, shadow_bmuf, shadow_easgd",
    ]  # fmt: skip


def test_what_has_no_formula_is_simulated():
    exchange = Exchange(10**7, RING, servers=2, bandwidth=BANDWIDTH)
    found = scale(SYNCS, [5], [4], Training(0.02, 200, spread=0.3), exchange)
    assert [each.sync for each in found if each.is_simulated] == ["easgd", "ds_sync"]


def tables():
    """The rows of each table of predictions on the page: name -> cells."""
    blocks = re.findall(r"\| examples/s[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", PAGE)
    return [{cells[0]: cells[1:] for cells in map(_cells, block.splitlines())} for block in blocks]


def _cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("table", "exchange"),
    [
        (0, Exchange(1_903_940, RING, processor_s=2e-3, servers=2, bandwidth=BANDWIDTH, latency_s=20e-6)),
        (1, Exchange(1_903_940, RING, processor_s=2e-3)),
    ],
)
def test_the_tables_of_the_page_are_what_the_command_prints(table, exchange):
    systems = {}
    for each in scale(SYNCS, [1, 5, 30, 100], COUNTS, Training(0.024, 200, threads=24), exchange):
        systems.setdefault(system_name(each), []).append(each)
    above = ""
    for name, cells in tables()[table].items():
        if name == "its gap":
            assert [float(cell) for cell in cells] == pytest.approx([each.gap for each in systems[above]], rel=0.02)
        else:
            speeds = [each.examples_per_s / 1e6 for each in systems[name]]
            assert [float(cell.removesuffix(" M")) for cell in cells] == pytest.approx(speeds, rel=0.01), name
        above = name
    assert above == "its gap"
