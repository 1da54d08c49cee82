"""MVN: means, variances and gradients, in all modes."""

import pytest
import torch

from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net

SHAPE = (2, 3, 4, 5)
MODES = {
    "": (2, True),
    "across_channels: true": (1, True),
    "normalize_variance: false": (2, False),
    "normalize_variance: false across_channels: true": (1, False),
}


def mvn(fields: str = "", shape=SHAPE):
    return make_layer(f'name: "m" type: "MVN" bottom: "x" top: "y" mvn_param {{ {fields} }}', [shape])


@pytest.mark.parametrize("fields", MODES)
def test_mean_is_zero_and_variance_one(fields):
    layer, shapes = mvn(fields)
    first, divides = MODES[fields]
    y = layer.forward([random_input(SHAPE) * 3 + 2])[0].flatten(first)
    assert shapes == [SHAPE]
    torch.testing.assert_close(y.mean(-1), torch.zeros(SHAPE[:first], dtype=y.dtype))
    if divides:
        torch.testing.assert_close(y.square().mean(-1), torch.ones(SHAPE[:first], dtype=y.dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", MODES)
def test_agrees_with_autograd(fields, layout):
    first, divides = MODES[fields]

    def function(x):
        rows = x.flatten(first)
        y = rows - rows.mean(-1, keepdim=True)
        return (y / y.square().mean(-1, keepdim=True).sqrt() if divides else y).view(SHAPE)

    # eps, which the gradient takes for constant, is 1e-9.
    check_against_autograd(mvn(fields)[0], [random_input(SHAPE, layout)], function, tolerance=1e-7)


@pytest.mark.parametrize("fields", MODES)
def test_gradient_agrees_with_differences(fields):
    check_gradients(mvn(fields, (2, 2, 3))[0], [random_input((2, 2, 3))])


def test_eps_is_added_to_the_deviation():
    x = torch.tensor([[[-1.0, 1]]], dtype=torch.float64)
    assert mvn("eps: 1", (1, 1, 2))[0].forward([x])[0].flatten().tolist() == [-0.5, 0.5]


def test_a_constant_channel_becomes_zero():
    assert not mvn("", (1, 2, 4))[0].forward([torch.full((1, 2, 4), 7.0)])[0].any()


@pytest.mark.parametrize("fields", MODES)
@pytest.mark.parametrize("shape", [(), (4,), (4, 3), (4, 3, 5), (2, 3, 2, 2)])
def test_the_top_has_four_axes_and_those_that_the_bottom_lacks_are_of_size_one(fields, shape):
    layer, (top,) = mvn(fields, shape)
    first, divides = MODES[fields]
    assert top == (*shape, 1, 1, 1, 1)[:4]

    def function(x):
        rows = x.reshape(top).flatten(first)
        y = rows - rows.mean(-1, keepdim=True)
        return (y / (y.square().mean(-1, keepdim=True) + 1e-40).sqrt() if divides else y).view(top)

    x = random_input(shape)
    if torch.Size(top[first:]).numel() > 1:
        check_against_autograd(layer, [x], function, tolerance=1e-7)
        return
    (y,), (dx,) = forward_backward(layer, [x], [random_input(top, seed=6)])
    assert (y.shape, dx.shape) == (top, shape)
    assert not (y.any() or dx.any())


@pytest.mark.parametrize("fields", MODES)
def test_more_than_four_axes_stay(fields):
    shape = (2, 3, 2, 2, 2)
    layer, (top,) = mvn(fields, shape)
    assert top == shape
    check_gradients(layer, [random_input(shape)])


def net_of(top):
    return make_net(
        inputs(x=(4, 3), t=(4, 6))
        + 'layer { name: "p" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 6'
        ' weight_filler { type: "gaussian" } } }'
        f'layer {{ name: "m" type: "MVN" bottom: "y" top: "{top}" mvn_param {{ across_channels: true }} }}'
        f'layer {{ name: "q" type: "Reshape" bottom: "{top}" top: "z" reshape_param {{ shape {{ dim: 0 dim: -1 }} }} }}'
        'layer { name: "l" type: "EuclideanLoss" bottom: "z" bottom: "t" top: "l" }'
    )


def test_in_place_a_blob_keeps_its_axes_and_a_warning_says_so(caplog):
    apart, together = net_of("n"), net_of("y")
    (message,) = (record.getMessage() for record in caplog.records)
    assert "layer 'm': blob 'y' keeps its 2 axes; in Caffe an MVN layer in place gives it 4" in message
    assert (apart.blobs["n"].shape, together.blobs["y"].shape) == ((4, 6, 1, 1), (4, 6))
    for net in (apart, together):
        net.layers[0].values, net.layers[1].values = [random_input((4, 3))], [random_input((4, 6), seed=8)]
        net.clear_param_diffs()
        net.forward_backward()
    for one, other in zip(apart.parameters, together.parameters, strict=True):
        assert one.diff.any() or one.shape == (6,)
        torch.testing.assert_close(one.diff, other.diff)
