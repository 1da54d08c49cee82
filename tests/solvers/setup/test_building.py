"""What a solver drives, built as its fields say: states of nets, weights to start from, test nets."""

import os
import threading

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.errors import PrototxtError, SolverError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.events.snapshots import WeightsCopied
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.setup.building import choose_device
from tests.support.solverkit import (
    CLASSIFIER,
    LEAST_SQUARES,
    Recorder,
    data_layer,
    make_solver,
    train_ranks,
    write_data,
)

DROPOUT = LEAST_SQUARES.replace('bottom: "data"', 'bottom: "dropped"', 1)
DROP = 'layer { name: "drop" type: "Dropout" bottom: "data" top: "dropped" }\n'
PLAIN = 'layer { name: "drop" type: "Power" bottom: "data" top: "dropped" }\n'
BLOBS = "blobs { shape { dim: 1 dim: 4 } data: 1 data: 2 data: 3 data: 4 } blobs { shape { dim: 1 } data: 5 }"


@pytest.fixture
def data(tmp_path):
    return data_layer(write_data(tmp_path), 5)


def trained(net, fields, folder):
    recorder = Recorder()
    with make_solver(net, f"max_iter: 3 {fields}", folder, recorder=recorder) as solver:
        solver.solve()
        return solver.net.arena.data.tolist(), [event.text for event in recorder.of(Warned)]


@pytest.mark.parametrize("state", ["train_state { phase: TEST }", "", "recompute: 'auto' train_state { phase: TEST }"])
def test_a_training_net_may_be_in_the_test_phase(data, tmp_path, state):
    own = "" if state else "state { phase: TEST }\n"
    weights, warnings = trained(own + data + DROP + DROPOUT, state, tmp_path)
    assert any("the training net is in the TEST phase" in text for text in warnings)
    assert any("recompute has no effect" in text for text in warnings) == ("recompute" in state)
    expected, none = trained(data + PLAIN + DROPOUT, "", tmp_path)
    assert weights == expected and not none
    assert trained(data + DROP + DROPOUT, "", tmp_path)[0] != weights


def test_a_test_net_may_be_in_the_training_phase(data, tmp_path):
    scores, warnings = [], []
    for own, state in (("", ""), ("", "test_state { }"), ("", "test_state { phase: TRAIN }"), ("phase: TRAIN", "")):
        recorder = Recorder()
        fields = f"max_iter: 1 test_iter: 2 test_interval: 5 {state}"
        with make_solver(f"state {{ {own} }}\n" + data + DROP + DROPOUT, fields, tmp_path, recorder=recorder) as solver:
            solver.solve()
            # It is not run backward, whatever its phase, so it keeps nothing for that.
            assert not any(node.needs_backward or node.layer.backward_follows for node in solver.test_nets[0].nodes)
            assert any(node.needs_backward for node in solver.net.nodes)
        scores.append(recorder.of(Tested)[0].scores)
        warnings.append(["test net #0 is in the TRAIN phase" in event.text for event in recorder.of(Warned)])
    assert scores[0] == scores[1] != scores[2] == scores[3]  # Dropout sets values to 0 in the training phase alone
    assert warnings == [[], [], [True], [True]]


def test_a_test_net_in_the_training_phase_that_keeps_its_blobs_can_be_run_backward(data, tmp_path):
    fields = "test_iter: 1 test_interval: 5 test_state { phase: TRAIN }"
    with make_solver(data + DROP + DROPOUT, fields, tmp_path, keep_blobs=True) as solver:
        solver.test_nets[0].forward_backward()


def test_ranks_train_in_the_test_phase_what_one_rank_trains(tmp_path):
    """The divisor of a loss is that of all ranks, whatever the phase; test nets count for themselves."""
    layers = CLASSIFIER.replace("ignore_label: 99", "normalization: NONE")
    fields = "train_state { phase: TEST } comm_param { schedule: SINGLE }"
    (alone, *_), *_ = train_ranks(1, tmp_path, fields, iterations=3, layers=layers)
    for weights, *_ in train_ranks(2, tmp_path, fields, iterations=3, layers=layers):
        torch.testing.assert_close(weights, alone)


def test_test_nets_are_told_of_one_rank(tmp_path):
    net = data_layer(write_data(tmp_path), 5) + LEAST_SQUARES

    def contexts(communicator):
        fields = "test_iter: 2 test_interval: 5 test_state { phase: TRAIN }"
        with make_solver(net, fields, tmp_path, communicator=communicator) as solver:
            context = solver.test_nets[0].context
            return solver.net.context.solver_ranks, context.solver_ranks, context.sum_over_ranks(3.0)

    assert run_ranks(2, contexts) == [(2, 1, 3.0)] * 2


def test_a_level_of_zero_replaces_the_nets_own(data, tmp_path):
    net = "state { level: 2 }\n" + data + PLAIN + DROPOUT
    net += 'layer { name: "deep" type: "Silence" bottom: "dropped" include { min_level: 1 } }\n'
    for fields, expected in (("", True), ("train_state { level: 0 }", False)):
        with make_solver(net, fields, tmp_path) as solver:
            assert ("deep" in [layer.name for layer in solver.net.layers]) == expected


def test_weights_of_a_net_are_those_that_training_begins_with(data, tmp_path):
    net = data + LEAST_SQUARES.replace("inner_product_param", f"{BLOBS} inner_product_param")
    with make_solver(net, "test_iter: 1 test_interval: 5", tmp_path) as solver:
        assert solver.net.arena.data.tolist() == [1, 2, 3, 4, 5]
        for mine, trained_one in zip(solver.test_nets[0].parameters, solver.net.parameters, strict=True):
            assert mine.data is trained_one.data
    with make_solver(net, "comm_param { hogwild_threads: 2 }", tmp_path, dtype=torch.float32) as solver:
        assert solver.net.arena.data.tolist() == [1, 2, 3, 4, 5]


def test_names_of_weights_may_have_blanks_around_them(data, tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        with make_solver(data + LEAST_SQUARES, f'snapshot_prefix: "{tmp_path}/{name}"', tmp_path) as solver:
            solver.net.arena.data.fill_(value)
            solver.snapshot()
    recorder = Recorder()
    first, second = (f"{tmp_path}/{name}_iter_0.caffemodel" for name in "ab")
    with make_solver(data + LEAST_SQUARES, f'weights: " {first},  {second} ,"', tmp_path, recorder=recorder) as solver:
        assert solver.net.arena.data.tolist() == [2.0] * 5
    assert [event.path for event in recorder.of(WeightsCopied)] == [first, second]


def test_weights_of_layers_that_the_test_net_alone_has_are_copied_too(data, tmp_path):
    own = LEAST_SQUARES.replace("ip", "own").replace("loss", "own_loss")
    with make_solver(data + own, "", tmp_path) as solver:
        solver.net.arena.data.fill_(2)
        solver.snapshot()
    net = data + LEAST_SQUARES + own.replace('" type:', '" include { phase: TEST } type:')
    fields = f'test_iter: 1 test_interval: 5 weights: "{tmp_path}/net_iter_0.caffemodel"'
    with make_solver(net, fields, tmp_path) as solver:
        assert solver.test_nets[0].arena.data.tolist() == [2] * 5
        assert 2 not in solver.net.arena.data.tolist()


def test_weights_that_are_not_there_are_located(data, tmp_path):
    text = f'base_lr: 1 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "{tmp_path}/net"\nweights: ""\nweights: " b"\n'
    source = parse_solver(f"{text} net_param {{ {data + LEAST_SQUARES} }}", file="s.prototxt")
    with pytest.raises(PrototxtError, match=r"weights 'b' do not exist") as caught:
        Solver(source.param, source=source)
    assert str(caught.value.location) == "s.prototxt:3:1"
    assert "paths are relative to the folder where the command runs" in (caught.value.hint or "")


def test_weights_whose_name_is_not_utf8_are_found_by_its_bytes(data, tmp_path):
    with make_solver(data + LEAST_SQUARES, f'snapshot_prefix: "{tmp_path}/a"', tmp_path) as solver:
        solver.net.arena.data.fill_(3)
        solver.snapshot()
    (tmp_path / "a_iter_0.caffemodel").rename(tmp_path / os.fsdecode(b"\xc4\xe3.caffemodel"))
    recorder = Recorder()
    fields = rf'weights: "{tmp_path}/\xc4\xe3.caffemodel"'
    with make_solver(data + LEAST_SQUARES, fields, tmp_path, recorder=recorder) as solver:
        assert solver.net.arena.data.tolist() == [3.0] * 5
    assert [event.path for event in recorder.of(WeightsCopied)] == [f"{tmp_path}/\xc4\xe3.caffemodel"]


@pytest.mark.parametrize(("count", "sees"), [(1, "1 GPU\n  choose 0, by"), (2, "2 GPUs\n  choose one from 0 to 1")])
def test_a_gpu_that_does_not_exist_is_refused(data, tmp_path, monkeypatch, count, sees):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    for number in (count, -1):
        with pytest.raises(SolverError, match=f"device_id is {number}, and PyTorch sees {sees}"):
            make_solver(data + LEAST_SQUARES, f"solver_mode: GPU device_id: {number}", tmp_path)


def test_one_rank_takes_the_gpu_of_device_id_and_several_take_one_each(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    param = parse_solver("solver_mode: GPU device_id: 1").param
    assert choose_device(param, SingleCommunicator(), print) == torch.device("cuda", 1)
    param.device_id = 0
    assert choose_device(param, SingleCommunicator(), print) == torch.device("cuda", 0)
    devices = run_ranks(3, lambda communicator: choose_device(param, communicator, print))
    assert devices == [torch.device("cuda", number) for number in (0, 1, 0)]
    assert run_ranks(2, lambda communicator: choose_device(param, communicator, print))[1] == torch.device("cuda", 1)


def test_a_solver_that_is_closed_leaves_no_thread_of_a_test_nets_data(data, tmp_path):
    before = set(threading.enumerate())
    with make_solver(data + LEAST_SQUARES, "max_iter: 1 test_iter: 1 test_interval: 1", tmp_path) as solver:
        solver.solve()
        started = set(threading.enumerate()) - before
    assert [thread.name for thread in started].count("prefetch") == 2 and set(threading.enumerate()) <= before
