"""The cost of an all-reduce by algorithm and number of workers, and how users write it."""

import json

import pytest

from mgcaffe.comm.planning.cost import AffineCost, AllReduceCost
from mgcaffe.comm.planning.networks import ALGORITHMS, Link, parse_network
from mgcaffe.errors import CommError, DataError, UsageError
from tests.support.paths import GOLDEN

OSU = GOLDEN / "traces" / "osu_allreduce_10gbe.csv"
LINK = Link(alpha=3.0, beta=5.0, gamma=7.0)


@pytest.mark.parametrize(
    ("algorithm", "a", "b"),
    [
        ("ring", 2 * 7 * 3, 2 * 7 / 8 * 5 + 7 / 8 * 7),
        ("recursive_doubling", 3 * 3, 3 * (5 + 7)),
        ("recursive_halving_doubling", 2 * 3 * 3, 2 * 5 - (2 * 5 + 7) / 8 + 7),
        ("binary_tree", 2 * 3 * 3, 3 * (2 * 5 + 7)),
        ("double_binary_trees", 2 * 3 * 3, 5 + 7),
    ],
)
def test_the_papers_table_of_collectives_at_8_workers(algorithm, a, b):
    cost = ALGORITHMS[algorithm](8, LINK)
    assert (cost.a, cost.b) == pytest.approx((a, b))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_worker_sends_nothing_and_more_never_cost_less(algorithm):
    assert ALGORITHMS[algorithm](1, LINK) == AffineCost(0, 0)
    costs = [ALGORITHMS[algorithm](workers, LINK) for workers in (2, 3, 4, 5, 63, 64, 2048)]
    assert [cost.a for cost in costs] == sorted(cost.a for cost in costs)
    assert [cost.b for cost in costs] == sorted(cost.b for cost in costs)


def test_a_network_is_read_as_users_write_it():
    ring = parse_network("ring:alpha=45.25e-6,beta=9.93e-10,gamma=2.5e-9")
    assert ring.cost(64) == AffineCost(2 * 63 * 45.25e-6, 2 * 63 / 64 * 9.93e-10 + 63 / 64 * 2.5e-9)
    assert ring.name == "ring"
    trees = parse_network("double-binary-trees: alpha=1, beta=2")
    assert trees.cost(4) == AffineCost(4, 2)
    line = parse_network("affine:a=1,b=2")
    assert line.cost(2) == line.cost(99) == AffineCost(1, 2)
    assert line.cost(1) == AffineCost(0, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rng:alpha=1,beta=1", "unknown network 'rng'\n  did you mean 'ring'?"),
        ("", "unknown network ''"),
        ("ring", "alpha and beta missing"),
        ("ring:alpha=1", "beta missing\n  it takes alpha=...,beta=...,gamma=..."),
        ("ring:alpha=1,beta=fast", "beta is 'fast', which is not a number"),
        ("ring:alpha=1,beta=-2", "beta is -2 and must be at least 0"),
        ("ring:alpha=1,beta=nan", "beta is nan and must be at least 0"),
        ("ring:alpha=1,beta=2,beta=3", "beta is given twice"),
        ("ring:alpha=1,beta=2,delta=3", "'delta=3' is not understood"),
        ("ring:alpha=1,beta", "'beta' is not understood"),
        ("affine:a=1", "b missing"),
    ],
)
def test_what_is_no_network_is_reported_in_one_message(text, words):
    with pytest.raises(UsageError) as caught:
        parse_network(text)
    assert words in str(caught.value)


def test_measured_curves_hold_at_the_workers_that_they_were_measured_with():
    network = parse_network(str(OSU))
    curve = network.cost(8)
    assert isinstance(curve, AllReduceCost)
    assert curve(12288) > 3.5 * curve(8192)
    assert network.cost(1) == AffineCost(0, 0)
    with pytest.raises(CommError, match="was measured with 2, 4, 8 workers, not with 16"):
        network.cost(16)


def test_a_cost_is_read_from_json(tmp_path):
    path = tmp_path / "cost.json"
    cost = AllReduceCost([(1024, 1e-4), (2048, 3e-4)])
    path.write_text(json.dumps(cost.to_json()))
    assert parse_network(str(path)).cost(5) == cost


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.json", None, "cannot read measured costs: No such file"),
        ("cost.json", "{}", "not the cost of an all-reduce"),
        ("cost.json", "{", "Expecting property name"),
        ("cost.csv", "nodes,bytes\n1,2\n", "there is no column 'latency_us'"),
        ("cost.csv", "# x\nnodes,bytes,latency_us\n2,2048,7\n2,4096,\n", ":4:1: 2, 4096,  should be numbers"),
        ("cost.csv", "nodes,bytes,latency_us\n2,4096\n", ":2:1: 2 values for 3 columns"),
        *(
            ("cost.csv", f"nodes,bytes,latency_us\n2,4096,7\n2,8192,{latency}\n", ":3:1: an all-reduce of 8192 bytes")
            for latency in ("inf", "nan", "-1", "0", "1e300")
        ),
        ("cost.csv", "nodes,bytes,latency_us\n2,inf,7\n", ":2:1: an all-reduce of inf bytes among 2 nodes"),
        (
            "cost.json",
            '{"kind": "affine", "a": Infinity, "b": 1}',
            ":1:25: not the cost of an all-reduce: a should be a number from 0 to 1e+06",
        ),
        ("cost.json", '{"kind": "curve", "points": [[1024, 1], [2048, NaN]]}', "points[1][1] should be a number"),
        ("cost.json", '{"kind": "curve", "points": [[1024, -1]]}', "1024.0 bytes in -1.0 s makes no sense"),
        ("cost.json", '{"kind": "curve", "points": [[1024]]}', "points[0] should be a size in bytes and a time"),
        ("cost.json", '{"all_reduce_costs": []}', "the list of them is empty"),
        ("cost.csv", "nodes,bytes,latency_us\n2,4,1\n", "no all-reduce of 1024 bytes or more"),
    ],
)
def test_what_is_no_measurement_says_where(tmp_path, name, text, words):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError) as caught:
        parse_network(str(path))
    assert words in str(caught.value) and str(path) in str(caught.value)
