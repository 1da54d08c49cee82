import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net

GAUSSIAN = 'weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" std: 0.5 }'


def text(fields: str, bottoms: int = 1, layer_type: str = "Convolution") -> str:
    names = " ".join(f'bottom: "x{i}" top: "y{i}"' for i in range(bottoms))
    return f'name: "conv" type: "{layer_type}" {names} convolution_param {{ {fields} {GAUSSIAN} }}'


def conv_reference(x: np.ndarray, weight: np.ndarray, stride: int, pad: int, dilation: int, groups: int) -> np.ndarray:
    """The definition, value by value, for any number of axes."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(pad, pad)] * rank)
    kernel = weight.shape[2:]
    out = [(x.shape[2 + a] - dilation * (kernel[a] - 1) - 1) // stride + 1 for a in range(rank)]
    y = np.zeros((x.shape[0], weight.shape[0], *out))
    per_group = weight.shape[0] // groups
    for n, o in itertools.product(range(x.shape[0]), range(weight.shape[0])):
        first = o // per_group * weight.shape[1]
        for p in itertools.product(*map(range, out)):
            window = tuple(
                slice(i * stride, i * stride + dilation * (k - 1) + 1, dilation) for i, k in zip(p, kernel, strict=True)
            )
            y[(n, o, *p)] = (x[(n, slice(first, first + weight.shape[1]), *window)] * weight[o]).sum()
    return y


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "group"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (2, 1, 2, 2)]
)
@pytest.mark.parametrize("size", [(), (7,), (6, 5), (5, 4, 5), (4, 3, 4, 3)], ids=lambda size: f"{len(size)}axes")
def test_any_number_of_axes_agrees_with_the_definition(size, stride, pad, dilation, group) -> None:
    if not size and (stride, pad, dilation) != (1, 0, 1):
        stride, pad, dilation = 1, 0, 1
    kernel = 2
    fields = f"num_output: 4 kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation} group: {group}"
    shape = (2, 4, *size)
    layer, (top_shape,) = make_layer(text(fields), [shape])
    x = random_input(shape)
    (y,), _ = forward_backward(layer, [x], [torch.ones(top_shape, dtype=torch.float64)])
    weight, bias = (parameter.data for parameter in layer.parameters)
    expected = conv_reference(x.numpy(), weight.numpy(), stride, pad, dilation, group)
    expected += bias.numpy().reshape(-1, *[1] * len(size))
    assert tuple(y.shape) == top_shape
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [(), (5,), (4, 3), (3, 2, 3), (3, 2, 2, 2)], ids=lambda size: f"{len(size)}axes")
@pytest.mark.parametrize("group", [1, 2])
def test_gradients(size, group) -> None:
    fields = f"num_output: 2 kernel_size: 2 pad: 1 stride: 2 group: {group}"
    layer, _ = make_layer(text(fields), [(2, 2, *size)])
    check_gradients(layer, [random_input((2, 2, *size))])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation", "group"),
    [
        (1, 1, 0, 1, 1),
        (1, 2, 0, 1, 1),
        (1, 1, 1, 1, 1),
        (3, 1, 1, 1, 1),
        (3, 2, 0, 1, 2),
        (5, 1, 2, 1, 4),
        (3, 1, 2, 2, 1),
        (7, 2, 3, 1, 1),
    ],
)
def test_agrees_with_torch_in_every_layout(layout, dtype, kernel, stride, pad, dilation, group) -> None:
    fields = f"num_output: 8 kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation} group: {group}"
    shape = (3, 4, 9, 11)
    layer, (top_shape,) = make_layer(text(fields), [shape], dtype=dtype)
    x = random_input(shape, layout).to(dtype)
    dy = random_input(top_shape, layout, seed=6).to(dtype)
    (y,), (dx,) = forward_backward(layer, [x], [dy])

    leaves = [x.clone().requires_grad_(), *(p.data.clone().requires_grad_() for p in layer.parameters)]
    expected = functional.conv2d(*leaves, stride, pad, dilation, group)
    expected.backward(dy)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(y, expected.detach(), **tolerance)
    for ours, leaf in zip([dx, *(p.diff for p in layer.parameters)], leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad, **tolerance)


def test_channels_last_stays_channels_last() -> None:
    for fields in ("num_output: 8 kernel_size: 1", "num_output: 8 kernel_size: 3 pad: 1"):
        layer, (top_shape,) = make_layer(text(fields), [(2, 4, 6, 6)], dtype=torch.float32)
        x = random_input((2, 4, 6, 6), "channels_last").float()
        dy = random_input(top_shape, "channels_last").float()
        (y,), (dx,) = forward_backward(layer, [x], [dy])
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert dx.is_contiguous(memory_format=torch.channels_last)


def test_several_bottoms_share_the_filters() -> None:
    layer, shapes = make_layer(text("num_output: 3 kernel_size: 2", bottoms=2), [(2, 2, 3, 3)] * 2)
    assert shapes == [(2, 3, 2, 2)] * 2
    assert len(layer.parameters) == 2
    check_gradients(layer, [random_input((2, 2, 3, 3)), random_input((2, 2, 3, 3), seed=8)])


@pytest.mark.parametrize(
    ("axis", "shape", "top"),
    [(2, (2, 3, 4, 5, 5), (2, 3, 2, 4, 4)), (-2, (2, 3, 4, 5), (2, 3, 2, 4)), (0, (4, 5), (2, 4))],
)
def test_axis_names_the_channels(axis, shape, top) -> None:
    layer, (top_shape,) = make_layer(text(f"num_output: 2 kernel_size: 2 axis: {axis}"), [shape])
    assert top_shape == top
    check_gradients(layer, [random_input(shape)])


def test_height_and_width_fields() -> None:
    fields = "num_output: 2 kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1 pad_h: 1 bias_term: false"
    layer, (shape,) = make_layer(text(fields), [(1, 2, 7, 6)])
    assert shape == (1, 2, 4, 6)
    assert [parameter.shape for parameter in layer.parameters] == [(2, 2, 3, 1)]


@pytest.mark.parametrize(("hole", "dilation"), [("hole: 2", (2, 2)), ("hole_h: 3 hole_w: 1", (3, 1))])
def test_hole_is_dilation(hole, dilation) -> None:
    layer, (shape,) = make_layer(text(f"num_output: 2 kernel_size: 3 {hole}"), [(1, 2, 9, 9)])
    assert (layer.geometry.dilation, shape) == (dilation, (1, 2, 9 - 2 * dilation[0], 9 - 2 * dilation[1]))


def test_one_number_for_each_axis() -> None:
    fields = "num_output: 2 kernel_size: 3 kernel_size: 2 kernel_size: 1 stride: 1 stride: 2 stride: 1"
    layer, (shape,) = make_layer(text(fields), [(1, 2, 5, 6, 4)])
    assert shape == (1, 2, 3, 3, 4)
    assert layer.macs([(1, 2, 5, 6, 4)], [shape]) == 2 * 3 * 3 * 4 * 2 * 6


def test_a_parameter_with_lr_mult_0_gets_no_gradient() -> None:
    layer, (shape,) = make_layer("param { lr_mult: 0 } " + text("num_output: 2 kernel_size: 1"), [(1, 2, 3, 3)])
    forward_backward(layer, [random_input((1, 2, 3, 3))], [torch.ones(shape, dtype=torch.float64)])
    assert not layer.parameters[0].diff.any()
    assert layer.parameters[1].diff.eq(9).all()


def test_unwanted_bottom_gradient_is_none() -> None:
    layer, (shape,) = make_layer(text("num_output: 2 kernel_size: 1"), [(1, 2, 3, 3)])
    layer.wants_bottom = [False]
    _, diffs = forward_backward(layer, [random_input((1, 2, 3, 3))], [torch.ones(shape, dtype=torch.float64)])
    assert diffs == [None]


LARGER = [(4, 5, 7, 4, 0, 1, 1), (2, 9, 5, 4, 1, 1, 2), (4, 12, 3, 5, 0, 3, 1), (1, 6, 4, 7, 0, 1, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("height", "width", "kernel", "stride", "pad", "dilation", "group"), LARGER)
def test_a_filter_larger_than_the_image_by_less_than_a_stride_meets_zeros_beyond_it(
    layout, height, width, kernel, stride, pad, dilation, group
) -> None:
    """C's division cuts the negative quotient off towards 0."""
    fields = f"num_output: 4 kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation} group: {group}"
    shape, extent = (2, 4, height, width), dilation * (kernel - 1) + 1
    layer, (top_shape,) = make_layer(text(fields), [shape])
    margins = [amount for size in (width, height) for amount in (pad, pad + max(0, extent - size - 2 * pad))]
    assert any(extent > size + 2 * pad for size in (height, width))
    assert top_shape == (2, 4, *(int((size + 2 * pad - extent) / stride) + 1 for size in (height, width)))
    check_against_autograd(
        layer,
        [random_input(shape, layout)],
        lambda x, w, b: functional.conv2d(functional.pad(x, margins), w, b, stride, 0, dilation, group),
    )


@pytest.mark.parametrize("size", [(2,), (2, 3, 2), (2, 2, 3, 2)], ids=lambda size: f"{len(size)}axes")
def test_gradients_of_filters_larger_than_the_image(size) -> None:
    layer, (top_shape,) = make_layer(text("num_output: 2 kernel_size: 3 stride: 2"), [(2, 2, *size)])
    assert top_shape == (2, 2, *[1] * len(size))
    x, dy = random_input((2, 2, *size)), random_input(top_shape, seed=6)
    check_gradients(layer, [x])

    def gradients():
        """Of the bottom, and of weights and bias after two passes."""
        for parameter in layer.parameters:
            parameter.clear_diff()
        for _ in range(2):
            _, (dx,) = forward_backward(layer, [x], [dy])
        return dx, *(parameter.diff.clone() for parameter in layer.parameters)

    dx, weights, bias = gradients()
    for wants, trains in ((True, False), (False, True)):  # each direction alone
        layer.wants_bottom, layer.parameters[0].wanted = [wants], trains
        alone = gradients()
        torch.testing.assert_close(alone[2], bias)
        if wants:
            torch.testing.assert_close(alone[0], dx)
        else:
            assert alone[0] is None
            torch.testing.assert_close(alone[1], weights)


def test_a_filter_that_lacks_a_whole_stride_is_refused_and_shapes_may_change() -> None:
    layer, (top_shape,) = make_layer(text("num_output: 2 kernel_size: 5 stride: 3"), [(1, 2, 3, 9)])
    assert top_shape == (1, 2, 1, 2)
    for shape in ((1, 2, 9, 9), (1, 2, 3, 9)):
        (top_shape,) = layer.reshape([shape])
        x = random_input(shape)
        (y,), (dx,) = forward_backward(layer, [x], [random_input(top_shape)])
        assert (y.shape, dx.shape) == (top_shape, shape)
    with pytest.raises(NetError, match="the filter does not fit"):
        layer.reshape([(1, 2, 2, 9)])


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_a_net_trains_filters_larger_than_the_image(keep_blobs) -> None:
    """Alone and fused with a ReLU, behind BatchNorm, Scale and ReLU, in both formats."""
    conv = f'layer {{ name: "c%d" type: "Convolution" bottom: "%s" top: "%s" convolution_param {{ %s {GAUSSIAN} }} }}'
    layers = [
        conv % (1, "x", "a", "num_output: 16 kernel_size: 1"),
        'layer { name: "n" type: "BatchNorm" bottom: "a" top: "a" }',
        'layer { name: "s" type: "Scale" bottom: "a" top: "a" scale_param { bias_term: true } }',
        'layer { name: "r" type: "ReLU" bottom: "a" top: "a" }',
        conv % (2, "a", "b", "num_output: 8 kernel_size: 5 stride: 3"),
        'layer { name: "q" type: "ReLU" bottom: "b" top: "b" }',
        'layer { name: "l" type: "EuclideanLoss" bottom: "b" bottom: "t" top: "l" }',
    ]
    net = make_net(inputs(x=(2, 3, 3, 4), t=(2, 8, 1, 1)) + "".join(layers), keep_blobs=keep_blobs)
    net.layers[0].values, net.layers[1].values = [random_input((2, 3, 3, 4))], [random_input((2, 8, 1, 1), seed=8)]
    net.clear_param_diffs()
    net.forward_backward()
    x, weights = net.layers[0].values[0], [parameter.data.clone() for parameter in net.parameters]
    leaves = [weight.requires_grad_() for weight in weights]
    a = functional.conv2d(x, leaves[0], leaves[1])
    a = functional.batch_norm(a, None, None, leaves[5], leaves[6], True).relu()
    b = functional.conv2d(functional.pad(a, [0, 1, 0, 2]), leaves[7], leaves[8], 3).relu()
    ((b - net.layers[1].values[0]).square().sum() / 4).backward()
    for number in (0, 5, 6, 7, 8):
        torch.testing.assert_close(net.parameters[number].diff, leaves[number].grad)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("num_output: 2", "kernel_size needs one number"),
        ("kernel_size: 1", "num_output has to be at least 1"),
        ("num_output: 2 kernel_size: 0", "kernel_size has to be at least 1, not 0"),
        ("num_output: 2 kernel_size: 1 stride: 0", "stride has to be at least 1, not 0"),
        ("num_output: 2 kernel_size: 1 dilation: 0", "dilation has to be at least 1, not 0"),
        ("num_output: 2 kernel_size: 1 hole: 2 dilation: 2", "hole is dilation by another name: give one of them only"),
        ("num_output: 2 kernel_h: 3", "kernel_w has to be at least 1, not 0"),
        ("num_output: 2 kernel_size: 1 kernel_h: 3 kernel_w: 3", "either kernel_size or kernel_h and kernel_w"),
        ("num_output: 2 kernel_size: 1 stride: 1 stride_h: 3 stride_w: 3", "either stride or stride_h"),
        ("num_output: 2 kernel_size: 1 pad: 1 pad_w: 3", "either pad or pad_h"),
        ("num_output: 2 kernel_size: 1 kernel_size: 1 kernel_size: 1", "for 2 spatial axes, not 3"),
        ("num_output: 2 kernel_size: 1 pad: 1 pad: 2 pad: 3", "pad needs one number, or 2"),
        ("num_output: 3 kernel_size: 1 group: 2", "group 2 does not divide the num_output, 3"),
        ("num_output: 3 kernel_size: 1 group: 3", "group 3 does not divide the channels"),
        ("num_output: 3 kernel_size: 1 group: 0", "group 0 does not divide"),
        ("num_output: 3 kernel_size: 9", "does not fit"),
        ("num_output: 3 kernel_size: 1 axis: 4", "axis 4 does not exist"),
        ("num_output: 3 kernel_size: 1 relu: true", "relu is a field of another Caffe"),
        ("num_output: 3 axis: 2 kernel_h: 1 kernel_w: 1", "need 2 spatial axes, the bottom has 1"),
    ],
)
def test_wrong_fields_are_errors_that_name_the_layer(fields, message) -> None:
    with pytest.raises(NetError, match=message) as caught:
        make_layer(text(fields), [(1, 2, 5, 5)])
    assert "layer 'conv'" in str(caught.value)


def test_bottoms_of_different_shapes_are_an_error() -> None:
    with pytest.raises(NetError, match="share the filters"):
        make_layer(text("num_output: 2 kernel_size: 1", bottoms=2), [(1, 2, 5, 5), (1, 2, 4, 4)])


def test_the_channels_cannot_change() -> None:
    layer, _ = make_layer(text("num_output: 2 kernel_size: 1"), [(1, 2, 5, 5)])
    assert layer.reshape([(3, 2, 4, 6)]) == [(3, 2, 4, 6)]
    with pytest.raises(NetError, match="need 2 channels"):
        layer.reshape([(1, 3, 5, 5)])


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_the_way_of_computing_that_a_prototxt_asks_for_changes_nothing(kind) -> None:
    x, results = random_input((2, 4, 5, 6)), []
    for way in ("", "force_nd_im2col: true", "engine: CAFFE", "engine: CUDNN"):
        fields = f"num_output: 6 kernel_size: 3 stride: 2 pad: 1 dilation: 1 group: 2 {way}"
        layer, (shape,) = make_layer(text(fields, layer_type=kind), [(2, 4, 5, 6)])
        (y,), (dx,) = forward_backward(layer, [x], [random_input(shape, seed=9)])
        results.append([y, dx, *(parameter.diff for parameter in layer.parameters)])
    assert all(torch.equal(*pair) for others in results[1:] for pair in zip(results[0], others, strict=True))


def test_a_separable_filter_equals_its_two_parts_one_after_the_other() -> None:
    """Sobel's filter: a column 1 2 1 times a row -1 0 1, as one 3 x 3 filter and as two."""

    def run(x, fields, values):
        layer, _ = make_layer(text(f"num_output: 1 bias_term: false {fields}"), [tuple(x.shape)])
        layer.parameters[0].data.copy_(
            torch.tensor(values).expand(1, x.shape[1], -1).reshape(layer.parameters[0].shape)
        )
        return layer.forward([x])[0]

    x = random_input((2, 3, 6, 4))
    whole = run(x, "kernel_size: 3 stride: 2", [-1.0, 0, 1, -2, 0, 2, -1, 0, 1])
    column = run(x, "kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1", [1.0, 2, 1])
    torch.testing.assert_close(run(column, "kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2", [-1.0, 0, 1]), whole)
