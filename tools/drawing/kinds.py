"""What a box says about its layer: its kind, which gives its colour, and the fields that shape its output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mgcaffe.prototxt import ConvolutionParameter, EltwiseParameter, LayerParameter, PoolingParameter, has_field

_Window = ConvolutionParameter | PoolingParameter


@dataclass(frozen=True)
class Kind:
    """A family of layer types.

    Attributes:
        name: what the legend calls it.
        strong: the colour of its stripe, which stands out on white and on black.
        light: the fill of its boxes on a light page.
        dark: the same on a dark page.
    """

    name: str
    strong: str
    light: str
    dark: str


DATA = Kind("data", "#8C6D46", "#F3ECE2", "#372E22")
FILTER = Kind("convolution", "#D55E00", "#FCE9DC", "#472814")
PRODUCT = Kind("product", "#CC79A7", "#F9EAF2", "#432A38")
POOLING = Kind("pooling", "#C99700", "#FBF2D5", "#40340F")
ACTIVATION = Kind("activation", "#009E73", "#DDF3EC", "#123A2E")
NORMALIZATION = Kind("normalization", "#0072B2", "#DFEEF7", "#12324A")
ROUTING = Kind("joining, shapes", "#56B4E9", "#E6F4FC", "#1B3A4B")
LOSS = Kind("loss, metric", "#A02020", "#F8E2E2", "#451C1C")
OTHER = Kind("other", "#7F7F7F", "#EEEEEE", "#333333")
KINDS = (DATA, FILTER, PRODUCT, POOLING, ACTIVATION, NORMALIZATION, ROUTING, LOSS, OTHER)

_TYPES = {
    DATA: "Data ImageData HDF5Data MemoryData WindowData CriteoData DummyData Input Parameter HDF5Output",
    FILTER: "Convolution Deconvolution DepthwiseConvolution ConvolutionDepthwise Im2col",
    PRODUCT: "InnerProduct Embed EmbeddingBag LSTM RNN LSTMUnit MatMul DotInteraction",
    POOLING: "Pooling SPP ROIPooling Interp Crop Reduction",
    ACTIVATION: "ReLU PReLU ReLU6 ELU Sigmoid TanH Swish BNLL Clip Threshold AbsVal Power Exp Log Dropout Softmax "
    "HardSwish HardSigmoid GELU SiLU",
    NORMALIZATION: "BatchNorm BN LRN MVN Normalize Scale Bias LayerNorm GroupNorm",
    ROUTING: "Concat Slice Split Reshape Flatten Permute Tile ShuffleChannel Filter BatchReindex Silence Eltwise Axpy",
    LOSS: "SoftmaxWithLoss SigmoidCrossEntropyLoss EuclideanLoss SmoothL1Loss HingeLoss InfogainLoss ContrastiveLoss "
    "MultinomialLogisticLoss Accuracy AUC NormalizedEntropy ArgMax",
}
_KIND_OF = {name: kind for kind, names in _TYPES.items() for name in names.split()}


def kind_of(layer_type: str) -> Kind:
    """Return a type's kind; a type that is not listed is `OTHER`."""
    return _KIND_OF.get(layer_type, OTHER)


def detail_of(layer: LayerParameter) -> str:
    """Return the fields that shape a layer's output, as in `7x7 /2 pad 3`; empty for types that have none."""
    if layer.type in ("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise", "Im2col"):
        param = layer.convolution_param
        group = [f"group {param.group}"] if param.group != 1 else []
        gaps = param.dilation or param.hole or (param.hole_h, param.hole_w)
        dilation = [f"dilation {_joined(gaps)}"] if set(gaps) - {0, 1} else []
        return " ".join([*_window(param), *dilation, *group])
    if layer.type == "Pooling":
        pool = layer.pooling_param
        method = PoolingParameter.PoolMethod.Name(pool.pool)
        return " ".join([method, *(["global"] if pool.global_pooling else _window(pool))])
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    if layer.type == "Dropout":
        return f"{layer.dropout_param.dropout_ratio:g}"
    if layer.type == "LRN":
        return f"size {layer.lrn_param.local_size}"
    if layer.type == "Eltwise":
        return str(EltwiseParameter.EltwiseOp.Name(layer.eltwise_param.operation))
    return ""


def _window(param: _Window) -> list[str]:
    """Return kernel, stride and padding; the latter two only where they do something."""
    parts = [_sizes(param, "kernel_size", "kernel_h", "kernel_w", "?")]
    stride = _sizes(param, "stride", "stride_h", "stride_w", "1")
    pad = _sizes(param, "pad", "pad_h", "pad_w", "0")
    parts += [f"/{stride}"] if set(stride.split("x")) != {"1"} else []
    parts += [f"pad {pad}"] if set(pad.split("x")) != {"0"} else []
    return parts


def _sizes(param: _Window, both: str, height: str, width: str, default: str) -> str:
    """Return `3x3` or `3x1`, for fields that hold one number, one for each axis, or height and width."""
    value = getattr(param, both)
    goes_before = not hasattr(value, "__len__") and has_field(param, both)  # Pooling's kernel_size, beside one of them
    if not goes_before and (has_field(param, height) or has_field(param, width)):
        return f"{getattr(param, height)}x{getattr(param, width)}"
    sizes = list(value) if hasattr(value, "__len__") else [value]
    if not sizes:
        return default
    if both == "kernel_size":
        return _joined(sizes * 2 if len(sizes) == 1 else sizes)
    return str(sizes[0]) if len(set(sizes)) == 1 else _joined(sizes)


def _joined(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))
