"""What several workers cannot do is refused by name, with its place."""

from types import SimpleNamespace

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import NetError, SolverError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers.setup.hogwild import check_net_of_workers, check_workers
from tests.support.solverkit import CLASSIFIER, data_layer, make_solver, write_data

MEMORY = """layer { name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 2 channels: 4 height: 1 width: 1 } }
"""
INPUT = """layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 4 } shape { dim: 2 } } }
"""


def check(text, ranks=1):
    source = parse_solver(text, file="s.prototxt")
    return check_workers(source.param, source, ranks)


@pytest.mark.parametrize("text", ["", "comm_param { hogwild_threads: 1 }", "comm_param { hogwild_threads: 4 }"])
def test_any_number_from_one_passes(text):
    assert check(f"max_iter: 1 {text}") == []


def test_a_lock_for_one_worker_is_warned_about():
    assert check("comm_param { hogwild_lock: true }") == ["hogwild_lock has no effect: hogwild_threads is 1"]


@pytest.mark.parametrize("count", [0, -2])
def test_no_worker_is_refused(count):
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:3: hogwild_threads is {count} and must be at least 1"):
        check(f"comm_param {{\n  hogwild_threads: {count}\n}}")


def test_ranks_in_step_are_refused():
    with pytest.raises(SolverError, match="2 ranks average their gradients") as failure:
        check("comm_param { hogwild_threads: 2 }", ranks=2)
    assert "--sync=shadow_ma" in failure.value.hint


def test_ranks_in_step_are_refused_on_every_rank(tmp_path):
    net = data_layer(write_data(tmp_path), 2) + CLASSIFIER

    def rank(communicator):
        with pytest.raises(SolverError, match="hogwild_threads is 2, and 2 ranks"):
            make_solver(net, "comm_param { hogwild_threads: 2 }", tmp_path, communicator=communicator)

    run_ranks(2, rank)


def test_a_snapshot_where_the_loss_is_not_finite_is_refused():
    with pytest.raises(SolverError, match=r"s\.prototxt:1:35: nan_effect is SNAPSHOT, and hogwild_threads is 2"):
        check("comm_param { hogwild_threads: 2 } nan_effect: SNAPSHOT")


@pytest.mark.parametrize("layer", [MEMORY, INPUT], ids=["MemoryData", "Input"])
def test_layers_that_a_program_fills_are_refused(tmp_path, layer):
    with pytest.raises(NetError, match=r"this layer's values are given to one net by a program.*\(layer 'data'"):
        make_solver(layer + CLASSIFIER, "comm_param { hogwild_threads: 2 }", tmp_path)
    make_solver(layer + CLASSIFIER, "", tmp_path).close()


def test_a_gpu_is_refused():
    source = parse_solver("comm_param { hogwild_threads: 2 }", file="s.prototxt")
    net = SimpleNamespace(device=torch.device("cuda", 0), layers=[])
    with pytest.raises(SolverError, match=r"s\.prototxt:1:14: hogwild_threads is 2, and training runs on a GPU"):
        check_net_of_workers(source.param, source, net)


def test_more_workers_than_any_machine_has_cores_for_are_refused_before_their_nets_are_built():
    source = parse_solver("comm_param { hogwild_threads: 100000 }", file="solver.prototxt")
    with pytest.raises(SolverError, match="hogwild_threads is 100000, and a trainer on this machine has at most"):
        check_workers(source.param, source, 1)
