"""Places: every field of a message can say where it was written."""

from __future__ import annotations

import pytest

from mgcaffe.errors import Location
from mgcaffe.prototxt import NetParameter, net_source, parse_net, parse_solver

NET = """\
name: "n"
layer {
  name: "conv" type: "Convolution"
  bottom: "a"
  bottom: "b"
  convolution_param { num_output: 3 pad: [1, 2] }
}
layer { name: "relu" }
"""


def at(line: int, column: int) -> Location:
    return Location("net.prototxt", line, column)


def test_layers_and_fields_say_where_they_stand():
    net = parse_net(NET, file="net.prototxt")
    conv, relu = net.layers
    assert (net.path, net.location, net.field("name")) == ("net.prototxt", at(1, 1), at(1, 1))
    assert (conv.location, relu.location) == (at(2, 1), at(8, 1))
    assert conv.field("type") == at(3, 16)
    assert conv.field("bottom", 1) == at(5, 3)
    assert conv.field("convolution_param.num_output") == at(6, 23)
    assert conv.field("convolution_param.pad", 1) == at(6, 46)


def test_absent_fields_fall_back_to_the_message_around_them():
    conv = parse_net(NET, file="net.prototxt").layers[0]
    assert conv.field("top") == conv.location
    assert conv.field("bottom", 2) == conv.location
    assert conv.field("pooling_param.pool") == conv.location
    assert conv.field("convolution_param.stride") == at(6, 3)
    assert conv.inner("convolution_param").field("pad") == at(6, 43)


def test_an_error_made_from_a_source_shows_the_line():
    conv = parse_net(NET, file="net.prototxt").layers[0]
    error = conv.error("no such blob", "bottom", 1, hint="Known: a.")
    assert str(error) == 'net.prototxt:5:3: no such blob\n    bottom: "b"\n    ^\n  Known: a.'


def test_solvers_and_their_inline_nets():
    text = "base_lr: 0.1\nnet_param { layer { name: 'a' } }\ntest_net_param {\n  layer { name: 'b' }\n}\n"
    solver = parse_solver(text, file="s")
    assert solver.field("base_lr") == Location("s", 1, 1)
    assert solver.field("momentum") == solver.location
    assert solver.inline_net("net_param").layers[0].location == Location("s", 2, 13)
    assert solver.inline_net("test_net_param", 0).layers[0].location == Location("s", 4, 3)
    assert solver.inline_net("test_net_param").param.layer[0].name == "b"
    with pytest.raises(KeyError):
        solver.inline_net("train_net_param")


def test_nets_made_in_memory_have_a_source_too():
    param = NetParameter()
    param.layer.add(name="a", bottom=["x"])
    net = net_source(param)
    assert net.layers[0].field("bottom") == Location("<memory>")
    assert str(net.layers[0].error("bad")) == "<memory>: bad"
