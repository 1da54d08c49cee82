"""Warnings of layers are said once a process, also where it has several nets of one prototxt."""

import logging

import pytest

from mgcaffe.engine.checks import said_once
from tests.support.netkit import inputs, make_net
from tests.support.solverkit import LEAST_SQUARES, data_layer, make_solver, write_data


def test_a_warning_is_said_once_and_again_after_it_is_forgotten(caplog):
    log = logging.getLogger("mgcaffe.engine")
    for text, key in (("one", ""), ("one", ""), ("record 3 is odd", "odd"), ("record 7 is odd", "odd"), ("100 %", "")):
        said_once.warn_once(log, text, key)
    assert caplog.messages == ["one", "record 3 is odd", "100 %"]
    said_once.forget()
    said_once.warn_once(log, "one")
    assert caplog.messages[3:] == ["one"]


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ('type: "Eltwise" bottom: "x" bottom: "x" top: "y" eltwise_param { operation: MAX coeff: [1, 1] }', "coeff"),
        ('type: "Pooling" bottom: "x" top: "y" pooling_param { kernel_size: 2 kernel_h: 2 }', "kernel_h"),
        ('type: "ReLU" bottom: "x" top: "y" dropout_param { dropout_ratio: 0.3 }', "dropout_param"),
        ('type: "MVN" bottom: "z" top: "z"', "blob 'z' keeps its 2 axes"),
    ],
)
def test_two_nets_of_one_prototxt_warn_once(caplog, layer, said):
    for _ in range(2):
        make_net(inputs(x=(1, 1, 4, 4), z=(2, 3)) + f'layer {{ name: "l" {layer} }}')
    (message,) = caplog.messages
    assert said in message


def test_the_nets_and_workers_of_a_solver_warn_once(caplog, tmp_path):
    most = 'layer { name: "most" type: "Eltwise" bottom: "data" bottom: "data" top: "most"'
    most += " eltwise_param { operation: MAX coeff: 1 coeff: 1 } }\n"
    net = data_layer(write_data(tmp_path), 5) + most + LEAST_SQUARES.replace('bottom: "data"', 'bottom: "most"', 1)
    fields = "test_iter: 1 test_interval: 5 comm_param { hogwild_threads: 2 }"
    with make_solver(net, fields, tmp_path) as solver:
        assert len(solver.worker_nets) == 2 and solver.test_nets
    assert len([text for text in caplog.messages if "coeff has no effect" in text]) == 1
