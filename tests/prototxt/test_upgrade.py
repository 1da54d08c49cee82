"""Upgrades of inputs, data transforms, BatchNorm and solver types."""

from __future__ import annotations

import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import (
    NetParameter,
    net_source,
    parse_net,
    parse_solver,
    parse_text,
    print_text,
    upgrade_net,
)


def upgraded(text: str, **kwargs):
    return parse_net(text, file="net.prototxt", **kwargs)


def refused(text: str, parse=parse_net) -> PrototxtError:
    with pytest.raises(PrototxtError) as caught:
        parse(text)
    return caught.value


def test_inputs_with_shapes_become_an_input_layer_at_the_front():
    net = upgraded("layer { name: 'r' }\ninput: 'a'\ninput_shape { dim: 1 dim: 3 }\ninput: 'b' input_shape { dim: 2 }")
    expected = """
        layer {
          name: 'input' type: 'Input' top: 'a' top: 'b'
          input_param { shape { dim: 1 dim: 3 } shape { dim: 2 } }
        }
        layer { name: 'r' }
    """
    assert net.param == parse_text(expected, NetParameter)
    assert [layer.location.line for layer in net.layers] == [2, 1]
    assert net.layers[0].field("top", 1).line == 4
    assert net.layers[0].field("input_param.shape", 0).line == 3


def test_inputs_with_four_dims_each():
    net = upgraded("input: 'a' input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 layer { name: 'r' }")
    assert list(net.param.layer[0].input_param.shape[0].dim) == [1, 2, 3, 4]
    assert not net.param.input_dim and not net.param.input


def test_inputs_without_shapes_are_dropped_as_in_old_weights():
    assert upgraded("input: 'a' layer { name: 'r' }").param == parse_text("layer { name: 'r' }", NetParameter)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("input: 'a' input_dim: 1 input_dim: 2", "1 'input' need 4 'input_dim' (4 each), not 2"),
        ("input: 'a' input: 'b' input_shape { dim: 1 }", "2 'input' need as many 'input_shape', not 1"),
    ],
)
def test_inputs_that_do_not_add_up(text, says):
    error = refused(text)
    assert says in error.message
    assert error.location is not None and error.location.column > 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("input_dim: [1, 2, 3, 4]\ninput_shape { dim: 7 }", "1:24: input_dim has no effect beside input_shape"),
        (
            "input_shape { dim: 7 }\ninput_shape { dim: 8 }",
            "2:1: the last input_shape has no effect: 1 'input' need 1",
        ),
        (
            "input_dim: 7 input_dim: 2 input_dim: 3 input_dim: 4\ninput_dim: 5 input_dim: 6",
            "2:1: the last 2 input_dim have no effect: 1 'input' need 4",
        ),
    ],
)
def test_shapes_of_inputs_that_caffe_passes_over_are_warned_about(caplog, text, says):
    net = upgraded(f"input: 'a' {text}")
    (layer,) = net.param.layer
    assert (list(layer.top), [shape.dim[0] for shape in layer.input_param.shape]) == (["a"], [7])
    assert f"net.prototxt:{says}" in caplog.text
    assert len(net.layers[0].place.fields["input_param"][0].fields["shape"]) == 1


def test_shapes_without_inputs_warn(caplog):
    upgraded("input_dim: 1 layer { name: 'a' }")
    assert "input_dim without any 'input' has no effect" in caplog.text


@pytest.mark.parametrize(("layer_type", "holder"), [("Data", "data_param"), ("ImageData", "image_data_param")])
def test_old_transforms_of_a_layer_have_no_effect_as_in_caffe_and_are_warned_about(layer_type, holder, caplog):
    fields = "scale: 0.5 mean_file: 'm' crop_size: 3 mirror: true"
    net = upgraded(
        f"layer {{ type: '{layer_type}' transform_param {{ scale: 2 }} {holder} {{ source: 's'\n {fields} }} }}"
    )
    expected = f"layer {{ type: '{layer_type}' transform_param {{ scale: 2 }} {holder} {{ source: 's' }} }}"
    assert net.param == parse_text(expected, NetParameter)
    assert not net.upgrades
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == (
        f"net.prototxt:2:2: {holder}.scale has no effect in a 'layer', as in Caffe; what transform_param has counts"
    )


def test_the_scale_of_window_data_is_read_from_its_own_fields_as_in_caffe(caplog):
    fields = "scale: 0.5 mean_file: 'm' crop_size: 3 mirror: true"
    net = upgraded(f"layer {{ type: 'WindowData' transform_param {{ scale: 2 }} window_data_param {{\n {fields} }} }}")
    expected = "layer { type: 'WindowData' transform_param { scale: 0.5 } window_data_param { } }"
    assert net.param == parse_text(expected, NetParameter)
    assert net.layers[0].field("transform_param.scale").line == 2
    assert [message.split(" ")[1] for message in caplog.messages] == [
        f"window_data_param.{name}" for name in ("mean_file", "crop_size", "mirror")
    ]


def test_batch_norm_statistics_are_never_learned():
    specs = "param { lr_mult: 1 name: 'a' } param { decay_mult: 2 } param {}"
    net = upgraded(f"layer {{ type: 'BatchNorm' {specs} }} layer {{ type: 'Scale' {specs} }}")
    norm, scale = net.param.layer
    assert [(spec.lr_mult, spec.decay_mult) for spec in norm.param] == [(0, 0)] * 3
    assert norm.param[0].name == "a"
    assert scale.param[0].lr_mult == 1
    two = upgraded("layer { type: 'BatchNorm' param { lr_mult: 1 } param { lr_mult: 1 } }")
    assert two.param.layer[0].param[0].lr_mult == 1


def test_upgrading_twice_is_upgrading_once():
    net = upgraded("input: 'a' input_dim: [1, 2, 3, 4] layer { type: 'BatchNorm' param {} param {} param {} }")
    once = print_text(net.param)
    upgrade_net(net)
    assert print_text(net.param) == once
    assert len(net.layers) == len(net.param.layer) == 2


def test_nets_made_in_memory_are_upgraded_too():
    param = NetParameter(input=["a"], input_dim=[1, 2, 3, 4])
    net = net_source(param)
    upgrade_net(net)
    assert param.layer[0].type == "Input"
    assert str(net.layers[0].location) == "<memory>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SGD", "SGD"),
        ("NESTEROV", "Nesterov"),
        ("ADAGRAD", "AdaGrad"),
        ("RMSPROP", "RMSProp"),
        ("3", "RMSProp"),
        ("ADADELTA", "AdaDelta"),
        ("ADAM", "Adam"),
    ],
)
def test_solver_types_become_names(old, new):
    solver = parse_solver(f"base_lr: 1\nsolver_type: {old}", file="s")
    assert solver.param.type == new
    assert not solver.param.HasField("solver_type")
    assert solver.field("type").line == 2


def test_a_solver_with_both_types_is_refused():
    error = refused("type: 'SGD'\nsolver_type: ADAM", parse_solver)
    assert "a solver has only one of them" in error.message
    assert error.location is not None and error.location.line == 2


def test_inline_nets_are_upgraded():
    inline = "{ input: 'a' input_dim: [1, 2, 3, 4] layers { name: 'r' type: RELU } }"
    solver = parse_solver(
        f"net_param {inline} train_net_param {inline} test_net_param {inline} test_net_param {inline}"
    )
    nets = [solver.param.net_param, solver.param.train_net_param, *solver.param.test_net_param]
    assert [[layer.type for layer in net.layer] for net in nets] == [["Input", "ReLU"]] * 4
    assert len(solver.inline_net("test_net_param", 1).layers) == 2
