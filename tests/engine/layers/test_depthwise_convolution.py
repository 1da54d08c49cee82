"""DepthwiseConvolution and its other name: a grouped convolution under autograd."""

import pytest
from torch.nn import functional

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (2, 4, 7, 6)
TYPES = ("DepthwiseConvolution", "ConvolutionDepthwise")
FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'


def depthwise(kind: str, fields: str, shape: tuple[int, ...] = SHAPE):
    text = f'name: "d" type: "{kind}" bottom: "x" top: "y" convolution_param {{ {fields} {FILLERS} }}'
    return make_layer(text, [shape])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("numbers", ["", "group: 4", "num_output: 4", "num_output: 4 group: 4"])
def test_agrees_with_autograd(numbers, kind, layout):
    layer, (shape,) = depthwise(kind, f"kernel_size: 3 stride: 2 pad: 1 {numbers}")
    assert shape == (2, 4, 4, 3)
    assert [parameter.shape for parameter in layer.parameters] == [(4, 1, 3, 3), (4,)]

    def function(x, weight, bias):
        return functional.conv2d(x, weight, bias, stride=2, padding=1, groups=4)

    check_against_autograd(layer, [random_input(SHAPE, layout)], function)


def test_all_fields_of_a_convolution_count():
    fields = (
        "kernel_h: 3 kernel_w: 1 stride_h: 1 stride_w: 2 pad_h: 2 pad_w: 0 dilation: 2 dilation: 1 bias_term: false"
    )
    layer, _ = depthwise(TYPES[0], fields)

    def function(x, weight):
        return functional.conv2d(x, weight, None, stride=(1, 2), padding=(2, 0), dilation=(2, 1), groups=4)

    check_against_autograd(layer, [random_input(SHAPE)], function)


@pytest.mark.parametrize("kind", TYPES)
def test_gradient_agrees_with_differences(kind):
    check_gradients(depthwise(kind, "kernel_size: 2", (1, 3, 3, 4))[0], [random_input((1, 3, 3, 4))])


def test_what_is_saved_is_what_was_given():
    layer, _ = depthwise(TYPES[0], "kernel_size: 3")
    assert not layer.param.convolution_param.HasField("group")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("kernel_size: 3 group: 2", "group is 2, but the bottom has 4 channels"),
        ("kernel_size: 3 num_output: 8", "num_output is 8, but the bottom has 4 channels"),
        ("", "kernel_size"),
    ],
)
def test_what_does_not_fit_is_an_error(fields, message):
    with pytest.raises(NetError, match=message):
        depthwise(TYPES[0], fields)
