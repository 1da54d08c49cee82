"""The module functions: modes, seeds, ranks, logs, and the list of layers."""

import logging

import pytest
import torch

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import UsageError
from mgcaffe.pycaffe import mode


def test_the_list_of_layers_names_them_all():
    types = caffe.layer_type_list()
    assert types == sorted(types)
    assert {"Convolution", "InnerProduct", "Python", "SoftmaxWithLoss", "Input", "Data"} <= set(types)


def test_phases_are_caffes_numbers():
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)


def test_modes_choose_the_device(monkeypatch):
    assert mode.device().type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    caffe.set_device(1)
    caffe.set_mode_gpu()
    assert mode.device() == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="no GPU 2"):
        caffe.set_device(2)
    caffe.set_device(0)
    caffe.set_mode_cpu()
    assert mode.device().type == "cpu"


def test_gpu_mode_without_a_gpu_warns(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    caffe.set_mode_gpu()
    assert "nets run on the CPU" in caplog.text
    assert mode.device().type == "cpu"


def test_one_solver_is_all_that_a_process_has():
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    caffe.set_multiprocess(True)
    assert (caffe.solver_count(), caffe.solver_rank(), caffe.has_nccl()) == (1, 0, False)
    for refused in (
        lambda: caffe.set_solver_count(2),
        lambda: caffe.set_solver_rank(1),
        lambda: caffe.NCCL(None, ""),
        caffe.NCCL.new_uid,
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert "mpirun -n RANKS engine train" in caught.value.hint


def test_seeds_differ_from_net_to_net_and_repeat():
    assert mode.next_seed() is None
    caffe.set_random_seed(1)
    seeds = [mode.next_seed() for _ in range(3)]
    assert len(set(seeds)) == 3
    caffe.set_random_seed(1)
    assert [mode.next_seed() for _ in range(3)] == seeds


def test_init_log_sends_lines_to_standard_error(capsys):
    logger = logging.getLogger("mgcaffe")
    before = (list(logger.handlers), logger.level, logger.propagate)
    try:
        caffe.init_log()
        caffe.log("hello")
        caffe.init_log(2)
        caffe.log("unheard")
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    text = capsys.readouterr().err
    assert text.startswith("I")
    assert text.endswith("] hello\n")


def test_a_timer_counts_milliseconds():
    timer = caffe.Timer()
    timer.start()
    timer.stop()
    assert 0 <= timer.ms < 1000
