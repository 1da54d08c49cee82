"""Memory of a process that trains: what the kernel is asked for, and when."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest
import torch

from mgcaffe.engine.net import TRAIN
from mgcaffe.tools.running import steady_memory
from tests.support.netkit import make_net
from tests.support.steady_run import PAGES_OF_1_MIB

_NET = """
layer { name: "data" type: "DummyData" top: "x" top: "label"
  dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } data_filler { type: "gaussian" } data_filler {} } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "y"
  inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "label" }
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_steady_iteration_gets_no_block_above_1_mib_from_the_kernel():
    command = [sys.executable, "-m", "tests.support.steady_run", "lenet=64", "cifar10_quick=32", "googlenet=1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for model, pages in json.loads(result.stdout).items():
        assert pages[0] > PAGES_OF_1_MIB, model
        steady = pages[4:]
        assert sum(steady) < len(steady) * PAGES_OF_1_MIB, (model, pages)


@pytest.fixture
def asked(monkeypatch):
    """What malloc is asked for, in order."""
    asked = []
    for name in ("map_blocks", "keep_blocks"):
        monkeypatch.setattr(steady_memory, name, lambda name=name: asked.append(name))
    return asked


def test_blocks_are_mapped_in_the_first_pass_alone(asked):
    net = make_net(_NET, phase=TRAIN)
    steady_memory.lay_out(net)
    net.after_forward.append(lambda index: asked.append(f"forward {index}"))
    net.after_backward.append(lambda index: asked.append(f"backward {index}"))
    for _ in range(2):
        net.forward_backward()
    passes = [f"forward {index}" for index in range(3)], ["backward 2", "backward 1"]
    backward_0 = ["keep_blocks", "backward 0"], ["backward 0"]
    assert asked == ["map_blocks", *passes[0], *passes[1], *backward_0[0], *passes[0], *passes[1], *backward_0[1]]


def test_a_net_on_a_gpu_is_left_alone(asked, monkeypatch):
    net = make_net(_NET, phase=TRAIN)
    monkeypatch.setattr(net, "device", torch.device("cuda"))
    steady_memory.lay_out(net)
    assert not net.before_forward and not net.after_backward


def test_without_glibc_what_is_possible_is_done(monkeypatch):
    asked = []
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(steady_memory, "speed_up_memory", lambda: asked.append("speed_up_memory"))
    steady_memory.speed_up_training()
    assert asked == ["speed_up_memory"]
