"""The upgrade of `layers`, the form before 2015, in text and with weights."""

from __future__ import annotations

import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import NetParameter, V1LayerParameter, parse_net, parse_text, print_text, read_net
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.upgrade_v1 import _TYPES

OLD = """\
name: "old"
layers {
  name: "conv" type: CONVOLUTION bottom: "data" top: "conv"
  blobs_lr: 1 blobs_lr: 2
  weight_decay: 1
  weight_decay: 0
  param: "w" param: "b" blob_share_mode: PERMISSIVE
  include { phase: TEST }
  exclude { stage: "s" }
  convolution_param { num_output: 3 kernel_size: 5 }
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 }
}
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" bottom: "label" loss_weight: 0.5 }
"""
NEW = """\
name: "old"
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  param { name: "w" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 1 }
  param { name: "b" lr_mult: 2 decay_mult: 0 }
  include { phase: TEST }
  exclude { stage: "s" }
  convolution_param { num_output: 3 kernel_size: 5 }
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv" bottom: "label" loss_weight: 0.5 }
"""


def test_old_layers_become_new_ones():
    assert parse_net(OLD).param == parse_text(NEW, NetParameter)


def test_old_binary_weights_become_new_ones(tmp_path):
    path = tmp_path / "old.caffemodel"
    path.write_bytes(parse_text(OLD, NetParameter).SerializeToString())
    assert read_net(path) == parse_text(NEW, NetParameter)


def test_places_survive():
    conv, loss = parse_net(OLD).layers
    assert (conv.location.line, loss.location.line) == (2, 13)
    assert conv.field("param", 1).line == 7
    assert conv.field("param.lr_mult").line == 4
    assert conv.field("param.decay_mult").line == 5
    assert conv.field("convolution_param.kernel_size").line == 10


def test_every_old_type_has_its_new_name():
    enum = message_facts(V1LayerParameter).fields["type"].enum
    assert enum is not None
    assert set(_TYPES) == set(enum.numbers)


def test_every_old_parameter_message_has_its_new_field():
    fields = message_facts(parse_text("", NetParameter).layer.add()).fields
    for name, facts in message_facts(V1LayerParameter).fields.items():
        if facts.kind == "message" and name not in ("layer", "param"):
            assert fields[name].message is facts.message


def test_old_transforms_move_and_win_silently(caplog):
    net = parse_net("layers { type: DATA data_param { scale: 2 crop_size: 4 } transform_param { scale: 3 } }")
    assert print_text(net.param.layer[0].transform_param) == "scale: 2\ncrop_size: 4\n"
    assert not net.param.layer[0].data_param.ListFields()
    assert not caplog.records


def test_a_mixture_is_refused():
    with pytest.raises(PrototxtError, match="mixes 'layer' with the older 'layers'") as caught:
        parse_net("layer { name: 'a' }\nlayers { name: 'b' }")
    assert caught.value.location is not None and caught.value.location.line == 2
