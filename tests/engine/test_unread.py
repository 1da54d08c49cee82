"""Fields that nothing reads are told."""

import pytest

from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter
from tests.engine.netkit import inputs, make_net

RELU = 'layer {{ name: "r" type: "ReLU" bottom: "x" top: "y" {extra} }}\n'


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ("dropout_param { dropout_ratio: 0.3 }", "dropout_param"),
        ("convolution_param { kernel_size: 3 }", "convolution_param"),
        ("forward_type: FLOAT16", "forward_type"),
    ],
)
def test_fields_of_another_type_are_warned_about(extra, field, caplog):
    make_net(inputs(x=(2, 3)) + RELU.format(extra=extra))
    assert [record.message for record in caplog.records] == [
        f"{field} has no effect on a layer of type ReLU (layer 'r')"
    ]


def test_the_types_own_fields_are_no_news(caplog):
    make_net(inputs(x=(2, 3)) + RELU.format(extra="relu_param { negative_slope: 0.1 } phase: TRAIN"))
    assert not caplog.records


def test_fields_of_forks_for_the_whole_net_are_warned_about(caplog):
    make_net("default_forward_type: FLOAT16 global_grad_scale: 128\n" + inputs(x=(2, 3)))
    assert "default_forward_type of net '' has no effect here" in caplog.text
    assert "global_grad_scale of net '' has no effect here" in caplog.text


@pytest.mark.parametrize("text", ["bn_stats_batch_size: 8\n", ""])
def test_what_would_change_the_result_is_refused(text):
    extra = "" if text else "quantization_param {}"
    field = "bn_stats_batch_size" if text else "quantization_param"
    with pytest.raises(NetError, match=f"{field} is not supported"):
        make_net(text + inputs(x=(2, 3)) + RELU.format(extra=extra))


def test_every_parameter_message_of_caffe_belongs_to_some_type():
    from mgcaffe.engine import registry, unread

    names = {field.name for field in LayerParameter.DESCRIPTOR.fields if field.name.endswith("_param")}
    unclaimed = {name for name in names if not any(unread._belongs(name, kind) for kind in registry.layer_types())}
    assert not unclaimed & {"convolution_param", "pooling_param", "lrn_param", "hdf5_data_param", "tanh_param"}
