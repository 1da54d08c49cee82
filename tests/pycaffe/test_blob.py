"""Blobs as scripts see them: shapes, also without values, and arrays that are what the net computes with."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe


@pytest.fixture
def blob(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 5 } } }\n'
        'layer { name: "r" type: "ReLU" bottom: "x" top: "y" }\n'
    )
    net = caffe.Net(str(path), caffe.TEST)
    return net.blobs["x"]


def test_a_blob_begins_with_zeros_in_its_shape(blob):
    assert (blob.num, blob.channels, blob.height, blob.width) == (2, 3, 4, 5)
    assert (blob.count, tuple(blob.shape)) == (120, (2, 3, 4, 5))
    assert blob.data.dtype == np.float32
    assert not blob.data.any()


@pytest.mark.parametrize("shape", [(5, 2), (7,), (1, 2, 3, 4, 5), (2, 3, 4, 5)])
def test_a_blob_takes_any_shape(blob, shape):
    blob.reshape(*shape)
    assert (tuple(blob.shape), blob.count) == (shape, int(np.prod(shape)))
    assert blob.data.shape == blob.diff.shape == shape


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_a_blob_may_have_no_values(blob, shape):
    blob.reshape(*shape)
    assert (tuple(blob.shape), blob.count) == (shape, 0)
    assert blob.data.shape == shape


def test_a_blob_that_grows_again_has_what_lay_in_its_memory(blob):
    """Caffe's Blob::Reshape allocates anew only above the capacity; then all values are zeros."""
    blob.data.flat = np.arange(120)
    blob.diff.flat = -np.arange(120)
    for shape in ((1, 3, 4, 5), (0, 3, 4, 5), (7,), (3, 1, 5)):
        blob.reshape(*shape)
        np.testing.assert_array_equal(blob.data.ravel(), np.arange(blob.count))
        np.testing.assert_array_equal(blob.diff.ravel(), -np.arange(blob.count))
    blob.data[0] = 9
    blob.reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(blob.data.ravel(), [9] * 5 + list(range(5, 120)))
    blob.reshape(121)
    assert not blob.data.any() and not blob.diff.any()


def test_data_and_diff_are_two_arrays_of_which_each_read_gives_the_same_values(blob):
    blob.data[...] = 3
    blob.diff[...] = 4
    assert (blob.data == 3).all()
    assert (blob.diff == 4).all()
    blob.data[1, 2] += 1
    assert blob.data.sum() == 3 * 120 + 20
