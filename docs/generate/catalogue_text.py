"""What the page about the layers says beside their own docstrings: its order, its introduction, common rules."""

from __future__ import annotations

import importlib
import inspect

CAFFES_OWN = frozenset(
    """AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop Data
    Deconvolution Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output HingeLoss
    Im2col ImageData InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData MultinomialLogisticLoss PReLU
    Parameter Pooling Power Python RNN ReLU Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice
    Softmax SoftmaxWithLoss Split Swish TanH Threshold Tile WindowData""".split()
)
"""The types that BVLC's Caffe registers."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "Data and output": (
        *("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "CriteoData", "DummyData", "Input", "Parameter"),
        "HDF5Output",
    ),
    "Filters, windows and images": (
        *("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise", "Im2col", "Pooling", "SPP"),
        *("ROIPooling", "Interp", "Crop"),
    ),
    "Products and look-ups": ("InnerProduct", "Embed", "EmbeddingBag", "MatMul", "DotInteraction"),
    "Recurrent layers": ("LSTM", "RNN", "LSTMUnit"),
    "Normalization": ("BatchNorm", "BN", "LayerNorm", "LRN", "MVN", "Normalize"),
    "Activations and functions of one value": (
        *("ReLU", "PReLU", "ReLU6", "ELU", "GELU", "Sigmoid", "HardSigmoid", "TanH", "Swish", "HardSwish", "BNLL"),
        *("Clip", "Threshold", "AbsVal", "Power", "Exp", "Log", "Dropout"),
    ),
    "Arithmetic and reductions": ("Eltwise", "Scale", "Bias", "Axpy", "Softmax", "Reduction", "ArgMax"),
    "Shapes and routing": (
        *("Concat", "Slice", "Split", "Reshape", "Flatten", "Permute", "Tile", "ShuffleChannel", "Filter"),
        *("BatchReindex", "Silence"),
    ),
    "Losses and metrics": (
        *("SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "SmoothL1Loss", "HingeLoss", "InfogainLoss"),
        *("ContrastiveLoss", "MultinomialLogisticLoss", "Accuracy", "AUC", "NormalizedEntropy"),
    ),
    "Your own": ("Python",),
}
"""The sections of the page and the types in each, in its order."""

_DATA = "mgcaffe.engine.data."
TRANSFORMER = _DATA + "images.transformer"

SHARED: dict[str, tuple[str, ...]] = {
    "Data and output": (
        *(
            TRANSFORMER,
            _DATA + "images.resizing",
            _DATA + "images.random_resizing",
            _DATA + "random_numbers",
            _DATA + "data_layer",
            _DATA + "record_loader",
        ),
        *(_DATA + "window_data_file", _DATA + "window_data_cut", "mgcaffe.engine.fillers"),
    ),
    "Recurrent layers": ("mgcaffe.engine.layers.shared.recurrent",),
    "Losses and metrics": ("mgcaffe.engine.layers.shared.loss",),
}
"""By section, the modules whose docstrings say what its layers share."""

INTRODUCTION = """
# Layers

Written by `python -m docs.generate.catalogue --write` from the layers' own docstrings, their classes and the schema;
do not edit it here. Every layer type that this engine knows is listed: the 61 of BVLC's Caffe, those of forks that
are asked for most, and a few that models of PyTorch or click-through rates need. Values and gradients are Caffe's up to
float32 rounding where nothing else is said; `tests/golden` holds what a real Caffe computed.

In the formulas x is the bottom, y the top, and dx, dy are their gradients. N is the number of items in a batch, C the
number of channels, H and W are height and width. (N, C, H, W) is a shape, () that of a single number.
"""

EVERY_LAYER = """
## Rules for every layer

- A field is given as in Caffe, `layer { type: "Pooling" pooling_param { pool: AVE } }`. Negative axes count from the
  end. A field of another type's message has no effect, which a warning says; Caffe says nothing.
- `engine`, and what forks have to tune speed, memory or precision, has no effect, which one warning says. What would
  change the result and is not supported is an error that names file, line and column.
- Parameter gradients are added up, bottom gradients are replaced. No gradient flows where a section says so; a net that
  needs one there is refused when it is built.
- *In place* in the list above: the top may have the bottom's name. Where Caffe's in-place layer would spoil what a
  neighbour or the layer itself needs for its backward pass, this engine works on a copy, so that the gradients are
  those of a layer with a top of its own. In Caffe the gradients of Clip, BNLL, Power, Log, MVN with
  `normalize_variance`, ReLU with a `negative_slope` below 0 and ELU with an `alpha` below 0 are other ones in place:
  backward reads what has been written over. The tops of Split, Flatten, Reshape, a Slice with one top and a Concat with
  one bottom are in Caffe the bottom's own memory, so that a layer in place behind one of them changes what later layers
  read of the bottom, too. Here each reader gets what the prototxt says: such a layer changes its own blob alone, and
  never what an Input, a MemoryData, a Parameter or a constant DummyData layer holds.
- A shape may change between passes, as long as the parameters still fit.

What Caffe leaves open or does in a way that has no use, and what is done here:

| in Caffe | here |
|---|---|
| outputs of a net in alphabetical order | the same |
| a loss with two tops needs two `loss_weight`s | one is enough, the other top then has none |
| equal values: Accuracy counts them as wrong, ArgMax takes the larger number, MAX in Eltwise bottom 1 | the same |
| pooling windows outside the image (no pad, stride above kernel) are undefined | Caffe's shape, value 0, no gradient |
| STOCHASTIC pooling on a GPU only | on every device |
| HDF5Output ends with an error at the second batch | it appends |
| ImageData and WindowData give every solver all records | ranks share them out |
| `mean_file` has to have the size of the uncropped image | the same, and the error says both sizes |
| fillers of shared parameters run once for every user | once for the owner, so random numbers are not used up |
| old nets inside a solver are not upgraded | they are (see [formats](formats.md)) |
"""


def docstring(module: str) -> str:
    """Return the docstring of a module."""
    return inspect.getdoc(importlib.import_module(module)) or ""
