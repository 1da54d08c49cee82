"""The upgrade of `layers { layer { ... } }`, the form of 2013, in text and with weights."""

from __future__ import annotations

import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import (
    NetParameter,
    V0LayerParameter,
    V1LayerParameter,
    parse_net,
    parse_solver,
    parse_text,
    print_text,
    read_net,
    upgrade_net,
)
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.upgrade_v0 import _FIELDS, _PADDING, _TRANSFORM, _TYPES, _UNCHANGED

V0 = """\
name: "old"
layers {
  layer { name: "data" type: "data" source: "db" batchsize: 4 cropsize: 24 scale: 0.5 meanfile: "m" mirror: true
    rand_skip: 7 }
  top: "data" top: "label"
}
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
layers {
  layer {
    name: "conv1"
    type: "conv"
    num_output: 3 kernelsize: 5 stride: 2 group: 1 biasterm: true
    weight_filler { type: "gaussian" std: 0.01 }
    bias_filler { type: "constant" value: 0.2 }
    blobs_lr: 1 blobs_lr: 2
    weight_decay: 1 weight_decay: 0
    blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 }
  }
  bottom: "pad1"
  top: "conv1"
}
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "conv1" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } bottom: "pool1" top: "norm1" }
layers { layer { name: "drop1" type: "dropout" dropout_ratio: 0.2 } bottom: "norm1" top: "norm1" }
layers { layer { name: "ip" type: "innerproduct" num_output: 2 biasterm: false } bottom: "norm1" top: "ip" }
layers { layer { name: "loss" type: "softmax_loss" } bottom: "ip" bottom: "label" }
"""
V1 = """\
name: "old"
layers {
  name: "data" type: DATA top: "data" top: "label"
  data_param { source: "db" batch_size: 4 rand_skip: 7 scale: 0.5 mean_file: "m" crop_size: 24 mirror: true }
}
layers {
  name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
  convolution_param {
    num_output: 3 kernel_size: 5 stride: 2 group: 1 pad: 2 bias_term: true
    weight_filler { type: "gaussian" std: 0.01 } bias_filler { type: "constant" value: 0.2 }
  }
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 }
}
layers { name: "relu1" type: RELU bottom: "conv1" top: "conv1" }
layers { name: "pool1" type: POOLING bottom: "conv1" top: "pool1"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layers { name: "norm1" type: LRN bottom: "pool1" top: "norm1"
  lrn_param { local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } }
layers { name: "drop1" type: DROPOUT bottom: "norm1" top: "norm1" dropout_param { dropout_ratio: 0.2 } }
layers { name: "ip" type: INNER_PRODUCT bottom: "norm1" top: "ip"
  inner_product_param { num_output: 2 bias_term: false } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "ip" bottom: "label" }
"""
V2 = """\
name: "old"
layer {
  name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "db" batch_size: 4 rand_skip: 7 }
  transform_param { scale: 0.5 mean_file: "m" crop_size: 24 mirror: true }
}
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param {
    num_output: 3 kernel_size: 5 stride: 2 group: 1 pad: 2 bias_term: true
    weight_filler { type: "gaussian" std: 0.01 } bias_filler { type: "constant" value: 0.2 }
  }
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 }
}
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1"
  lrn_param { local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } }
layer { name: "drop1" type: "Dropout" bottom: "norm1" top: "norm1" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "norm1" top: "ip"
  inner_product_param { num_output: 2 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }
"""


def net(text):
    return parse_text(text, NetParameter)


def upgraded(layers: str):
    """The upgraded layers of a V0 net, each given as its `layer` and what stands beside it."""
    return parse_net(layers, file="net.prototxt").param.layer


def v0(name: str, kind: str, fields: str = "", *, bottom: str = "", top: str = "") -> str:
    around = "".join(f' bottom: "{blob}"' for blob in bottom.split())
    around += "".join(f' top: "{blob}"' for blob in top.split())
    return f'layers {{ layer {{ name: "{name}" type: "{kind}" {fields} }}{around} }}\n'


def refused(text: str) -> PrototxtError:
    with pytest.raises(PrototxtError) as caught:
        parse_net(text)
    assert caught.value.location is not None
    return caught.value


# -- the three forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [V0, V1, V2])
def test_a_net_comes_out_equal_from_all_three_forms(form, tmp_path):
    assert parse_net(form).param == net(V2)
    binary = tmp_path / "net.caffemodel"
    binary.write_bytes(net(form).SerializeToString())
    assert read_net(binary) == net(V2)


@pytest.mark.parametrize("form", [V0, V1, V2])
@pytest.mark.parametrize("field", ["net_param", "train_net_param", "test_net_param"])
def test_a_net_inside_a_solver_comes_out_equal_from_all_three_forms(form, field):
    solver = parse_solver(f"base_lr: 0.1 {field} {{\n{form}}}\n")
    inline = getattr(solver.param, field)
    assert (inline[0] if field == "test_net_param" else inline) == net(V2)
    assert solver.inline_net(field).layers[1].field("convolution_param.kernel_size").line > 4
    assert (form == V2) == (solver.upgrades == [])


def test_upgrading_twice_is_the_same_as_once():
    source = parse_net(V0)
    done = list(source.upgrades)
    upgrade_net(source)
    assert source.param == net(V2)
    assert source.upgrades == done


def test_what_was_upgraded_is_noted():
    (layers,) = parse_net(V0).upgrades
    assert layers.startswith("9 layers in the form of 2013 (V0); 1 of them, of type padding")
    assert parse_net(V1).upgrades == [
        "8 layers in the form before 2015 (V1)",
        "transformation fields of 1 data layers, now in transform_param",
    ]
    assert parse_net(V2).upgrades == []


def test_places_survive():
    layers = parse_net(V0).layers
    assert [layer.location.line for layer in layers] == [2, 8, 22, 23, 24, 25, 26, 27]
    data, conv = layers[0], layers[1]
    assert data.field("name").line == 3
    assert data.field("data_param.rand_skip").line == 4
    assert data.field("transform_param.mean_file").column == 87
    assert conv.field("type").line == 11
    assert conv.field("convolution_param.kernel_size").line == 12
    assert conv.field("convolution_param.weight_filler.std").line == 13
    assert conv.field("param.lr_mult").line == 15
    assert conv.field("param.decay_mult").line == 16
    assert conv.field("blobs").line == 17
    # What came from the padding layer points there.
    assert conv.field("bottom").line == conv.field("convolution_param.pad").line == 7


# -- every type and field ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", _TYPES)
def test_every_type_has_its_type_of_today(kind):
    layer = upgraded(v0("l", kind))[0]
    (v1,) = parse_net(f'layers {{ name: "l" type: {_TYPES[kind]} }}').param.layer
    assert layer == v1


VALUES = {
    "integer": ("9", 9),
    "bool": ("true", True),
    "float": ("0.25", 0.25),
    "string": ('"square"', "square"),
    "enum": ("STOCHASTIC", 2),
}


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [(kind, name, f"{holder}.{new}") for kind, (holder, names) in _FIELDS.items() for name, new in names.items()]
    + [(kind, name, f"transform_param.{new}") for kind in ("data", "images") for name, new in _TRANSFORM.items()],
)
def test_every_field_arrives_at_its_place_of_today(kind, name, path):
    facts = message_facts(V0LayerParameter).fields[name]
    if facts.kind == "message":
        layer = upgraded(v0("l", kind, f'{name} {{ type: "xavier" }}'))[0]
        value, wanted = layer, "xavier"
        path += ".type"
    else:
        text, wanted = VALUES[facts.kind]
        value = upgraded(v0("l", kind, f"{name}: {text}"))[0]
    for step in path.split("."):
        value = getattr(value, step)
    assert (list(value) == [wanted]) if hasattr(value, "append") else value == wanted


def test_no_field_of_the_old_message_was_forgotten():
    known = {name for _, names in _FIELDS.values() for name in names}
    known |= {*_TRANSFORM, *_UNCHANGED, "type", "hdf5_output_param"}
    # Caffe's own schema has these two and no layer ever read them.
    assert set(message_facts(V0LayerParameter).fields) - known == {"new_num", "new_channels"}
    enum = message_facts(V1LayerParameter).fields["type"].enum
    assert enum is not None and set(_TYPES.values()) <= set(enum.numbers)
    assert _PADDING not in _TYPES


def test_output_files_keep_their_message():
    layer = upgraded(v0("l", "hdf5_output", 'hdf5_output_param { file_name: "f" }'))[0]
    assert layer.hdf5_output_param.file_name == "f"


@pytest.mark.parametrize(("kind", "field"), [("relu", "kernelsize: 3"), ("conv", "scale: 2"), ("data", "new_num: 1")])
def test_a_field_that_the_type_never_had_warns_with_its_place(kind, field, caplog):
    (layer,) = parse_net(v0("l", kind, field)).param.layer
    assert len(layer.ListFields()) == 2
    name = field.split(":")[0]
    assert f"'{name}' means nothing to a layer of type '{kind}', ignored" in caplog.text
    assert "<string>:1:" in caplog.text


def test_an_unknown_type_is_refused_with_its_place_and_a_guess():
    error = refused('layers { layer { name: "a"\ntype: "convv" } }')
    assert "unknown layer type 'convv'" in error.message
    assert "'conv'?" in error.message
    assert error.location.line == 2


def test_newer_fields_beside_an_old_layer_are_refused():
    error = refused('layers { layer { name: "a" type: "relu" } bottom: "b"\n loss_weight: 2 }')
    assert "'loss_weight' stands beside 'layer'" in error.message
    assert error.location.line == 2


def test_a_value_that_todays_field_cannot_hold_is_refused():
    error = refused("layers { layer { type: 'images'\nnew_height: -1 } }")
    assert "-1 is no value for 'new_height'" in error.message
    assert error.location.line == 2


def test_layers_of_both_old_forms_can_follow_one_another():
    text = 'layers { name: "a" type: RELU bottom: "x" top: "y" }\n' + v0("b", "tanh", bottom="y", top="z")
    assert [layer.type for layer in upgraded(text)] == ["ReLU", "TanH"]


# -- padding -------------------------------------------------------------------------------------------------


def test_padding_goes_into_the_layer_that_reads_it():
    layers = upgraded(
        v0("data", "data", top="data label")
        + v0("pad1", "padding", "pad: 2", bottom="data", top="pad1")
        + v0("conv1", "conv", "num_output: 4 kernelsize: 11", bottom="pad1", top="conv1")
        + v0("pad2", "padding", "pad: 1", bottom="conv1", top="pad2")
        + v0("pool1", "pool", "kernelsize: 3", bottom="pad2", top="pool1")
    )
    assert [layer.name for layer in layers] == ["data", "conv1", "pool1"]
    assert list(layers[1].bottom) == ["data"]
    assert list(layers[1].convolution_param.pad) == [2]
    assert list(layers[2].bottom) == ["conv1"]
    assert layers[2].pooling_param.pad == 1


def test_several_layers_can_read_one_padding_layer():
    layers = upgraded(
        "input: 'data' input_dim: 1 input_dim: 1 input_dim: 4 input_dim: 4\n"
        + v0("pad1", "padding", "pad: 2", bottom="data", top="pad1")
        + v0("conv1", "conv", "num_output: 4 kernelsize: 3", bottom="pad1", top="conv1")
        + v0("conv2", "conv", "num_output: 4 kernelsize: 3", bottom="pad1", top="conv2")
        + v0("relu", "relu", bottom="data", top="relu")
    )
    assert [layer.name for layer in layers] == ["input", "conv1", "conv2", "relu"]
    assert [list(layer.bottom) for layer in layers[1:]] == [["data"]] * 3
    assert [list(layer.convolution_param.pad) for layer in layers[1:]] == [[2], [2], []]


def test_padding_in_place_serves_all_that_read_the_blob_later():
    layers = upgraded(
        v0("pad1", "padding", "pad: 2", bottom="data", top="data")
        + v0("conv1", "conv", "num_output: 4 kernelsize: 3", bottom="data", top="conv1")
        + v0("conv2", "conv", "num_output: 4 kernelsize: 3", bottom="data", top="conv2")
    )
    assert [list(layer.convolution_param.pad) for layer in layers] == [[2], [2]]


PAD = v0("pad", "padding", "pad: 2", bottom="data", top="pad")


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        (PAD + v0("a", "relu", bottom="pad", top="a"), "goes into a layer of type 'relu'", 2),
        (PAD + v0("a", "padding", "pad: 1", bottom="pad", top="a"), "goes into a layer of type 'padding'", 2),
        (PAD + 'layers { name: "a" type: CONVOLUTION bottom: "pad" }', "goes into a layer of a newer form", 2),
        (PAD + v0("a", "conv", bottom="pad other", top="a"), "exactly one bottom, not 2", 2),
        (
            v0("pad", "padding", "pad: 2", bottom="data other", top="pad") + v0("a", "conv", bottom="pad", top="a"),
            "a padding layer needs exactly one bottom, not 2",
            1,
        ),
        (
            v0("pad", "padding", "pad: 2", bottom="data", top="pad other") + v0("a", "conv", bottom="pad", top="a"),
            "a padding layer needs exactly one top, not 2",
            1,
        ),
        (v0("pad", "padding", top="pad") + v0("a", "conv", bottom="pad", top="a"), "one bottom, not 0", 1),
        (PAD + v0("a", "conv", "pad: 1", bottom="pad", top="a"), "has a pad of 1 and reads a padding layer", 2),
        (
            PAD + v0("r", "relu", bottom="data", top="data") + v0("a", "conv", bottom="pad", top="a"),
            "blob 'data' changes between",
            3,
        ),
    ],
)
def test_padding_that_cannot_be_folded_is_refused_with_its_place(text, says, line):
    error = refused(text)
    assert says in error.message
    assert error.location.line == line


def test_padding_that_nobody_reads_is_dropped_with_a_warning(caplog):
    assert not upgraded(PAD)
    assert "net.prototxt:1:1: nothing reads this padding layer" in caplog.text


# -- a whole net of the time ---------------------------------------------------------------------------------


def imagenet() -> tuple[str, str]:
    """The ImageNet net of 2012 as it was written in 2013, and as it is written today."""
    old, new = [], []

    def add(text: str, today: str, name: str, bottom: str, top: str) -> None:
        kind, _, fields = text.partition(" ")
        old.append(v0(name, kind, fields, bottom=bottom, top=top))
        blobs = "".join(f' bottom: "{blob}"' for blob in bottom.split())
        blobs += "".join(f' top: "{blob}"' for blob in top.split())
        new.append(f'layer {{ name: "{name}"{blobs} {today} }}\n')

    add(
        'data source: "db" meanfile: "mean" batchsize: 256 cropsize: 227 mirror: true',
        'type: "Data" data_param { source: "db" batch_size: 256 }'
        ' transform_param { mean_file: "mean" crop_size: 227 mirror: true }',
        "data",
        "",
        "data label",
    )
    bottom = "data"
    rates = "blobs_lr: 1. blobs_lr: 2. weight_decay: 1. weight_decay: 0."
    specs = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }"
    fillers = '{ type: "gaussian" std: 0.01 }', '{ type: "constant" value: 1 }'
    for number, outputs, kernel, stride, group, pad, pooled in [
        (1, 96, 11, 4, 1, 0, True),
        (2, 256, 5, 1, 2, 2, True),
        (3, 384, 3, 1, 1, 1, False),
        (4, 384, 3, 1, 2, 1, False),
        (5, 256, 3, 1, 2, 1, True),
    ]:
        if pad:
            old.append(v0(f"pad{number}", "padding", f"pad: {pad}", bottom=bottom, top=f"pad{number}"))
        name = f"conv{number}"
        shape = f"num_output: {outputs} group: {group} stride: {stride}"
        weights = f"weight_filler {fillers[0]} bias_filler {fillers[1]}"
        padded = f"pad: {pad}" if pad else ""
        old.append(
            v0(
                name,
                "conv",
                f"{shape} kernelsize: {kernel} {weights} {rates}",
                bottom=f"pad{number}" if pad else bottom,
                top=name,
            )
        )
        new.append(
            f'layer {{ name: "{name}" bottom: "{bottom}" top: "{name}" type: "Convolution" {specs}'
            f" convolution_param {{ {shape} kernel_size: {kernel} {weights} {padded} }} }}\n"
        )
        add("relu", 'type: "ReLU"', f"relu{number}", name, name)
        bottom = name
        if pooled:
            window = "pool: MAX kernelsize: 3 stride: 2"
            today = f"pooling_param {{ {window.replace('kernelsize', 'kernel_size')} }}"
            add(f"pool {window}", f'type: "Pooling" {today}', f"pool{number}", bottom, f"pool{number}")
            bottom = f"pool{number}"
        if number < 3:
            norm = "local_size: 5 alpha: 0.0001 beta: 0.75"
            add(f"lrn {norm}", f'type: "LRN" lrn_param {{ {norm} }}', f"norm{number}", bottom, f"norm{number}")
            bottom = f"norm{number}"
    for name, outputs in (("fc6", 4096), ("fc7", 4096), ("fc8", 1000)):
        fields = f"num_output: {outputs} weight_filler {fillers[0]} bias_filler {fillers[1]}"
        today = f'type: "InnerProduct" {specs} inner_product_param {{ {fields} }}'
        add(f"innerproduct {fields} {rates}", today, name, bottom, name)
        bottom = name
        if name != "fc8":
            add("relu", 'type: "ReLU"', f"relu_{name}", name, name)
            drop = "dropout_ratio: 0.5"
            add(f"dropout {drop}", f'type: "Dropout" dropout_param {{ {drop} }}', f"drop_{name}", name, name)
    add("softmax_loss", 'type: "SoftmaxWithLoss"', "loss", "fc8 label", "")
    return "".join(old), "".join(new)


def test_the_imagenet_net_of_2012_becomes_its_form_of_today(caplog):
    old, new = imagenet()
    assert print_text(parse_net(old).param) == print_text(net(new))
    assert not caplog.records
