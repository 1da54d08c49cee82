"""Where one field is to blame for shapes that do not fit, the error points at it; blobs have the user's names."""

import re

import pytest
import torch

from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError, EngineError
from mgcaffe.prototxt import read_net_source

INPUT = 'layer {{ name: "{0}" type: "Input" top: "{0}" input_param {{ shape {{ {1} }} }} }}\n'


def net_file(tmp_path, layer: str, **shapes: tuple[int, ...]):
    text = "".join(INPUT.format(name, " ".join(f"dim: {size}" for size in shape)) for name, shape in shapes.items())
    file = tmp_path / "net.prototxt"
    file.write_text(text + layer)
    return file


CASES = {
    "reshape: two unknown sizes": (
        'layer { name: "l" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: -1 dim: 2 §dim: -1 } } }'
    ),
    "reshape: sizes that do not divide": (
        'layer { name: "l" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 7 §dim: -1 } } }'
    ),
    "reshape: nothing to copy": (
        'layer { name: "l" type: "Reshape" bottom: "x" top: "y"\n reshape_param { shape { dim: [0, 0, 0, 0, §0] } } }'
    ),
    "inner product: axis": (
        'layer { name: "l" type: "InnerProduct" bottom: "x" top: "y"\n inner_product_param { num_output: 2 §axis: 4 } }'
    ),
    "inner product: outputs": (
        'layer { name: "l" type: "InnerProduct" bottom: "x" top: "y"\n inner_product_param { §num_output: 0 axis: 1 } }'
    ),
    "slice: points": (
        'layer { name: "l" type: "Slice" bottom: "x" top: "a" top: "b" top: "c"\n'
        " slice_param { slice_point: 2 §slice_point: 2 } }"
    ),
    "slice: a point behind the end": (
        'layer { name: "l" type: "Slice" bottom: "x" top: "a" top: "b"\n slice_param { axis: 1 §slice_point: 9 } }'
    ),
    "slice: equal parts": (
        'layer { name: "l" type: "Slice" bottom: "x" top: "a" top: "b" top: "c"\n slice_param { §axis: 2 } }'
    ),
    "concat: one bottom": 'layer { name: "l" type: "Concat" bottom: "x" bottom: "x"\n §bottom: "w" top: "y" }',
    "eltwise: one bottom": 'layer { name: "l" type: "Eltwise" bottom: "x"\n §bottom: "w" top: "y" }',
    "convolution: kernel_size": (
        'layer { name: "l" type: "Convolution" bottom: "x" top: "y"\n'
        " convolution_param { num_output: 1 §kernel_size: 6 } }"
    ),
    "convolution: one of two": (
        'layer { name: "l" type: "Convolution" bottom: "x" top: "y"\n'
        " convolution_param { num_output: 1 kernel_size: 1 §kernel_size: 6 } }"
    ),
    "convolution: kernel_w": (
        'layer { name: "l" type: "Convolution" bottom: "x" top: "y"\n'
        " convolution_param { num_output: 1 kernel_h: 2 §kernel_w: 6 } }"
    ),
    "pooling: kernel": (
        'layer { name: "l" type: "Pooling" bottom: "x" top: "y"\n'
        " pooling_param { stride: 1 round_mode: FLOOR kernel_h: 2 §kernel_w: 6 } }"
    ),
    "pooling: pad": (
        'layer { name: "l" type: "Pooling" bottom: "x" top: "y"\n pooling_param { kernel_size: 2 §pad: 2 } }'
    ),
    "crop: offset": (
        'layer { name: "l" type: "Crop" bottom: "x" bottom: "w" top: "y"\n crop_param { offset: 0 §offset: 2 } }'
    ),
    "permute: order": (
        'layer { name: "l" type: "Permute" bottom: "x" top: "y"\n permute_param { order: 1 §order: 7 } }'
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_points_at_the_field(name, tmp_path):
    layer = CASES[name]
    before = INPUT.format("x", "dim: 2 dim: 4 dim: 4 dim: 4") + INPUT.format("w", "dim: 2 dim: 5 dim: 3 dim: 3")
    place = before + layer[: layer.index("§")]
    line, column = place.count("\n") + 1, len(place) - place.rfind("\n")
    file = net_file(tmp_path, layer.replace("§", ""), x=(2, 4, 4, 4), w=(2, 5, 3, 3))
    with pytest.raises(EngineError, match=re.escape("(layer 'l', type ")) as caught:
        Net.from_file(file)
    location = caught.value.location
    assert (location.line, location.column) == (line, column), str(caught.value)


def test_a_label_error_names_the_blob_that_the_user_named(tmp_path):
    losses = "".join(
        f'layer {{ name: "loss{n}" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "loss{n}" }}\n'
        for n in range(2)
    )
    net = Net(read_net_source(net_file(tmp_path, losses, x=(2, 3), label=(2,))).param, phase=0)
    assert any("split" in name for name in net.layers[-1].param.bottom)
    net.blobs["label"].data.copy_(torch.tensor([0.0, 5.0]))
    with pytest.raises(DataError, match=r"label 5 at \[1\] of blob 'label' is no class: blob 'x' has scores"):
        net.forward()


def test_a_shape_error_names_the_blobs_that_the_user_named(tmp_path):
    layers = (
        'layer { name: "a" type: "Eltwise" bottom: "x" bottom: "w" top: "a" }\n'
        'layer { name: "b" type: "Eltwise" bottom: "x" bottom: "w" top: "b" }\n'
    )
    with pytest.raises(EngineError, match=r"bottom 0 \('x'\) has \(2, 3\), bottom 1 \('w'\) has \(2, 4\)"):
        Net.from_file(net_file(tmp_path, layers, x=(2, 3), w=(2, 4)))
