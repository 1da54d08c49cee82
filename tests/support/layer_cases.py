"""Nets of one layer, for every layer type that other formats can express, in all its variants."""

from __future__ import annotations

from tests.support.netkit import inputs

IMAGE = {"x": (2, 4, 7, 9)}
MATRIX = {"x": (3, 5)}
LABELS = {"x": (4, 5), "t": (4,)}
MAP_LABELS = {"x": (2, 5, 3, 4), "t": (2, 1, 3, 4)}
SEQUENCE = {"x": (4, 3, 5), "cont": (4, 3)}


def one(shapes, layer, tops="y"):
    """Return a net of one layer that reads all inputs."""
    bottoms = " ".join(f'bottom: "{name}"' for name in shapes)
    names = " ".join(f'top: "{top}"' for top in tops.split())
    return inputs(**shapes) + f'layer {{ name: "l" {bottoms} {names} {layer} }}'


def conv(fields, layer_type="Convolution", shapes=None, tops="y"):
    return one(shapes or IMAGE, f'type: "{layer_type}" convolution_param {{ {fields} }}', tops)


def pool(fields, shapes=None, tops="y"):
    return one(shapes or IMAGE, f'type: "Pooling" pooling_param {{ {fields} }}', tops)


def plain(layer_type, fields="", shapes=None, tops="y"):
    return one(shapes or IMAGE, f'type: "{layer_type}" {fields}', tops)


RECURRENT = "recurrent_param { num_output: 3 %s }"
POOLINGS = {
    "k2_s2": "kernel_size: 2 stride: 2",
    "ceil_overhang": "kernel_size: 3 stride: 2",
    "ceil_overhang_s3": "kernel_size: 3 stride: 4",
    "floor": "kernel_size: 2 stride: 2 round_mode: FLOOR",
    "floor_pad": "kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR",
    "pad": "kernel_size: 3 stride: 2 pad: 1",
    "pad_two_sides": "kernel_h: 3 kernel_w: 5 stride_h: 2 stride_w: 3 pad_h: 0 pad_w: 2",
    "pad_over_half": "kernel_size: 5 stride: 3 pad: 4",
    "pad_last_window_clipped": "kernel_size: 2 stride: 3 pad: 1",
    "empty_window": "kernel_size: 1 stride: 2",
    "empty_window_rows": "kernel_h: 1 kernel_w: 3 stride_h: 4 stride_w: 1",
    "large_stride": "kernel_size: 2 stride: 4",
    "global": "global_pooling: true",
    "whole_image": "kernel_h: 7 kernel_w: 9",
    "fork_ceil_mode": "kernel_size: 2 stride: 2 ceil_mode: false",
    "fork_torch_pooling": "kernel_size: 2 stride: 2 torch_pooling: true",
}

TWO_SIDES = "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 3 pad_h: 1 pad_w: 0"
LARGER = "kernel_size: 7 stride: 3 pad: 1"
DEPTHWISE = f"num_output: 4 group: 4 bias_term: false {TWO_SIDES}"
SQUARE = 'layer { name: "s" type: "Power" bottom: "x" top: "s" power_param { power: 2 } }'

CASES: dict[str, dict[str, str]] = {
    "ReLU": {"plain": plain("ReLU"), "slope": plain("ReLU", "relu_param { negative_slope: 0.1 }"),
             "negative": plain("ReLU", "relu_param { negative_slope: -0.5 }")},
    "ReLU6": {"plain": plain("ReLU6"), "slope": plain("ReLU6", "relu6_param { negative_slope: 0.1 }")},
    "PReLU": {"per_channel": plain("PReLU"), "shared": plain("PReLU", "prelu_param { channel_shared: true }"),
              "matrix": plain("PReLU", shapes=MATRIX)},
    "ELU": {"plain": plain("ELU"), "alpha": plain("ELU", "elu_param { alpha: 0.3 }")},
    "Sigmoid": {"plain": plain("Sigmoid")},
    "TanH": {"plain": plain("TanH")},
    "Swish": {"plain": plain("Swish"), "beta": plain("Swish", "swish_param { beta: 1.7 }"),
              "zero": plain("Swish", "swish_param { beta: 0 }")},
    "HardSwish": {"plain": plain("HardSwish")},
    "HardSigmoid": {"plain": plain("HardSigmoid"),
                    "fields": plain("HardSigmoid", "hard_sigmoid_param { alpha: 0.3 beta: 0.4 }")},
    "GELU": {"plain": plain("GELU"), "tanh": plain("GELU", "gelu_param { approximate: TANH }")},
    "LayerNorm": {"plain": plain("LayerNorm"),
                  "axis": plain("LayerNorm", "layer_norm_param { axis: 1 eps: 0.1 bias_term: false }"),
                  "no_scale": plain("LayerNorm", "layer_norm_param { affine: false }")},
    "BNLL": {"plain": plain("BNLL")},
    "AbsVal": {"plain": plain("AbsVal")},
    "Clip": {"plain": plain("Clip", "clip_param { min: -0.5 max: 1 }"),
             "open_below": plain("Clip", "clip_param { min: -3.40282347e+38 max: 0.5 }"),
             "open_above": plain("Clip", "clip_param { min: -0.5 max: 3.40282347e+38 }"),
             "open": plain("Clip", "clip_param { min: -3.40282347e+38 max: 3.40282347e+38 }")},
    "Threshold": {"plain": plain("Threshold"), "other": plain("Threshold", "threshold_param { threshold: 0.4 }")},
    "Power": {"same": plain("Power"), "square": plain("Power", "power_param { power: 2 scale: 0.5 shift: 3 }"),
              "constant": plain("Power", "power_param { power: 0 shift: 3 }"),
              "zero_scale": plain("Power", "power_param { power: 2 scale: 0 shift: 3 }"),
              "linear": plain("Power", "power_param { scale: -2 shift: 1 }"),
              "opposite": plain("Power", "power_param { scale: -2 }"),
              "negated": plain("Power", "power_param { power: 2 scale: -1 }")},
    "Exp": {"e": plain("Exp"), "base": plain("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }")},
    "Log": {"of_square": inputs(**IMAGE) + SQUARE + 'layer { name: "l" type: "Log" bottom: "s" top: "y"'
                         ' log_param { base: 10 scale: 2 shift: 1 } }',
            **{f"base_{base}": inputs(**IMAGE) + 'layer { name: "s" type: "Exp" bottom: "x" top: "s" }'
               f'layer {{ name: "l" type: "Log" bottom: "s" top: "y" log_param {{ base: {base} }} }}'
               for base in (2, 3)},
            "plain": inputs(**IMAGE) + 'layer { name: "s" type: "Exp" bottom: "x" top: "s" }'
                     'layer { name: "l" type: "Log" bottom: "s" top: "y" }'},
    "Dropout": {"test": plain("Dropout", "dropout_param { dropout_ratio: 0.7 }")},
    "Convolution": {
        "k3": conv("num_output: 6 kernel_size: 3"),
        "no_bias": conv("num_output: 6 kernel_size: 3 bias_term: false"),
        "all_fields": conv(f"num_output: 6 group: 2 {TWO_SIDES}"),
        "dilation": conv("num_output: 2 kernel_size: 3 dilation: 2 pad: 1"),
        "hole": conv("num_output: 2 kernel_size: 3 hole: 2 pad: 1"),
        "hole_sides": conv("num_output: 2 kernel_size: 3 hole_h: 1 hole_w: 2"),
        "two_bottoms": conv("num_output: 2 kernel_size: 3", shapes={"a": (2, 4, 7, 9), "b": (2, 4, 7, 9)}, tops="c d"),
        "one_axis": conv("num_output: 2 kernel_size: 3 stride: 2", shapes={"x": (2, 4, 9)}),
        "three_axes": conv("num_output: 2 kernel_size: 2", shapes={"x": (2, 4, 4, 5, 3)}),
        "no_axes": conv("num_output: 6 kernel_size: 1 axis: 3 group: 3", shapes={"x": (2, 4, 7, 9)}),
        "axis": conv("num_output: 2 kernel_size: 3 axis: 2", shapes={"x": (2, 3, 4, 7, 9)}),
        "larger_than_the_image": conv(f"num_output: 2 {LARGER}", shapes={"x": (2, 4, 3, 9)}),
    },
    "Deconvolution": {
        "k4_s2_p1": conv("num_output: 3 kernel_size: 4 stride: 2 pad: 1", "Deconvolution"),
        "groups": conv("num_output: 6 kernel_size: 3 stride: 2 group: 2 bias_term: false", "Deconvolution"),
        "upsampler": conv("num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4", "Deconvolution"),
        "dilation": conv("num_output: 3 kernel_size: 3 dilation: 2 stride: 2", "Deconvolution"),
        "hole": conv("num_output: 3 kernel_size: 3 hole: 2 stride: 2", "Deconvolution"),
        "hole_sides": conv("num_output: 3 kernel_size: 3 hole_h: 1 hole_w: 2", "Deconvolution"),
        "axis": conv("num_output: 2 kernel_size: 3 axis: 2", "Deconvolution", {"x": (2, 3, 4, 5, 4)}),
        "two_sides": conv(f"num_output: 3 {TWO_SIDES}", "Deconvolution"),
    },
    "DepthwiseConvolution": {"plain": conv("kernel_size: 3 stride: 2 pad: 1", "DepthwiseConvolution"),
                             "dilation": conv("kernel_size: 2 dilation: 2", "DepthwiseConvolution"),
                             "hole": conv("kernel_size: 2 hole: 2", "DepthwiseConvolution"),
                             "hole_sides": conv("kernel_size: 2 hole_h: 1 hole_w: 2", "DepthwiseConvolution"),
                             "fields": conv(DEPTHWISE, "DepthwiseConvolution"),
                             "axis": conv("kernel_size: 3 axis: 2", "DepthwiseConvolution", {"x": (2, 3, 4, 7, 9)}),
                             "larger_than_the_image": conv(LARGER, "DepthwiseConvolution", {"x": (2, 4, 3, 9)})},
    "ConvolutionDepthwise": {"plain": conv("kernel_size: 3 stride: 2 pad: 1", "ConvolutionDepthwise"),
                             "dilation": conv("kernel_size: 2 dilation: 2", "ConvolutionDepthwise"),
                             "hole": conv("kernel_size: 2 hole: 2", "ConvolutionDepthwise"),
                             "hole_sides": conv("kernel_size: 2 hole_h: 1 hole_w: 2", "ConvolutionDepthwise"),
                             "fields": conv(DEPTHWISE, "ConvolutionDepthwise"),
                             "axis": conv("kernel_size: 3 axis: 2", "ConvolutionDepthwise", {"x": (2, 3, 4, 7, 9)}),
                             "larger_than_the_image": conv(LARGER, "ConvolutionDepthwise", {"x": (2, 4, 3, 9)})},
    "Im2col": {"k3": conv("kernel_size: 3 stride: 2 pad: 1 dilation: 2", "Im2col"),
               "two_sides": conv(TWO_SIDES, "Im2col"),
               "hole": conv("kernel_size: 2 hole: 2", "Im2col"),
               "hole_sides": conv("kernel_size: 2 hole_h: 1 hole_w: 2", "Im2col"),
               "axis": conv("kernel_size: 2 axis: 2", "Im2col", {"x": (2, 3, 4, 5, 4)}),
               "larger_than_the_image": conv(LARGER, "Im2col", {"x": (2, 4, 3, 9)})},
    "InnerProduct": {
        "image": plain("InnerProduct", "inner_product_param { num_output: 6 }"),
        "transpose": plain("InnerProduct", "inner_product_param { num_output: 6 transpose: true bias_term: false }"),
        "axis_2": plain("InnerProduct", "inner_product_param { num_output: 6 axis: 2 }"),
        "axis_last": plain("InnerProduct", "inner_product_param { num_output: 6 axis: -1 }"),
        "axis_0": plain("InnerProduct", "inner_product_param { num_output: 6 axis: 0 }"),
        "matrix": plain("InnerProduct", "inner_product_param { num_output: 6 }", MATRIX),
    },
    "Embed": {"bias": plain("Embed", "embed_param { input_dim: 7 num_output: 3 }", {"x": (4, 2)}),
              "no_bias": plain("Embed", "embed_param { input_dim: 7 num_output: 3 bias_term: false }", {"x": (4,)})},
    "Pooling": {
        **{f"max_{name}": pool(fields) for name, fields in POOLINGS.items()},
        **{f"ave_{name}": pool(f"pool: AVE {fields}") for name, fields in POOLINGS.items()},
        **{f"mask_{name}": pool(fields, tops="y m") for name, fields in POOLINGS.items()},
        **{f"stochastic_{name}": pool(f"pool: STOCHASTIC {fields}")
           for name, fields in POOLINGS.items() if "pad" not in name},
    },
    "SPP": {"max": plain("SPP", "spp_param { pyramid_height: 3 }"),
            "one": plain("SPP", "spp_param { pyramid_height: 1 }"),
            "ave": plain("SPP", "spp_param { pyramid_height: 3 pool: AVE }"),
            "stochastic": plain("SPP", "spp_param { pyramid_height: 2 pool: STOCHASTIC }", {"x": (2, 4, 6, 8)})},
    "ROIPooling": {"plain": plain("ROIPooling", "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }",
                                  {"x": (2, 4, 7, 9), "r": (5, 5)}),
                   "four_axes": plain("ROIPooling", "roi_pooling_param { pooled_size: 2 }",
                                      {"x": (2, 4, 7, 9), "r": (5, 5, 1, 1)})},
    "Interp": {"size": plain("Interp", "interp_param { height: 13 width: 5 }"),
               "zoom": plain("Interp", "interp_param { zoom_factor: 3 }"),
               "shrink": plain("Interp", "interp_param { shrink_factor: 2 }"),
               "one_pixel": plain("Interp", "interp_param { height: 1 width: 4 }"),
               "cut": plain("Interp", "interp_param { height: 5 width: 5 pad_beg: -1 pad_end: -2 }"),
               "second_bottom": plain("Interp", shapes={"x": (2, 4, 7, 9), "like": (1, 1, 4, 12)})},
    "BatchNorm": {
        "stored": plain("BatchNorm"),
        "eps": plain("BatchNorm", "batch_norm_param { eps: 0.1 moving_average_fraction: 0.9 }"),
        "global": plain("BatchNorm", "batch_norm_param { use_global_stats: true }"),
        "batch": plain("BatchNorm", "batch_norm_param { use_global_stats: false }"),
        "scale_bias": plain("BatchNorm", "batch_norm_param { scale_bias: true }"),
        "batch_scale_bias": plain("BatchNorm", "batch_norm_param { scale_bias: true use_global_stats: false }"),
        "matrix": plain("BatchNorm", shapes=MATRIX),
    },
    "BN": {"moving": plain("BN", "bn_param { eps: 0.01 momentum: 0.8 }"),
           "frozen": plain("BN", "bn_param { frozen: true }"),
           "segnet": plain("BN", "bn_param { bn_mode: LEARN }"),
           "inference": plain("BN", "bn_param { bn_mode: INFERENCE }")},
    "LRN": {"across": plain("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 k: 2 }", {"x": (2, 7, 4, 5)}),
            "wide": plain("LRN", "lrn_param { local_size: 11 }"),
            "within": plain("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL k: 5 }"),
            "within_wide": plain("LRN", "lrn_param { local_size: 15 norm_region: WITHIN_CHANNEL }")},
    "MVN": {"plain": plain("MVN"), "mean_only": plain("MVN", "mvn_param { normalize_variance: false }"),
            "across": plain("MVN", "mvn_param { across_channels: true eps: 0.2 }"),
            "matrix": plain("MVN", "mvn_param { across_channels: true }", MATRIX),
            "single_values": plain("MVN", "mvn_param { normalize_variance: false }", MATRIX),
            "five_axes": plain("MVN", shapes={"x": (2, 3, 2, 2, 3)}),
            "sequences": plain("MVN", shapes={"x": (2, 3, 5)})},
    "Normalize": {"image": plain("Normalize"), "position": plain("Normalize", "norm_param { across_spatial: false }"),
                  "per_channel": plain("Normalize",
                                       "norm_param { channel_shared: false across_spatial: false eps: 1 }")},
    "Eltwise": {
        "sum": plain("Eltwise", shapes={"a": (2, 3), "b": (2, 3)}),
        "coeff": plain("Eltwise", "eltwise_param { coeff: 0.5 coeff: -1 coeff: 1 }", dict.fromkeys("abc", (2, 3))),
        "prod": plain("Eltwise", "eltwise_param { operation: PROD }", dict.fromkeys("abc", (2, 3))),
        "max": plain("Eltwise", "eltwise_param { operation: MAX }", dict.fromkeys("abc", (2, 3))),
    },
    "Scale": {
        "channels": plain("Scale"), "bias": plain("Scale", "scale_param { bias_term: true }"),
        "axis_0": plain("Scale", "scale_param { axis: 0 num_axes: 2 bias_term: true }"),
        "to_the_end": plain("Scale", "scale_param { axis: -2 num_axes: -1 bias_term: true }"),
        "single": plain("Scale", "scale_param { num_axes: 0 bias_term: true }"),
        "bottom": plain("Scale", shapes={"x": (2, 4, 7, 9), "s": (4, 7)}),
        "bottom_bias": plain("Scale", "scale_param { axis: 2 bias_term: true }", {"x": (2, 4, 7, 9), "s": (7, 9)}),
    },
    "Bias": {"channels": plain("Bias"), "axis": plain("Bias", "bias_param { axis: 2 num_axes: -1 }"),
             "single": plain("Bias", "bias_param { num_axes: 0 }"),
             "bottom": plain("Bias", "bias_param { axis: 0 }", {"x": (2, 4, 7, 9), "b": (2,)})},
    "Axpy": {"four_axes": plain("Axpy", shapes={"a": (2, 4, 1, 1), "x": (2, 4, 7, 9), "y0": (2, 4, 7, 9)}),
             "two_axes": plain("Axpy", shapes={"a": (2, 4), "x": (2, 4, 7, 9), "y0": (2, 4, 7, 9)})},
    "Softmax": {"plain": plain("Softmax"), "axis": plain("Softmax", "softmax_param { axis: -1 }")},
    "Reduction": {
        "sum": plain("Reduction"), "asum": plain("Reduction", "reduction_param { operation: ASUM axis: 1 coeff: 2 }"),
        "sumsq": plain("Reduction", "reduction_param { operation: SUMSQ axis: -1 }"),
        "mean": plain("Reduction", "reduction_param { operation: MEAN axis: 2 coeff: 3 }"),
    },
    "ArgMax": {
        "one": plain("ArgMax"), "values": plain("ArgMax", "argmax_param { out_max_val: true }"),
        "three": plain("ArgMax", "argmax_param { top_k: 3 out_max_val: true }"),
        "axis": plain("ArgMax", "argmax_param { axis: 1 top_k: 2 }"),
        "axis_values": plain("ArgMax", "argmax_param { axis: -1 top_k: 2 out_max_val: true }"),
        "axis_one": plain("ArgMax", "argmax_param { axis: 1 }"),
        "equal": inputs(**IMAGE) + 'layer { name: "t" type: "Threshold" bottom: "x" top: "t" }'
                 'layer { name: "l" type: "ArgMax" bottom: "t" top: "y" argmax_param { top_k: 4 axis: 2 } }'
                 'layer { name: "m" type: "ArgMax" bottom: "t" top: "z" }',
    },
    "Concat": {"channels": plain("Concat", shapes={"a": (2, 3, 2), "b": (2, 1, 2)}),
               "axis": plain("Concat", "concat_param { axis: -1 }", {"a": (2, 3), "b": (2, 1), "c": (2, 2)}),
               "old": plain("Concat", "concat_param { concat_dim: 0 }", {"a": (2, 3), "b": (1, 3)}),
               "one": plain("Concat")},
    "Slice": {"old": plain("Slice", "slice_param { slice_dim: 0 }", tops="a b"),
              "even": plain("Slice", tops="a b"), "one": plain("Slice", tops="a"),
              "points": plain("Slice", "slice_param { axis: -1 slice_point: 2 slice_point: 3 }", tops="a b c")},
    "Split": {"explicit": plain("Split", tops="a b")},
    "Reshape": {
        "zero_and_rest": plain("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }"),
        "axis": plain("Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 num_axes: 1 }"),
        "inserted": plain("Reshape", "reshape_param { shape { dim: 1 dim: 1 } axis: -1 num_axes: 0 }"),
    },
    "Flatten": {"plain": plain("Flatten"), "middle": plain("Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
                "all": plain("Flatten", "flatten_param { axis: 0 }")},
    "Permute": {"order": plain("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
                "some": plain("Permute", "permute_param { order: 2 }"), "none": plain("Permute")},
    "Tile": {"channels": plain("Tile", "tile_param { tiles: 3 }"),
             "axis": plain("Tile", "tile_param { tiles: 2 axis: -1 }")},
    "ShuffleChannel": {"two": plain("ShuffleChannel", "shuffle_channel_param { group: 2 }")},
    "Crop": {"offset": plain("Crop", "crop_param { offset: 1 }", {"x": (2, 4, 7, 9), "like": (1, 1, 3, 4)}),
             "offsets": plain("Crop", "crop_param { axis: 1 offset: 1 offset: 2 offset: 0 }",
                              {"x": (2, 4, 7, 9), "like": (5, 2, 3, 9)}),
             "default": plain("Crop", shapes={"x": (2, 4, 7, 9), "like": (2, 4, 5, 5)})},
    "Filter": {"two": plain("Filter", shapes={"a": (6, 2), "b": (6, 3, 2), "s": (6, 1)}, tops="c d")},
    "BatchReindex": {"plain": plain("BatchReindex", shapes={"x": (4, 3), "p": (6,)})},
    "Parameter": {"added": inputs(x=(2, 3)) + 'layer { name: "l" type: "Parameter" top: "p" parameter_param {'
                           ' shape { dim: 2 dim: 3 } } }'
                           ' layer { name: "e" type: "Eltwise" bottom: "x" bottom: "p" top: "y" }',
                  "alone": inputs(x=(2, 3)) + 'layer { name: "l" type: "Parameter" top: "p" parameter_param {'
                           ' shape { dim: 2 dim: 3 } } }'},
    "Silence": {"after": inputs(**IMAGE) + 'layer { name: "r" type: "ReLU" bottom: "x" top: "y" }'
                         'layer { name: "l" type: "Silence" bottom: "x" }'},
    "LSTM": {"plain": plain("LSTM", RECURRENT % "", SEQUENCE),
             "static": plain("LSTM", RECURRENT % "", {**SEQUENCE, "s": (3, 2, 2)}),
             "exposed": plain("LSTM", RECURRENT % "expose_hidden: true",
                              {**SEQUENCE, "h": (1, 3, 3), "c": (1, 3, 3)}, "y ht ct"),
             "images": plain("LSTM", RECURRENT % "", {"x": (4, 3, 5, 2), "cont": (4, 3)})},
    "RNN": {"plain": plain("RNN", RECURRENT % "", SEQUENCE),
            "static": plain("RNN", RECURRENT % "", {**SEQUENCE, "s": (3, 2)}),
            "exposed": plain("RNN", RECURRENT % "expose_hidden: true", {**SEQUENCE, "h": (1, 3, 3)}, "y ht")},
    "LSTMUnit": {"plain": plain("LSTMUnit", shapes={"c": (1, 3, 4), "g": (1, 3, 16), "k": (1, 3)}, tops="c1 h1")},
    "SoftmaxWithLoss": {
        "plain": plain("SoftmaxWithLoss", shapes=LABELS),
        "two_tops": plain("SoftmaxWithLoss", shapes=LABELS, tops="y p"),
        "no_top": inputs(**LABELS) + 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "t" }',
        "axis": plain("SoftmaxWithLoss", "softmax_param { axis: 2 }", {"x": (2, 3, 5, 4), "t": (2, 3, 1, 4)}),
        "map_ignore": plain("SoftmaxWithLoss", "loss_param { ignore_label: 2 }", MAP_LABELS),
        "full": plain("SoftmaxWithLoss", "loss_param { ignore_label: 2 normalization: FULL }", MAP_LABELS),
        "batch": plain("SoftmaxWithLoss", "loss_param { normalize: false ignore_label: 1 }", MAP_LABELS),
        "none": plain("SoftmaxWithLoss", "loss_param { normalization: NONE label_smoothing: 0.1 }", MAP_LABELS),
    },
    "InfogainLoss": {"batch": plain("InfogainLoss", "loss_param { normalization: BATCH_SIZE }",
                                    {**MAP_LABELS, "h": (1, 1, 5, 5)}),
                     "bottom": plain("InfogainLoss", shapes={**MAP_LABELS, "h": (1, 1, 5, 5)}, tops="y p"),
                     "ignore": plain("InfogainLoss", "loss_param { ignore_label: 0 }",
                                     {**MAP_LABELS, "h": (1, 1, 5, 5)}),
                     "axis_2": plain("InfogainLoss", "infogain_loss_param { axis: 2 }",
                                     {"x": (2, 3, 5, 4), "t": (2, 3, 1, 4), "h": (5, 5)})},
    "MultinomialLogisticLoss": {
        "of_softmax": inputs(**LABELS) + 'layer { name: "s" type: "Softmax" bottom: "x" top: "s" } layer { name: "l"'
                      ' type: "MultinomialLogisticLoss" bottom: "s" bottom: "t" top: "y" }'},
    "SigmoidCrossEntropyLoss": {
        "normalize": plain("SigmoidCrossEntropyLoss", "loss_param { normalize: true }", {"x": (4, 5), "t": (4, 5)}),
        "plain": plain("SigmoidCrossEntropyLoss", shapes={"x": (4, 5), "t": (4, 5)}),
        "ignore": plain("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 0 normalization: VALID }",
                        {"x": (4, 5), "t": (4, 5, 1)})},
    "EuclideanLoss": {"plain": plain("EuclideanLoss", shapes={"x": (4, 5), "t": (4, 5)}),
                      "shapes": plain("EuclideanLoss", shapes={"x": (4, 5), "t": (4, 5, 1)})},
    "SmoothL1Loss": {
        "plain": plain("SmoothL1Loss", shapes={"x": (4, 5), "t": (4, 5)}),
        "weights": plain("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", dict.fromkeys("abcd", (4, 5)))},
    "HingeLoss": {"l1": plain("HingeLoss", shapes=LABELS),
                  "l2": plain("HingeLoss", "hinge_loss_param { norm: L2 }", {"x": (4, 5, 1), "t": (4, 1)})},
    "ContrastiveLoss": {
        "plain": plain("ContrastiveLoss", "contrastive_loss_param { margin: 4 }",
                       {"a": (8, 5), "b": (8, 5), "s": (8,)}),
        "single_values": plain("ContrastiveLoss", shapes={"a": (8,), "b": (8, 1), "s": (8,)}),
        "unlike_shapes": plain("ContrastiveLoss", "contrastive_loss_param { margin: 4 }",
                               {"a": (8, 5), "b": (8, 5, 1, 1), "s": (8,)}),
        "legacy": plain("ContrastiveLoss", "contrastive_loss_param { margin: 9 legacy_version: true }",
                        {"a": (8, 5), "b": (8, 5), "s": (8, 1)})},
    "EmbeddingBag": {
        mode: plain("EmbeddingBag", f"embedding_bag_param {{ input_dim: 7 num_output: 3 mode: {mode} }}", shapes)
        for mode, shapes in (("SUM", {"x": (4, 5)}), ("MEAN", {"x": (4, 2, 3)}))
    } | {"of_one": plain("EmbeddingBag", "embedding_bag_param { input_dim: 7 num_output: 3 }", {"x": (4,)})},
    "DummyData": {
        "constant": inputs(x=(2, 3)) + 'layer { name: "l" type: "DummyData" top: "d" top: "e" dummy_data_param {'
        ' shape { dim: 2 dim: 3 } data_filler { value: 2 } data_filler { type: "constant" } } }'
        'layer { name: "s" type: "Eltwise" bottom: "x" bottom: "d" bottom: "e" top: "y" }',
        "old_fields": inputs(x=(2, 3, 1, 1)) + 'layer { name: "l" type: "DummyData" top: "d"'
        ' dummy_data_param { num: 2 channels: 3 height: 1 width: 1 data_filler { value: 2 } } }'
        'layer { name: "s" type: "Eltwise" bottom: "x" bottom: "d" top: "y" }'},
    "MatMul": {
        "plain": plain("MatMul", shapes={"a": (3, 4), "b": (4, 5)}),
        "a_transposed": plain("MatMul", "matmul_param { transpose_a: true }", {"a": (2, 3, 4), "b": (2, 3, 5)}),
        "b_transposed": plain("MatMul", "matmul_param { transpose_b: true }", {"a": (2, 2, 3, 4), "b": (2, 2, 5, 4)}),
        "both": plain("MatMul", "matmul_param { transpose_a: true transpose_b: true }", {"a": (4, 3), "b": (5, 4)})},
    "DotInteraction": {
        "plain": plain("DotInteraction", shapes=dict.fromkeys("xabc", (3, 4))),
        "joined": plain("DotInteraction", "dot_interaction_param { diagonal: true }", {"x": (3, 5, 4)})},
    "Accuracy": {"plain": plain("Accuracy", shapes=LABELS),
                 "top_3": plain("Accuracy", "accuracy_param { top_k: 3 }", MAP_LABELS),
                 "classes": plain("Accuracy", "accuracy_param { ignore_label: 1 }", MAP_LABELS, "y c"),
                 "axis": plain("Accuracy", "accuracy_param { axis: -1 }", {"x": (2, 3, 5), "t": (2, 3)}),
                 "one_class": plain("Accuracy", shapes={"x": (4, 1), "t": (4,)})},
}  # fmt: skip
MODULE_CASES: dict[str, dict[str, str]] = {
    "EmbeddingBag": {
        bags: plain("EmbeddingBag", f"embedding_bag_param {{ input_dim: 7 num_output: 3 bags: {bags} mode: MEAN }}",
                    {"x": (3, 4), "bags": (5,)})
        for bags in ("OFFSETS", "LENGTHS")},
}  # fmt: skip
"""What modules of PyTorch can express besides."""
