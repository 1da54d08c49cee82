"""Which blobs are one memory: those that Caffe's ShareData and ShareDiff make so, and no others; and which stay so."""

import itertools

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from tests.support.pycaffe_nets import net

BEFORE = """
force_backward: true
layer { name: "x" type: "Input" top: "x" top: "z"
  input_param { shape { dim: 4 dim: 4 dim: 5 dim: 5 } shape { dim: 4 dim: 4 dim: 5 dim: 5 } } }
layer { name: "p" type: "Power" bottom: "x" top: "p" power_param { scale: 2 } }
layer { name: "q" type: "Power" bottom: "z" top: "q" power_param { scale: 2 } }
"""
APART = [
    'type: "Eltwise" bottom: "p" bottom: "q" top: "t"',
    'type: "Concat" bottom: "p" bottom: "q" top: "t"',
    'type: "Slice" bottom: "p" top: "t" top: "u"',
    'type: "Dropout" bottom: "p" top: "t"',
    'type: "Crop" bottom: "p" bottom: "q" top: "t" crop_param { offset: 0 }',
    'type: "Tile" bottom: "p" top: "t" tile_param { tiles: 1 }',
    'type: "Bias" bottom: "p" bottom: "q" top: "t" bias_param { axis: 0 }',
]
SHARED = [
    'type: "Flatten"',
    'type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }',
    'type: "Concat"',
    'type: "Slice"',
    'type: "Permute" permute_param { order: 0 order: 1 }',
]


def run(folder, layer, before=BEFORE):
    """A net that has run both ways, with gradients of ones at its end."""
    made = net(folder, f'{before} layer {{ name: "t" {layer} }}', caffe.TEST)
    made.forward()
    for name in made.outputs:
        made.blobs[name].diff[...] = 1
    made.backward()
    return made


@pytest.mark.parametrize("layer", APART)
def test_what_is_written_into_one_blob_does_not_show_in_another(tmp_path, layer):
    for one, other in itertools.combinations(run(tmp_path, layer).blobs.values(), 2):
        assert not np.shares_memory(one.data, other.data)
        assert not np.shares_memory(one.diff, other.diff)


@pytest.mark.parametrize("bottom", ["p", "x"])
@pytest.mark.parametrize("layer", SHARED)
def test_a_blob_under_another_name_or_shape_is_the_same_memory(tmp_path, layer, bottom):
    before = BEFORE if bottom == "p" else BEFORE[: BEFORE.index('layer { name: "p"')]  # x has one reader
    made = run(tmp_path, f'{layer} bottom: "{bottom}" top: "t"', before)
    for number in (1, 2):
        made.blobs["t"].data[...] = 3 * number
        made.blobs["t"].diff[...] = 4 * number
        assert (made.blobs[bottom].data == 3 * number).all()
        assert (made.blobs[bottom].diff == 4 * number).all()
        made.backward()


def test_the_gradient_of_a_split_with_one_top_has_its_own_memory(tmp_path):
    made = run(tmp_path, 'type: "Split" bottom: "p" top: "t"')
    assert np.shares_memory(made.blobs["t"].data, made.blobs["p"].data)
    assert not np.shares_memory(made.blobs["t"].diff, made.blobs["p"].diff)


def test_a_hook_that_writes_one_bottom_s_gradient_leaves_the_other_bottom_s(tmp_path):
    made = net(tmp_path, f'{BEFORE} layer {{ name: "t" {APART[0]} }}')
    made.forward()
    made.blobs["t"].diff[...] = 1

    def halve(layer):
        if made._layer_names[layer] == "t":
            for name in ("p", "q"):
                made.blobs[name].diff[...] *= 0.5

    made.after_backward(halve)
    for _ in range(2):
        gradients = made.backward()
        assert (gradients["x"] == 1).all()
        assert (gradients["z"] == 1).all()
        assert (made.blobs["t"].diff == 1).all()


def test_the_arrays_of_an_input_stay_the_same_ones(tmp_path):
    made = net(tmp_path, f'{BEFORE} layer {{ name: "t" {APART[0]} }}')
    data, gradient = made.blobs["x"].data, made.blobs["x"].diff
    for number in (1, 2):
        data[...] = number
        made.forward()
        made.blobs["t"].diff[...] = number
        made.backward()
        assert (made.blobs["t"].data == 2 * number).all()
        assert (gradient == 2 * number).all()
        assert np.shares_memory(made.blobs["x"].diff, gradient)
