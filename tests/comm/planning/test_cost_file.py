import json
from dataclasses import replace

import pytest

from mgcaffe.comm.planning.cost import AllReduceCost, AllReduceCosts
from mgcaffe.comm.planning.cost_file import CostEntry, CostKey, find_costs, find_key, read_cost_file, write_cost_file
from mgcaffe.comm.planning.networks import read_network
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError

pytestmark = pytest.mark.usefixtures("both_transports")

KEY = CostKey({"node1": 2, "node2": 2}, 4, "Open MPI v5.0.11", "host memory, float32")


def costs(factor=1.0):
    return AllReduceCosts(
        *(AllReduceCost([(1024, way * factor * 1e-4), (4096, way * factor * 2e-4)]) for way in (3, 2, 1))
    )


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "costs.json"
    assert read_cost_file(path) == []
    write_cost_file(path, [], CostEntry(KEY, costs()))
    entries = read_cost_file(path)
    assert entries == [CostEntry(KEY, costs())]
    assert find_costs(entries, KEY) == (costs(), "")
    (entry,) = json.loads(path.read_text())["all_reduce_costs"]
    assert list(entry) == ["hosts", "ranks", "mpi", "transport", "fit", "polled", "busy_polled", "blocking"]
    fit = entry["fit"]
    assert set(fit) == {"a", "b", "r2", "mean_error", "worst_error", "worst_bytes"}


def test_files_with_the_earlier_name_of_a_curve_are_read(tmp_path):
    path = tmp_path / "costs.json"
    write_cost_file(path, [], CostEntry(KEY, costs()))
    path.write_text(path.read_text().replace('"busy_polled"', '"hurried"'))
    assert read_cost_file(path) == [CostEntry(KEY, costs())]


def test_a_new_measurement_replaces_that_of_its_key_and_leaves_the_others(tmp_path):
    path = tmp_path / "costs.json"
    other = replace(KEY, ranks=2, hosts={"node1": 2})
    write_cost_file(path, [], CostEntry(KEY, costs()))
    write_cost_file(path, read_cost_file(path), CostEntry(other, costs()))
    write_cost_file(path, read_cost_file(path), CostEntry(KEY, costs(2.0)))
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing unfinished beside it
    assert read_cost_file(path) == [CostEntry(other, costs()), CostEntry(KEY, costs(2.0))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hosts": {"node1": 4}}, "hosts node1 x 4 there, node1 x 2, node2 x 2 here"),
        ({"ranks": 8}, "ranks 8 there, 4 here"),
        ({"mpi": "MPICH 4"}, "mpi 'MPICH 4' there, 'Open MPI v5.0.11' here"),
        ({"transport": "host memory, float64"}, "transport 'host memory, float64' there, 'host memory, float32' here"),
    ],
)
def test_a_measurement_of_something_else_is_not_used_and_the_difference_reported(change, said):
    far = CostEntry(CostKey({"x": 1}, 1, "y", "z"), costs())
    found, difference = find_costs([far, CostEntry(replace(KEY, **change), costs())], KEY)
    assert found is None and difference == said


def test_an_empty_file_is_said_to_be_one():
    assert find_costs([], KEY) == (None, "which held none")


def test_the_key_counts_the_ranks_of_each_host_and_is_the_same_everywhere(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_pml", "ob1")

    def work(ranks):
        ranks.host = f"node{ranks.rank // 2}"
        return find_key(ranks, "host memory, float32")

    keys = run_ranks(3, work)
    assert keys[0] == keys[1] == keys[2]
    assert keys[0].hosts == {"node0": 2, "node1": 1} and keys[0].ranks == 3
    assert keys[0].transport == "host memory, float32; OMPI_MCA_pml=ob1"
    assert find_key(SingleCommunicator(), "").mpi == "none"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"all_reduce_costs": [{}]}',
        '{"all_reduce_costs": 3}',
        '{"kind": "affine", "a": 1, "b": 1}',
        '{"all_reduce_costs": [{"hosts": {"a": Infinity}}]}',
        '{"all_reduce_costs": ' + 2000 * "[" + 2000 * "]" + "}",
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(CommError, match=r"costs\.json(:1:\d+)?: cost file: these are no") as error:
        read_cost_file(tmp_path / "costs.json")
    assert error.value.exit_code == 65


def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(CommError, match="cannot write") as error:
        write_cost_file(tmp_path / "absent" / "costs.json", [], CostEntry(KEY, costs()))
    assert error.value.exit_code == 73


def test_plans_and_simulations_read_the_same_files(tmp_path):
    path = tmp_path / "costs.json"
    write_cost_file(path, [], CostEntry(KEY, costs()))
    network = read_network(path)
    assert network.cost(4) == costs().polled
    with pytest.raises(CommError, match="measured with 4 workers, not with 8"):
        network.cost(8)
