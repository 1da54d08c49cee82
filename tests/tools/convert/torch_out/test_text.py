"""The written file as somebody reads it: names, comments, one assignment a layer, shared parameters."""

from __future__ import annotations

import pytest
import torch

from mgcaffe.tools.convert.torch_out.text import wrapped
from tests.support.modulekit import module_differences, side_of, text_of
from tests.support.netkit import inputs
from tests.support.onnxkit import random_net

pytestmark = pytest.mark.slow

SMALL = 'name: "small_net" ' + inputs(data=(2, 3, 6, 6)) + (
    'layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"'
    " convolution_param { num_output: 4 kernel_size: 3 bias_term: false } }"
    'layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }'
    'layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }'
    'layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }'
    'layer { name: "drop1" type: "Dropout" bottom: "conv1" top: "conv1" }'
    'layer { name: "lrn1" type: "LRN" bottom: "conv1" top: "norm" lrn_param { alpha: 0.1 beta: 0.5 } }'
    'layer { name: "pool1" type: "Pooling" bottom: "norm" top: "pool1" pooling_param { kernel_size: 3 stride: 2 } }'
    'layer { name: "fc" type: "InnerProduct" bottom: "pool1" top: "fc" inner_product_param { num_output: 5 } }'
    'layer { name: "sum" type: "Eltwise" bottom: "fc" bottom: "fc" top: "sum" eltwise_param { coeff: 0.1 coeff: -1 } }'
    'layer { name: "prob" type: "Softmax" bottom: "sum" top: "prob" }'
)  # fmt: skip
TEXT = '''"""SmallNet, made by mgcaffe 0 from net.prototxt.

Input `data`: shape (2, 3, 6, 6) in the net.
Output `prob`: shape (2, 5) in the net.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4, momentum=0.001)
        self.drop1 = nn.Dropout(0.5)
        self.fc = nn.Linear(16, 5)

    def forward(self, data):
        conv1 = self.conv1(data)
        conv1 = self.bn1(conv1)  # and scale1
        conv1 = F.relu(conv1)  # relu1
        conv1 = self.drop1(conv1)
        norm = F.local_response_norm(conv1, 5, alpha=0.1, beta=0.5)  # lrn1
        pool1 = F.max_pool2d(norm, 3, stride=2, ceil_mode=True)
        fc = self.fc(pool1.flatten(1))
        sum_ = 0.1 * fc - fc  # sum
        prob = torch.softmax(sum_, 1)
        return prob
'''


def test_a_net_reads_as_somebody_would_write_it():
    net = random_net(SMALL)
    text = text_of(net)
    assert text.partition("\n\n\ndef load(")[0] + "\n" == TEXT
    found, values = module_differences(net, fused=1)
    assert found[0].largest_relative <= 1e-6
    # What the Scale wrote over in place has no value of its own; everything else is called as in the net.
    assert list(values) == [
        "conv1@conv1", "conv1@scale1", "conv1@relu1", "conv1", "norm", "pool1", "fc", "sum", "prob",
    ]  # fmt: skip


def test_another_batch_and_another_image_need_no_new_file():
    without_sizes = SMALL.replace("InnerProduct", "Reduction").replace("num_output: 5", "")
    side = side_of(random_net(without_sizes.replace("inner_product_param {", "reduction_param { axis: 2")))
    assert side.module(torch.zeros(7, 3, 9, 12)).shape == (7, 4)


def test_names_become_pythons_own_and_stay_apart():
    relu = 'layer {{ name: "{0}" type: "ReLU" bottom: "{1}" top: "{2}" }}'
    product = 'layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 3 } }'
    tops = ["a/b", "a.b", "a_b", "1x", "class", "self", "torch", "Scale", "reset", "__x", "größe", 'quote\\"\\n']
    text = 'name: "1 net/of\\nlines" ' + inputs(x=(2, 3))
    for name, before in zip(tops, ["x", *tops], strict=False):
        text += product % (name if name != "a.b" else "train", before, name)
    text += relu.format("forward", tops[-1], tops[-1])
    net = random_net(text)
    written = text_of(net)
    found, values = module_differences(net)
    assert found[0].largest_relative <= 1e-6
    assert {"a/b", "a.b", "a_b", "1x", "größe"} <= set(values)
    assert "Output `quote__`: shape (2, 3) in the net (blob quote??)." in written
    assert "class Net1NetOfLines(nn.Module):" in written
    for line in (
        "a_b = self.a_b(x)", "a_b_ = self.train_(a_b)  # train", "a_b_2 = self.a_b_(a_b_)  # a_b", 
        "_1x = self._1x(a_b_2)",
        "class_ = self.class_(_1x)  # class", "self_ = self.self(class_)", "torch_ = self.torch(self_)",
        "Scale_ = self.Scale(torch_)", "reset = self.reset(Scale_)", "_x = self._x(reset)", "gr__e = self.gr__e(_x)",
        "quote__ = F.relu(quote__)  # forward",
    ):  # fmt: skip
        assert f"        {line}\n" in written, line


def test_layers_with_the_same_parameters_are_one_module_and_a_shared_weight_is_there_once():
    layer = (
        'layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s" param { name: "w" } param { name: "%s" }'
        " inner_product_param { num_output: 3 } }"
    )
    text = inputs(x=(2, 3)) + layer % ("one", "x", "y", "b") + layer % ("two", "y", "z", "b")
    text += layer % ("three", "z", "u", "own")
    net = random_net(text)
    written = text_of(net)
    assert "z = self.one(y)  # two" in written
    assert "u = F.linear(z, self.one.weight, self.three_bias)" in written
    assert module_differences(net)[0][0].largest_relative <= 1e-6
    side = side_of(net)
    assert set(side.module.state_dict()) == {"one.weight", "one.bias", "three_bias"}


def test_a_split_that_nothing_writes_over_leaves_no_trace_and_another_one_does():
    split = 'layer { name: "s" type: "Split" bottom: "y" top: "a" top: "b" }'
    ends = 'layer { name: "e" type: "Eltwise" bottom: "a" bottom: "b" top: "z" eltwise_param { operation: PROD } }'
    relu = 'layer { name: "%s" type: "ReLU" bottom: "%s" top: "%s" }'
    begin = inputs(x=(2, 3)) + relu % ("r", "x", "y") + split
    assert "z = y * y" in text_of(random_net(begin + ends))
    net = random_net(begin + relu % ("i", "a", "a") + ends)
    assert "a = F.relu(y)  # i" in text_of(net)
    assert module_differences(net, fused=1)[0][0].largest_absolute == 0  # a@s is y, under another name


def test_long_lines_are_broken_as_formatters_do():
    arguments = ", ".join(f"argument_{number}" for number in range(6))
    assert list(wrapped(f"values = torch.cat([{arguments}], 1)", 8)) == [
        "        values = torch.cat(",
        f"            [{arguments}], 1",
        "        )",
    ]
    longer = [f"a_long_argument_of_the_call_{number}" for number in range(4)]
    assert list(wrapped(f"x = f({', '.join(longer)})", 4)) == [
        "    x = f(", *(f"        {name}," for name in longer), "    )",
    ]  # fmt: skip
    terms = " + ".join(longer[:3])
    assert list(wrapped(f"x = {terms}", 8)) == ["        x = (", f"            {terms}", "        )"]
