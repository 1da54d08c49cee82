"""In what two files of weights differ."""

import numpy as np

from mgcaffe.prototxt import NetParameter, blob_array, fill_blob
from mgcaffe.tools.surgery.weights_diff import diff_weights
from tests.support.surgerykit import SMALL, full, layer


def copy(net):
    made = NetParameter()
    made.CopyFrom(net)
    return made


def test_equal_weights_are_equal_also_where_one_has_an_old_shape():
    net = full(SMALL)
    assert diff_weights(net, copy(net)).equal
    old = copy(net)
    blob = layer(old, "ip").blobs[1]
    values = blob_array(blob).tolist()
    blob.Clear()
    blob.num = blob.channels = blob.height = 1
    blob.width = 5
    blob.data.extend(values)
    assert diff_weights(net, old).equal


def test_differences_are_absolute_and_relative_to_the_largest_value():
    net = full(SMALL)
    other = copy(net)
    values = np.zeros(5, np.float32)
    values[1] = 4
    fill_blob(layer(net, "ip").blobs[1], values)
    values = values.copy()
    values[0] = 1
    fill_blob(layer(other, "ip").blobs[1], values)
    found = diff_weights(net, other)
    assert not found.equal and [row.equal for row in found.blobs] == [True, True, True, False]
    row = found.blobs[-1]
    assert (row.layer, row.blob, row.largest_absolute, row.largest_relative) == ("ip", 1, 1.0, 0.25)


def test_other_shapes_missing_blobs_and_missing_layers_are_differences():
    net = full(SMALL)
    other = copy(net)
    fill_blob(layer(other, "conv").blobs[0], np.zeros((4, 3, 2, 2), np.float32))
    del layer(other, "conv").blobs[1]
    layer(other, "ip").name = "fc"
    found = diff_weights(net, other)
    assert (found.only_in_a, found.only_in_b) == (["ip"], ["fc"])
    assert [(row.shape_a, row.shape_b, row.largest_absolute) for row in found.blobs] == [
        ((4, 3, 3, 3), (4, 3, 2, 2), None),
        ((4,), None, None),
    ]
    assert not found.equal


def test_a_value_that_is_not_finite_is_infinitely_far_off_unless_both_have_it():
    net = full(SMALL)
    other = copy(net)
    fill_blob(layer(other, "ip").blobs[1], np.full(5, np.nan, np.float32))
    assert diff_weights(net, other).blobs[-1].largest_relative == np.inf
    assert diff_weights(other, copy(other)).equal
