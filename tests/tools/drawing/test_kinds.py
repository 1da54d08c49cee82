"""What a picture says of a layer's fields."""

import pytest

from mgcaffe.prototxt import LayerParameter, parse_text
from mgcaffe.tools.drawing.kinds import detail_of


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('type: "Convolution" convolution_param { kernel_size: 7 stride: 2 pad: 3 }', "7x7 /2 pad 3"),
        ('type: "Convolution" convolution_param { kernel_h: 3 kernel_w: 1 }', "3x1"),
        ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', "MAX 3x3 /2"),
        ('type: "Pooling" pooling_param { kernel_h: 2 kernel_w: 4 pad_h: 1 pad_w: 0 }', "MAX 2x4 pad 1x0"),
        ('type: "Pooling" pooling_param { kernel_size: 3 kernel_h: 2 pool: AVE }', "AVE 3x3"),
        ('type: "Pooling" pooling_param { global_pooling: true }', "MAX global"),
    ],
)
def test_windows_are_those_that_the_layer_has(text, detail):
    assert detail_of(parse_text(text, LayerParameter)) == detail
