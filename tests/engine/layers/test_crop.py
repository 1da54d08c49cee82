"""Crop: which part is cut out, of how many axes, and what flows back."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net

SHAPE, SIZE = (3, 4, 6, 5), (2, 3, 4, 2)


def crop(fields: str = "", shape=SHAPE, size=SIZE):
    text = f'name: "c" type: "Crop" bottom: "x" bottom: "r" top: "y" crop_param {{ {fields} }}'
    return make_layer(text, [shape, size])


@pytest.mark.parametrize(
    ("fields", "top"),
    [("", (3, 4, 4, 2)), ("axis: 0", SIZE), ("axis: -3", (3, 3, 4, 2)), ("axis: 3", (3, 4, 6, 2))],
)
def test_setup(fields, top):
    assert crop(fields)[1] == [top]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ("axis: 0", (slice(0, 2), slice(0, 3), slice(0, 4), slice(0, 2))),
        ("axis: 0 offset: 1", (slice(1, 3), slice(1, 4), slice(1, 5), slice(1, 3))),
        ("axis: 0 offset: 0 offset: 1 offset: 2 offset: 3", (slice(0, 2), slice(1, 4), slice(2, 6), slice(3, 5))),
        ("offset: 1 offset: 2", (slice(0, 3), slice(0, 4), slice(1, 5), slice(2, 4))),
    ],
)
def test_agrees_with_autograd(fields, window, layout):
    layer, _ = crop(fields)
    bottoms = [random_input(SHAPE, layout), random_input(SIZE, seed=8)]
    check_against_autograd(layer, bottoms, lambda x, r: x[window])


def test_five_axes():
    shape, size = (2, 2, 3, 4, 3), (2, 2, 2, 2, 1)
    layer, (top,) = crop("offset: 1 offset: 2 offset: 0", shape, size)
    assert top == size
    bottoms = [random_input(shape), random_input(size)]
    check_gradients(layer, bottoms)
    check_against_autograd(layer, bottoms, lambda x, r: x[:, :, 1:3, 2:4, 0:1])


@pytest.mark.parametrize(
    ("fields", "size", "warns"),
    [("", (3, 4, 6, 4), True), ("", SHAPE, False), ("", (1, 1, 6, 5), False), ("crop_param { }", (3, 4, 6, 4), False)],
)
def test_a_crop_whose_offset_is_not_given_says_where_it_begins(caplog, fields, size, warns):
    make_layer(f'name: "edge" type: "Crop" bottom: "x" bottom: "r" top: "y" {fields}', [SHAPE, size])
    assert ("Crop without crop_param begins at offset 0 (layer 'edge')" in caplog.text) == warns


def test_the_top_is_a_view():
    layer, _ = crop()
    x = random_input(SHAPE)
    assert layer.tops_share_bottoms
    assert layer.forward([x, random_input(SIZE)])[0].data_ptr() == x.data_ptr()


def test_a_blob_that_learns_may_lend_its_size():
    text = (
        inputs(x=(1, 1, 4, 4), small=(1, 1, 2, 2), t=(1, 1, 2, 2))
        + 'layer { name: "b" type: "Bias" bottom: "small" top: "r" }\n'
        'layer { name: "s" type: "Scale" bottom: "x" top: "h" }\n'
        'layer { name: "c" type: "Crop" bottom: "h" bottom: "r" top: "y" }\n'
        'layer { name: "l" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "l" }\n'
    )
    net = make_net(text)
    net.blobs["x"].data.fill_(1)
    net.forward_backward()
    bias, scale = net.parameters
    assert bias.diff.item() == 0
    assert scale.diff.item() == 4


@pytest.mark.parametrize(
    ("fields", "shape", "size", "message"),
    [
        (
            "offset: 3",
            SHAPE,
            SIZE,
            "size 4 at offset 3 does not fit into axis 2 of bottom 0, which has size 6",
        ),
        ("", (2, 3, 3, 3), (2, 3, 3, 4), "a crop of size 4 at offset 0 does not fit into axis 3"),
        ("offset: 1 offset: 1 offset: 1", SHAPE, SIZE, "3 offsets are given for 2 axes"),
        ("", SHAPE, (2, 3), "the bottoms need as many axes"),
        ("axis: 4", SHAPE, SIZE, "axis 4 does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(fields, shape, size, message):
    with pytest.raises(NetError, match=message):
        crop(fields, shape, size)


def test_a_size_of_zero_gives_an_empty_top():
    layer, (top,) = crop("", (2, 3, 4, 4), (2, 3, 0, 4))
    assert layer.forward([torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 0, 4)])[0].shape == top == (2, 3, 0, 4)
