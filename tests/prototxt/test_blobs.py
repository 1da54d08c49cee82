"""Blobs: arrays go in and come out whole, and impossible shapes are refused without allocating."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import BlobProto, blob_array, blob_shape, fill_blob, messages


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_what_was_filled_comes_back(array):
    blob = BlobProto()
    fill_blob(blob, array)
    fill_blob(blob, array, diff=True)
    back = BlobProto.FromString(blob.SerializeToString())
    for values in (blob_array(back), blob_array(back, diff=True)):
        assert values.shape == array.shape
        np.testing.assert_array_equal(values, array)


def test_doubles_stay_doubles_and_win():
    blob = BlobProto()
    fill_blob(blob, np.array([1 / 3, 2.0]))
    assert list(blob.double_data) == [1 / 3, 2.0]
    blob.data.extend([7, 7])
    assert blob_array(blob).dtype == np.float64
    assert blob_array(blob)[0] == 1 / 3


def test_everything_else_is_stored_as_floats():
    blob = BlobProto()
    fill_blob(blob, np.arange(6).reshape(2, 3).T)
    assert (list(blob.shape.dim), list(blob.data)) == ([3, 2], [0, 3, 1, 4, 2, 5])


def test_filling_again_replaces():
    blob = BlobProto(num=9, double_data=[1], diff=[5])
    fill_blob(blob, np.zeros(2, np.float32))
    assert blob == BlobProto(data=[0, 0], diff=[5], shape=messages.BlobShape(dim=[2]))


def test_legacy_axes_give_four_and_win():
    blob = BlobProto(num=1, height=2, width=3, channels=1, data=range(6))
    blob.shape.dim.append(6)
    assert blob_shape(blob) == (1, 1, 2, 3)
    assert blob_array(blob).shape == (1, 1, 2, 3)
    assert blob_shape(BlobProto(width=4)) == (0, 0, 0, 4)


def test_a_blob_without_axes_is_one_number():
    assert blob_array(BlobProto(data=[3])).shape == ()


@pytest.mark.parametrize(
    ("dims", "says"),
    [
        ([2**31, 2**31, 2**31], "holds 3 values in 'data' instead of 9903520314283042199192993792"),
        ([-1, -3], "a negative axis: -1x-3"),
        ([2], "a blob of shape 2 holds 3 values in 'data' instead of 2"),
        ([0], "instead of 0"),
        ([1] * 33, "33 axes; the most is 32"),
        ([], r"a blob of shape \(\) holds 3 values"),
    ],
)
def test_hostile_shapes_are_refused(dims, says):
    blob = BlobProto(data=[1, 2, 3])
    blob.shape.dim.extend(dims)
    with pytest.raises(PrototxtError, match=says):
        blob_array(blob)


def test_nvidias_raw_storage_is_read():
    blob = BlobProto(raw_data=np.array([1, 2.5], np.float16).tobytes(), raw_data_type=2)
    blob.shape.dim.append(2)
    np.testing.assert_array_equal(blob_array(blob), [1, 2.5])
    blob.raw_data_type = 3
    with pytest.raises(PrototxtError, match="raw as INT"):
        blob_array(blob)
    blob.raw_data_type = 1
    blob.raw_data += b"x"
    with pytest.raises(PrototxtError, match="no whole number of values"):
        blob_array(blob)


def test_weights_of_ten_million_values_take_no_time():
    array = np.ones(10_000_000, np.float32)
    start = time.perf_counter()
    blob = BlobProto()
    fill_blob(blob, array)
    assert blob_array(blob).sum() == 10_000_000
    assert time.perf_counter() - start < 3
