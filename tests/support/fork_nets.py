"""Nets of the layers that forks of Caffe have, one layer each, for the tests of what every layer promises."""

from __future__ import annotations

from tests.support.netkit import inputs

IMAGE = inputs(x=(2, 4, 5, 6))
UNIFORM = '{ type: "uniform" min: 0.5 max: 2 }'
GAUSSIAN = '{ type: "gaussian" }'
RECTANGLES = (
    'layer { name: "rois" type: "DummyData" top: "rois"'
    ' dummy_data_param { shape { dim: 3 dim: 5 } data_filler { type: "constant" value: 1 } } }\n'
)


def one(kind: str, fields: str = "", bottoms: str = "x", before: str = IMAGE) -> str:
    """A net with one layer of that type, from `bottoms` (one letter each, or names parted by spaces) to y."""
    names = bottoms.split() if " " in bottoms else list(bottoms)
    listed = " ".join(f'bottom: "{name}"' for name in names)
    return f'{before} layer {{ name: "l" type: "{kind}" {listed} top: "y" {fields} }}'


FORK_NETS = {
    "permute": one("Permute", "permute_param { order: [0, 2, 3, 1] }"),
    "normalize": one(
        "Normalize", f"norm_param {{ across_spatial: false channel_shared: false scale_filler {UNIFORM} }}"
    ),
    "axpy": one("Axpy", "", "abc", inputs(a=(2, 4, 1, 1), b=(2, 4, 5, 6), c=(2, 4, 5, 6))),
    "smooth_l1_loss": one("SmoothL1Loss", "", "abio", inputs(a=(3, 4), b=(3, 4), i=(3, 4), o=(3, 4))),
    "roi_pooling": one("ROIPooling", "roi_pooling_param { pooled_size: 2 }", "x rois", IMAGE + RECTANGLES),
    "relu6": one("ReLU6"),
    "relu6_slope": one("ReLU6", "relu6_param { negative_slope: 0.25 }"),
    "interp": one("Interp", "interp_param { zoom_factor: 2 pad_beg: -1 }"),
    "bn_moving": one("BN", f"bn_param {{ slope_filler {UNIFORM} }}"),
    "bn_segnet": one("BN", f"bn_param {{ scale_filler {UNIFORM} }}"),
    "bn_inference": one("BN", f"bn_param {{ scale_filler {UNIFORM} bn_mode: INFERENCE }}"),
    "batch_norm_scale_bias": one("BatchNorm", f"batch_norm_param {{ scale_filler {UNIFORM} }}"),
    "shuffle_channel": one("ShuffleChannel", "shuffle_channel_param { group: 2 }"),
    "depthwise_convolution": one(
        "DepthwiseConvolution", f"convolution_param {{ kernel_size: 3 pad: 1 weight_filler {GAUSSIAN} }}"
    ),
    "convolution_depthwise": one(
        "ConvolutionDepthwise", f"convolution_param {{ kernel_size: 3 weight_filler {GAUSSIAN} }}"
    ),
    "label_smoothing": one("SoftmaxWithLoss", "loss_param { label_smoothing: 0.25 }", "xt", inputs(x=(3, 4), t=(3,))),
}
