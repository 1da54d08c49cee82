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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: BN bn_param { bn_mode: INFERENCE }", 'type: "BN" bn_param { bn_mode: INFERENCE }'),
        ("type: INTERP interp_param { zoom_factor: 8 }", 'type: "Interp" interp_param { zoom_factor: 8 }'),
        ("type: PRELU prelu_param { channel_shared: true }", 'type: "PReLU" prelu_param { channel_shared: true }'),
        ("type: ROI_POOLING roi_pooling_param { pooled_h: 6 }", 'type: "ROIPooling" roi_pooling_param { pooled_h: 6 }'),
        (
            "type: SMOOTH_L1_LOSS smooth_l1_loss_param { sigma: 3 }",
            'type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 3 }',
        ),
    ],
)
def test_types_that_forks_added_become_new_ones(caplog, old, new):
    param = parse_net(f"layers {{ name: 'l' bottom: 'x' top: 'y' {old} }}").param
    assert param == parse_text(f"layer {{ name: 'l' bottom: 'x' top: 'y' {new} }}", NetParameter)
    assert not caplog.records


def test_old_transforms_move_and_win_silently(caplog):
    net = parse_net("layers { type: DATA data_param { scale: 2 crop_size: 4 } transform_param { scale: 3 } }")
    assert print_text(net.param.layer[0].transform_param) == "scale: 2\ncrop_size: 4\n"
    assert not net.param.layer[0].data_param.ListFields()
    assert not caplog.records


def test_a_mixture_is_refused():
    with pytest.raises(PrototxtError, match="mixes 'layer' with the older 'layers'") as caught:
        parse_net("layer { name: 'a' }\nlayers { name: 'b' }")
    assert caught.value.location is not None and caught.value.location.line == 2
