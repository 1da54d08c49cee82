"""BVLC Caffe's tests of its Python interface, one test here for each of theirs: all but nets, layers and solvers.

Classes and tests have the names that they have in python/caffe/test (test_coord_map.py, test_draw.py, test_io.py,
test_layer_type_list.py, test_nccl.py, test_net_spec.py), so that each is found by its name; what they check is written
anew. The rest of those tests is in test_bvlc_net.py.
"""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.prototxt import read_net
from mgcaffe.pycaffe import layers as L
from mgcaffe.pycaffe import params as P
from mgcaffe.pycaffe.coord_map import coord_map_from_to, crop
from tests.support.paths import ROOT
from tests.support.pycaffe_nets import write


def spec(ks=3, stride=1, pad=0, pool=2, dstride=2, dpad=0):
    """Convolution, pooling, and a deconvolution whose kernel is twice its stride."""
    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[2, 1, 100, 100]))
    n.aux = L.Input(shape=dict(dim=[2, 1, 20, 20]))
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=ks, stride=stride, pad=pad)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=pool, stride=pool, pad=0)
    n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=2 * dstride, stride=dstride, pad=dpad)
    return n


def mapped(n):
    return coord_map_from_to(n.deconv, n.data)


class TestCoordMap:
    def test_conv_pool_deconv(self):
        assert mapped(spec()) == (1, 1, 0)
        assert mapped(spec(pool=4, dstride=4)) == (1, 1, -1)

    def test_pass(self):
        n = spec()
        n.relu = L.ReLU(n.deconv)
        n.conv1x1 = L.Convolution(n.relu, num_output=10, kernel_size=1, stride=1, pad=0)
        for top in (n.relu, n.conv1x1):
            assert coord_map_from_to(top, n.data) == mapped(n)

    @pytest.mark.parametrize("pad", [0, 1, 7, 10])
    def test_padding(self, pad):
        _, scale, shift = mapped(spec())
        assert mapped(spec(pad=pad))[1:] == (scale, shift - pad)
        assert mapped(spec(dpad=pad))[1:] == (scale, shift + pad)
        assert mapped(spec(pad=pad, dpad=pad))[1:] == (scale, shift)

    def test_multi_conv(self):
        n = spec()
        n.conv_data, n.conv_aux = L.Convolution(n.data, n.aux, ntop=2, num_output=10, kernel_size=5, stride=2, pad=0)
        assert coord_map_from_to(n.conv_data, n.data) == coord_map_from_to(n.conv_aux, n.aux)

    def test_rect(self):
        axes, scales, shifts = mapped(spec(ks=[3, 5], stride=[1, 2], pad=[0, 10]))
        for index, isotropic in enumerate((spec(ks=3), spec(ks=5, stride=2, pad=10))):
            assert (axes, scales[index], shifts[index]) == mapped(isotropic)

    def test_nd_conv(self):
        n = caffe.NetSpec()
        n.data = L.Input(shape=dict(dim=[2, 3, 100, 100, 100]))
        n.conv = L.Convolution(n.data, num_output=10, kernel_size=[3, 3, 3], stride=[1, 1, 1], pad=[0, 1, 2])
        n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=2, stride=2, pad=0)
        n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=4, stride=2, pad=0)
        axis, scale, shift = mapped(n)
        assert axis == 1 and len(scale) == len(shift) and np.all(scale == 1)
        assert (shift[0] - 1, shift[1] - 1) == (shift[1], shift[2])

    @pytest.mark.parametrize("offset", [0, 3, 10])
    def test_crop_of_crop(self, offset):
        n = spec()
        axis, scale, shift = mapped(n)
        n.crop = L.Crop(n.deconv, n.data, axis=2, offset=offset)
        assert coord_map_from_to(n.crop, n.data) == (axis, scale, shift + offset)

    def test_crop_helper(self):
        n = spec()
        n.crop = crop(n.deconv, n.data)
        assert n.to_proto().layer[-1].type == "Crop"

    def test_catch_unconnected(self):
        n = spec()
        n.ip = L.InnerProduct(n.deconv, num_output=10)
        with pytest.raises(RuntimeError):
            coord_map_from_to(n.ip, n.data)

    def test_catch_scale_mismatch(self):
        n = spec(pool=3, dstride=2)
        with pytest.raises(AssertionError):
            crop(n.deconv, n.data)

    def test_catch_negative_crop(self):
        n = spec(dpad=10)
        with pytest.raises(AssertionError):
            crop(n.deconv, n.data)


class TestDraw:
    def test_draw_net(self):
        """Of every net in models and examples. The text is what Graphviz would make a picture of."""
        files = [
            path
            for folder in ("models", "examples")
            for path in sorted((ROOT / folder).rglob("*.prototxt"))
            if "solver" not in path.name
        ]
        assert len(files) > 10
        for path in files:
            text = caffe.draw.draw_net(read_net(path), "LR", "dot").decode()
            assert text.startswith("digraph") and "rankdir=LR;" in text, path


class TestBlobProtoToArray:
    @pytest.fixture
    def blob(self):
        return caffe.proto.caffe_pb2.BlobProto(data=np.zeros(100))

    def test_old_format(self, blob):
        blob.num, blob.channels, blob.height, blob.width = 1, 1, 10, 10
        assert caffe.io.blobproto_to_array(blob).shape == (1, 1, 10, 10)

    def test_new_format(self, blob):
        blob.shape.dim.extend([10, 10])
        assert caffe.io.blobproto_to_array(blob).shape == (10, 10)

    def test_no_shape(self, blob):
        with pytest.raises(ValueError, match="values"):
            caffe.io.blobproto_to_array(blob)

    def test_scalar(self):
        assert caffe.io.blobproto_to_array(caffe.proto.caffe_pb2.BlobProto(data=[123])) == 123


class TestArrayToDatum:
    def test_label_none_size(self):
        array = np.ones((10, 10, 3))
        with_label, without = caffe.io.array_to_datum(array, label=1), caffe.io.array_to_datum(array)
        assert len(with_label.SerializeToString()) > len(without.SerializeToString())


class TestLayerTypeList:
    def test_standard_types(self):
        assert {"Data", "Convolution", "InnerProduct"} <= set(caffe.layer_type_list())


class TestNCCL:
    def test_newuid(self):
        """Caffe asks for an id only where it was built with NCCL, which this never is."""
        assert not caffe.has_nccl()


def lenet(n):
    """Names for all tops in `n`, or none where that is None."""

    def named(name, top):
        if n is not None:
            n[name] = top
        return top

    data, label = L.DummyData(
        shape=[dict(dim=[50, 1, 28, 28]), dict(dim=[50, 1, 1, 1])], transform_param=dict(scale=1.0 / 255), ntop=2
    )
    named("data", data)
    named("label", label)
    xavier = dict(type="xavier")
    conv1 = named("conv1", L.Convolution(data, kernel_size=5, num_output=20, weight_filler=xavier))
    pool1 = named("pool1", L.Pooling(conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX))
    conv2 = named("conv2", L.Convolution(pool1, kernel_size=5, num_output=50, weight_filler=xavier))
    pool2 = named("pool2", L.Pooling(conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX))
    ip1 = named("ip1", L.InnerProduct(pool2, num_output=500, weight_filler=xavier))
    relu1 = named("relu1", L.ReLU(ip1, in_place=True))
    ip2 = named("ip2", L.InnerProduct(relu1, num_output=10, weight_filler=xavier))
    loss = named("loss", L.SoftmaxWithLoss(ip2, label))
    return loss.to_proto() if n is None else n.to_proto()


class TestNetSpec:
    @pytest.mark.parametrize("is_named", [True, False])
    def test_lenet(self, tmp_path, is_named):
        proto = lenet(caffe.NetSpec() if is_named else None)
        relu = proto.layer[6]
        assert relu.type == "ReLU" and list(relu.bottom) == list(relu.top)
        made = caffe.Net(write(tmp_path, str(proto)), caffe.TEST)
        assert len(made.layers) == 9

    def test_zero_tops(self, tmp_path):
        n = caffe.NetSpec()
        n.data, n.data2 = L.DummyData(shape=dict(dim=3), ntop=2)
        n.silence_data = L.Silence(n.data, ntop=0)
        n.silence_data2 = L.Silence(n.data2, ntop=0)
        assert len(caffe.Net(write(tmp_path, str(n.to_proto())), caffe.TEST).forward()) == 0

    def test_type_error(self):
        data = L.DummyData(ntop=2)
        with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
            L.Silence(data, ntop=0)
        L.Silence(*data, ntop=0)
