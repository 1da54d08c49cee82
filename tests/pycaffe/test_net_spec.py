"""NetSpec: the nets of pycaffe's own tests, and how Python values become fields."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import parse_net, print_text
from mgcaffe.pycaffe import NetSpec
from mgcaffe.pycaffe import layers as L
from mgcaffe.pycaffe import params as P
from tests.support.pycaffe_nets import write


def lenet(batch_size):
    n = NetSpec()
    n.data, n.label = L.DummyData(
        shape=[dict(dim=[batch_size, 1, 28, 28]), dict(dim=[batch_size, 1, 1, 1])],
        transform_param=dict(scale=1.0 / 255),
        ntop=2,
    )
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, weight_filler=dict(type="xavier"))
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool2, num_output=500, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n.to_proto()


def anonymous_lenet(batch_size):
    data, label = L.DummyData(shape=[dict(dim=[batch_size, 1, 28, 28]), dict(dim=[batch_size, 1, 1, 1])], ntop=2)
    conv1 = L.Convolution(data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    pool1 = L.Pooling(conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    ip1 = L.InnerProduct(pool1, num_output=500, weight_filler=dict(type="xavier"))
    relu1 = L.ReLU(ip1, in_place=True)
    ip2 = L.InnerProduct(relu1, num_output=10, weight_filler=dict(type="xavier"))
    return L.SoftmaxWithLoss(ip2, label).to_proto()


def load(tmp_path, proto):
    assert parse_net(print_text(proto)).param == proto
    return caffe.Net(write(tmp_path, str(proto)), caffe.TEST)


def test_lenet(tmp_path):
    proto = lenet(5)
    assert [layer.name for layer in proto.layer] == [
        "data", "conv1", "pool1", "conv2", "pool2", "ip1", "relu1", "ip2", "loss",
    ]  # fmt: skip
    relu = proto.layer[6]
    assert (list(relu.bottom), list(relu.top)) == (["ip1"], ["ip1"])
    assert list(proto.layer[7].bottom) == ["ip1"]
    net = load(tmp_path, proto)
    assert net.blobs["pool2"].shape == (5, 50, 4, 4)
    net.forward()


def test_tops_without_names_get_some(tmp_path):
    proto = anonymous_lenet(2)
    assert [layer.name for layer in proto.layer] == [
        "DummyData1", "Convolution1", "Pooling1", "InnerProduct1", "ReLU1", "InnerProduct2", "SoftmaxWithLoss1",
    ]  # fmt: skip
    assert list(proto.layer[0].top) == ["DummyData1", "DummyData2"]
    load(tmp_path, proto).forward()


def test_a_layer_without_tops(tmp_path):
    n = NetSpec()
    n.data, n.data2 = L.DummyData(shape=dict(dim=3), ntop=2)
    n.silence_data = L.Silence(n.data, ntop=0)
    n.silence_data2 = L.Silence(n.data2, ntop=0)
    net = load(tmp_path, n.to_proto())
    assert len(net.forward()) == 0
    assert net._layer_names[1:] == ["silence_data", "silence_data2"]


def test_an_input_that_is_no_top_is_refused():
    with pytest.raises(TypeError, match=r"^Data input 0 is not a Top \(type is <class 'list'>\)$"):
        L.Data([L.Input()])
    with pytest.raises(TypeError, match=r"^Eltwise input 1 is not a Top \(type is <class 'int'>\)$"):
        L.Eltwise(L.Input(), 3)


def test_in_place_needs_as_many_tops_as_inputs():
    with pytest.raises(UsageError, match="in_place"):
        L.Eltwise(L.Input(), L.Input(), in_place=True)


def test_values_become_fields_of_the_type_or_of_the_layer():
    top = L.Convolution(
        L.Input(shape=[dict(dim=[1, 2, 3, 4])]),
        name="first",
        num_output=np.int64(4),
        kernel_size=[3, 5],
        engine=P.Convolution.CUDNN,
        param=[dict(lr_mult=1, decay_mult=1), dict(lr_mult=2)],
        include=dict(phase=caffe.TEST),
        bias_filler=dict(type="constant", value=np.float32(0.5)),
        loss_weight=1,
    )
    layer = top.to_proto().layer[1]
    assert layer.name == "first"
    assert (layer.convolution_param.num_output, list(layer.convolution_param.kernel_size)) == (4, [3, 5])
    assert layer.convolution_param.engine == P.Convolution.CUDNN == 2
    assert [spec.lr_mult for spec in layer.param] == [1, 2]
    assert layer.include[0].phase == caffe.TEST
    assert layer.convolution_param.bias_filler.value == 0.5
    assert list(layer.loss_weight) == [1]
    python = L.Python(module="m", layer="l", param_str="s").to_proto().layer[0]
    assert (python.python_param.module, python.python_param.param_str) == ("m", "s")
    nested = L.Crop(L.Input(), L.Input(), crop_param=dict(axis=2, offset=[1, 2])).to_proto().layer[2]
    assert (nested.crop_param.axis, list(nested.crop_param.offset)) == (2, [1, 2])


def test_a_script_may_set_fields_by_itself():
    solver = caffe.proto.caffe_pb2.SolverParameter()
    caffe.net_spec.assign_proto(solver, "base_lr", 0.5)
    caffe.net_spec.assign_proto(solver, "test_iter", 7)
    caffe.net_spec.assign_proto(solver, "net_param", dict(layer=[dict(name="a", type="ReLU"), dict(name="b")]))
    assert (solver.base_lr, list(solver.test_iter)) == (0.5, [7])
    assert [(layer.name, layer.type) for layer in solver.net_param.layer] == [("a", "ReLU"), ("b", "")]


def test_the_names_of_parameter_messages_are_those_of_caffe():
    from mgcaffe.pycaffe.net_spec import _param_names, param_name_dict

    assert param_name_dict() == _param_names
    assert [_param_names[kind] for kind in ("Convolution", "InnerProduct", "LRN")] == [
        "convolution",
        "inner_product",
        "lrn",
    ]


def test_fields_that_do_not_exist_or_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="Convolution have no field 'kernels'"):
        L.Convolution(L.Input(), kernels=3).to_proto()
    with pytest.raises(ValueError, match="num_output cannot be 'many'"):
        L.Convolution(L.Input(), num_output="many").to_proto()
    with pytest.raises(ValueError, match="FillerParameter has no field 'kind'"):
        L.Convolution(L.Input(), weight_filler=dict(kind="xavier")).to_proto()
    with pytest.raises(AttributeError, match="PoolParameter"):
        _ = P.Pool.MAX


def test_tops_are_items_and_attributes():
    n = NetSpec()
    n["data"] = L.Input(shape=dict(dim=[1]))
    assert n["data"] is n.data
    assert list(n.tops) == ["data"]
    for error in (AttributeError, KeyError):
        with pytest.raises(error, match="no top 'label'"):
            _ = n.label
    with pytest.raises(TypeError, match="made of tops"):
        n.label = 3
        n.to_proto()


def test_a_deep_net_is_written():
    top = L.Input(shape=dict(dim=[1]))
    for _ in range(2000):
        top = L.ReLU(top)
    assert len(caffe.to_proto(top).layer) == 2001


def test_a_shared_layer_is_written_once():
    data = L.Input(shape=dict(dim=[1]))
    left, right = L.ReLU(data), L.Sigmoid(data)
    assert [layer.type for layer in caffe.to_proto(left, right).layer] == ["Input", "ReLU", "Sigmoid"]
