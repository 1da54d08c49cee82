"""Nets whose values a real Caffe recorded, and training of a written module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.layers.input import Input
from mgcaffe.tools.convert.caffe_side import fitting_inputs
from tests.support.golden import NAMES, fill, read_test_net
from tests.support.modulekit import side_of
from tests.support.netkit import inputs, make_net
from tests.support.onnxkit import random_net

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4


def test_modules_give_what_caffe_recorded():
    """One test for all cases, which take a few milliseconds each."""
    for name in NAMES:
        net, case, outputs = read_test_net(name)
        fill(net, case)
        fed = {key.removeprefix("in/"): values for key, values in case.items() if key.startswith("in/")}
        values = side_of(net).run(fed)
        for blob in outputs:
            expected = case[f"out/{blob}"]
            assert values[blob].shape == expected.shape, (name, blob)
            apart = np.abs(values[blob] - expected).max(initial=0)
            assert apart <= TOLERANCE * max(np.abs(expected).max(initial=0), 1e-30), (name, blob, apart)


TRAINED = inputs(x=(4, 3, 8, 8), label=(4,)) + (
    'layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }'
    'layer { name: "b" type: "BatchNorm" bottom: "c" top: "c"'
    " batch_norm_param { moving_average_fraction: 0.75 eps: 0.125 } }"
    'layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }'
    'layer { name: "p" type: "PReLU" bottom: "c" top: "c" }'
    'layer { name: "f" type: "BatchNorm" bottom: "c" top: "f" batch_norm_param { use_global_stats: true eps: 0.5 } }'
    'layer { name: "n" type: "LRN" bottom: "f" top: "n" lrn_param { local_size: 3 alpha: 0.5 } }'
    'layer { name: "m" type: "Pooling" bottom: "n" top: "m"'
    " pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 2 } }"
    'layer { name: "i" type: "InnerProduct" bottom: "m" top: "i"'
    " inner_product_param { num_output: 5 transpose: true } }"
    'layer { name: "drop" type: "Dropout" bottom: "i" top: "i" dropout_param { dropout_ratio: 0 } }'
    'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "loss"'
    " loss_param { ignore_label: 1 } }"
)


def test_a_module_trains_as_the_net_does():
    """Gradients of a step in float64 are those of the net in its TRAIN phase; statistics become PyTorch's averages."""
    tested = random_net(TRAINED)
    for parameter in tested.parameters:
        if parameter.measured and parameter.count == 1:
            parameter.data.fill_(1)  # else the statistics, divided by it, would be rounded to float32
    values = fitting_inputs(tested)
    values["label"][:] = [0, 1, 2, 4]
    net = make_net(TRAINED, phase=TRAIN)
    for ours, theirs in zip(net.parameters, tested.parameters, strict=True):
        ours.data.copy_(theirs.data)
    side = side_of(tested)
    side.module.double().train()
    mean = side.module.b.running_mean.clone()
    for node in net.nodes:
        if isinstance(node.layer, Input):
            node.layer.values = [torch.from_numpy(values[blob.name]).double() for blob in node.tops]
    net.clear_param_diffs()
    loss = net.forward_backward()
    made = side.module(*(torch.from_numpy(values[name]).double() for name in side.inputs))
    made.backward()
    assert made.item() == pytest.approx(loss, rel=1e-9)
    gradients = side.gradients()
    ours = {
        (layer.name, number): parameter.diff.numpy()
        for layer in net.layers
        for number, parameter in enumerate(layer.parameters)
        if parameter.wanted
    }
    assert set(gradients) == set(ours) and len(ours) == 7
    for place, expected in ours.items():
        # Numbers are written as in the prototxt, where fields are float32: the net has some that are the same in both.
        np.testing.assert_allclose(gradients[place], expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max()))
    batch = net.blobs["x"].data
    conv = torch.nn.functional.conv2d(batch, *(parameter.data for parameter in net.layers[2].parameters))
    torch.testing.assert_close(side.module.b.running_mean, 0.75 * mean + 0.25 * conv.mean((0, 2, 3)))


def test_recurrent_layers_carry_their_state_until_they_are_reset():
    net = random_net(
        inputs(x=(3, 2, 4), cont=(3, 2))
        + 'layer { name: "l" type: "LSTM" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 3 } }'
    )
    module = side_of(net).module
    x, cont = torch.ones(3, 2, 4), torch.ones(3, 2)
    with torch.no_grad():
        first, second = module(x, cont), module(x, cont)
        whole = torch.cat([first, second])
        module.l.reset()
        torch.testing.assert_close(module(torch.cat([x, x]), torch.cat([cont, cont])), whole)
    assert not torch.equal(first, second)
