"""In what two nets differ."""

from mgcaffe.prototxt import parse_net
from mgcaffe.tools.surgery.net_diff import FieldDifference, diff_nets
from tests.support.surgerykit import SMALL


def diff(a, b):
    return diff_nets(parse_net(a).param, parse_net(b).param)


def test_equal_nets_are_equal_also_where_one_is_written_in_an_old_way():
    assert diff(SMALL, SMALL).equal
    old = 'input: "data" input_dim: 2 input_dim: 3 input_dim: 6 input_dim: 6\n'
    start = SMALL.index('layer { name: "conv"')
    found = diff('name: "small"' + old + SMALL[start:], SMALL.replace('name: "data"', 'name: "input"'))
    assert found.equal


def test_fields_are_named_with_both_values():
    other = SMALL.replace("kernel_size: 3", "kernel_size: 3 kernel_size: 5 stride: 1").replace('name: "small"', "")
    other = other.replace('type: "Softmax"', 'type: "Softmax" softmax_param { axis: 2 }').replace("dim: 2 ", "dim: 4 ")
    found = diff(SMALL, other + 'layer { name: "more" type: "AbsVal" bottom: "prob" top: "more" }')
    assert found.only_in_a == [] and found.only_in_b == ["more (AbsVal)"] and not found.moved
    assert found.fields == [
        FieldDifference("", "name", "small", "not set"),
        FieldDifference("data", "input_param.shape.dim[0]", "2", "4"),
        FieldDifference("conv", "convolution_param.kernel_size[1]", "not set", "5"),
        FieldDifference("conv", "convolution_param.stride", "not set", "1"),
        FieldDifference("prob", "softmax_param", "not set", "{ axis: 2 }"),
    ]


def test_layers_of_one_name_belong_together_in_their_order():
    rule = 'layer { name: "ip" type: "AbsVal" bottom: "conv" top: "x" include { phase: %s } }\n'
    found = diff(SMALL + rule % "TRAIN", SMALL + rule % "TEST")
    assert found.fields == [FieldDifference("ip#2", "include.phase", "TRAIN", "TEST")]


def test_another_order_is_said():
    lines = ['layer { name: "a" type: "AbsVal" }\n', 'layer { name: "b" type: "AbsVal" }\n']
    found = diff("".join(lines), "".join(reversed(lines)))
    assert found.moved and not found.fields and not found.equal


def test_long_values_are_shortened():
    found = diff(SMALL, SMALL.replace('"small"', '"' + "x" * 200 + '"'))
    assert found.fields[0].b == "x" * 57 + "..."
