"""coord_map: what pycaffe's own tests check, and the geometry against nets that really run."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import NetError
from mgcaffe.pycaffe import NetSpec
from mgcaffe.pycaffe import layers as L
from mgcaffe.pycaffe import params as P
from mgcaffe.pycaffe.coord_map import (
    AxisMismatchException,
    compose,
    coord_map,
    coord_map_from_to,
    crop,
    crop_params,
    inverse,
)
from tests.support.pycaffe_nets import write


def spec(ks=3, stride=1, pad=0, pool=2, dstride=2, dpad=0):
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[2, 1, 100, 100]))
    n.aux = L.Input(shape=dict(dim=[2, 1, 20, 20]))
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=ks, stride=stride, pad=pad)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=pool, stride=pool, pad=0)
    n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=dstride, stride=dstride, pad=dpad)
    return n


def test_conv_pool_deconv():
    n = spec()
    axis, scale, shift = coord_map_from_to(n.deconv, n.data)
    assert (axis, scale, shift) == (1, 1, 1)
    axis, scale, shift = coord_map_from_to(n.pool, n.data)
    assert (axis, scale, shift) == (1, 2, 1.5)
    axis, scale, shift = coord_map_from_to(n.data, n.pool)
    assert (axis, scale, shift) == (1, 0.5, -0.75)


def test_maps_are_composed_and_inverted():
    assert compose((1, 2, 3), (None, 4, 5)) == (1, 8, 13)
    assert compose((None, 4, 5), (1, 2, 3)) == (1, 8, 17)
    assert inverse((1, 2, 3)) == (1, 0.5, -1.5)
    there = compose(coord_map(spec().deconv.fn), coord_map(spec().pool.fn))
    assert compose(there, inverse(there)) == (1, 1, 0)
    with pytest.raises(AxisMismatchException, match="the axes behind 1 and 2"):
        compose((1, 2, 3), (2, 4, 5))


def test_pass_through_layers_change_nothing():
    n = spec()
    expected = coord_map_from_to(n.deconv, n.data)
    n.relu = L.ReLU(n.conv)
    n.split = L.Eltwise(n.relu, n.relu)
    n.other = L.Deconvolution(L.Pooling(n.split, kernel_size=2, stride=2), num_output=10, kernel_size=2, stride=2)
    assert coord_map_from_to(n.other, n.data) == expected
    assert coord_map_from_to(n.relu, n.data) == coord_map_from_to(n.conv, n.data)


def test_padding_of_convolution_adds_and_that_of_deconvolution_takes_off():
    n = spec()
    _, scale, shift = coord_map_from_to(n.deconv, n.data)
    for padding in (0, 3, 10):
        n = spec(pad=padding)
        _, padded_scale, padded_shift = coord_map_from_to(n.deconv, n.data)
        assert (padded_scale, padded_shift) == (scale, shift - padding)
        n = spec(dpad=padding)
        _, padded_scale, padded_shift = coord_map_from_to(n.deconv, n.data)
        assert (padded_scale, padded_shift) == (scale, shift + padding)


def test_several_convolutions_compose():
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 100, 100]))
    n.a = L.Convolution(n.data, num_output=1, kernel_size=4, stride=2)
    n.b = L.Convolution(n.a, num_output=1, kernel_size=3, stride=3, dilation=2)
    _, scale, shift = coord_map_from_to(n.b, n.data)
    assert (scale, shift) == (6, 2 * 2 + 1.5)


def test_rectangular_kernels():
    n3, n5 = spec(ks=3), spec(ks=5, pad=1, dstride=2)
    rect = spec()
    rect.conv = L.Convolution(
        rect.data, num_output=10, kernel_h=3, kernel_w=5, stride_h=1, stride_w=1, pad_h=0, pad_w=1
    )
    rect.pool = L.Pooling(rect.conv, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    rect.deconv = L.Deconvolution(rect.pool, num_output=10, kernel_size=2, stride=2)
    axis, scale, shift = coord_map_from_to(rect.deconv, rect.data)
    assert axis == 1
    assert scale.tolist() == [1, 1]
    assert shift[0] == coord_map_from_to(n3.deconv, n3.data)[2]
    assert shift[1] == coord_map_from_to(n5.deconv, n5.data)[2]


def test_kernel_size_counts_beside_one_of_kernel_h_and_kernel_w():
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 100, 100]))
    n.pool = L.Pooling(n.data, pool=P.Pooling.MAX, kernel_size=4, kernel_h=9, stride=2)
    n.plain = L.Pooling(n.data, pool=P.Pooling.MAX, kernel_size=4, stride=2)
    assert coord_map_from_to(n.pool, n.data) == coord_map_from_to(n.plain, n.data)


def test_convolutions_of_any_number_of_axes():
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[2, 3, 100, 100, 100]))
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=[3, 3, 3], stride=[1, 1, 1], pad=[0, 1, 2])
    n.deconv = L.Deconvolution(n.conv, num_output=10, kernel_size=[3, 3, 3], stride=[1, 1, 1], pad=[0, 1, 2])
    axis, scale, shift = coord_map_from_to(n.deconv, n.data)
    assert (axis, scale.tolist(), shift.tolist()) == (1, [1, 1, 1], [0, 0, 0])
    n.other = L.Convolution(n.conv, num_output=1, kernel_size=[1, 1, 1], axis=2)
    with pytest.raises(NetError, match="axes"):
        coord_map_from_to(n.other, n.data)


def test_crop_of_a_crop():
    n = spec()
    offset = 7
    n.crop = L.Crop(n.deconv, n.data, axis=2, offset=offset)
    _, scale, shift = coord_map_from_to(n.deconv, n.data)
    _, cropped_scale, cropped_shift = coord_map_from_to(n.crop, n.data)
    assert cropped_scale == scale
    assert cropped_shift == shift + offset
    axis, offsets = crop_params(n.crop.fn)
    assert (axis, offsets.tolist()) == (2, [7])


def test_crop_makes_the_layer(tmp_path):
    n = spec(pad=5, dstride=2)
    n.crop = crop(n.deconv, n.data)
    layer = n.to_proto().layer[-1]
    assert (layer.type, list(layer.bottom)) == ("Crop", ["deconv", "data"])
    assert (layer.crop_param.axis, list(layer.crop_param.offset)) == (2, [4])
    net = caffe.Net(write(tmp_path, str(n.to_proto())), caffe.TEST)
    assert net.blobs["crop"].shape == (2, 10, 100, 100)


def test_crop_lays_pixels_over_those_that_they_come_from(tmp_path):
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 16, 16]))
    n.conv = L.Convolution(n.data, num_output=1, kernel_size=3, pad=6, bias_term=False)
    n.score = crop(n.conv, n.data)
    net = caffe.Net(write(tmp_path, str(n.to_proto())), caffe.TEST)
    net.params["conv"][0].data[0, 0] = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal((1, 1, 16, 16))
    np.testing.assert_array_equal(net.forward()["score"], net.blobs["data"].data)


def test_tops_without_a_connection_are_refused():
    n = spec()
    for top in (n.aux, L.InnerProduct(n.data, num_output=3)):
        with pytest.raises(RuntimeError, match="no coordinate map"):
            coord_map_from_to(top, n.data)


def test_a_crop_across_scales_is_refused():
    n = spec()
    with pytest.raises(AssertionError, match="scale"):
        crop(n.pool, n.data)


def test_a_crop_that_begins_outside_is_refused():
    n = spec(dpad=10)
    with pytest.raises(AssertionError, match="begin before"):
        crop(n.deconv, n.data)


def test_a_crop_by_half_a_pixel_is_refused():
    n = spec(ks=2, pad=4)
    n.conv2 = L.Convolution(n.data, num_output=1, kernel_size=2, pad=3)
    with pytest.raises(AssertionError, match="whole number"):
        crop(n.conv2, n.data)


def test_the_map_of_one_layer_leads_from_its_bottom_to_its_top():
    n = spec(ks=3, stride=2, pad=1)
    assert coord_map(n.conv.fn) == (1, 0.5, 0)
