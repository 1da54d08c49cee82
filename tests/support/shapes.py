"""The shapes of a net's blobs and parameters, worked out from the NetParameter alone.

A second opinion: nothing of the engine is used, so a mistake in either shows. It knows the layers that the nets
in models/ and examples/ use, with square kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from mgcaffe.prototxt import TEST, TRAIN, LayerParameter, NetParameter, PoolingParameter

Shape = tuple[int, ...]

SAME_SHAPE = ("ReLU", "LRN", "Dropout", "Softmax", "Sigmoid")
ONE_NUMBER = ("Accuracy", "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "AUC", "NormalizedEntropy")


@dataclass
class Shapes:
    """What `infer` found: shapes by blob name, parameter shapes by layer name, multiply-adds of a batch."""

    blobs: dict[str, Shape] = field(default_factory=dict)
    parameters: dict[str, list[Shape]] = field(default_factory=dict)
    statistics: dict[str, list[Shape]] = field(default_factory=dict)
    macs: int = 0

    @property
    def parameter_count(self) -> int:
        """Learnable values, BatchNorm's statistics not counted."""
        return sum(math.prod(shape) for shapes in self.parameters.values() for shape in shapes)

    @property
    def statistics_count(self) -> int:
        """Values of BatchNorm layers: means, variances, and the factor."""
        return sum(math.prod(shape) for shapes in self.statistics.values() for shape in shapes)


def layers_of(net: NetParameter, phase: int) -> list[LayerParameter]:
    """The layers that a phase includes."""
    return [layer for layer in net.layer if not layer.include or any(r.phase == phase for r in layer.include)]


def infer(net: NetParameter, phase: int = TRAIN, image: Shape = ()) -> Shapes:
    """Goes through the net once.

    Args:
        net: a NetParameter.
        phase: which layers count.
        image: (channels, height, width) of what a Data layer gives.
    """
    shapes = Shapes()
    for layer in layers_of(net, phase):
        bottoms = [shapes.blobs[name] for name in layer.bottom]
        for top, shape in zip(layer.top, _tops(layer, bottoms, image, shapes), strict=True):
            shapes.blobs[top] = shape
    return shapes


def _tops(layer: LayerParameter, bottoms: list[Shape], image: Shape, shapes: Shapes) -> list[Shape]:
    kind = layer.type
    if kind == "Data":
        return [(layer.data_param.batch_size, *image), (layer.data_param.batch_size,)]
    if kind == "Input":
        return [tuple(shape.dim) for shape in layer.input_param.shape]
    if kind in SAME_SHAPE:
        return [bottoms[0]]
    if kind == "CriteoData":
        batch = layer.criteo_data_param.batch_size
        return [(batch,), (batch, 13), *[(batch, 1)] * 26]
    if kind in ONE_NUMBER:
        assert len(bottoms) == 2
        return [()]
    if kind == "Concat":
        assert len({(shape[0], *shape[2:]) for shape in bottoms}) == 1
        return [(bottoms[0][0], sum(shape[1] for shape in bottoms), *bottoms[0][2:])]
    if kind == "Eltwise":
        assert len(set(bottoms)) == 1
        return [bottoms[0]]
    if kind == "BatchNorm":
        shapes.statistics[layer.name] = [(bottoms[0][1],), (bottoms[0][1],), (1,)]
        return [bottoms[0]]
    if kind == "Scale":
        shapes.parameters[layer.name] = [(bottoms[0][1],)] * (1 + layer.scale_param.bias_term)
        return [bottoms[0]]
    if kind in REARRANGING:
        return REARRANGING[kind](layer, bottoms)
    with_parameters = {
        "Convolution": _convolution,
        "InnerProduct": _inner_product,
        "EmbeddingBag": _embedding_bag,
    }
    if kind in with_parameters:
        return [with_parameters[kind](layer, bottoms[0], shapes)]
    assert kind == "Pooling", kind
    return [_pooling(layer.pooling_param, bottoms[0])]


def _convolution(layer: LayerParameter, bottom: Shape, shapes: Shapes) -> Shape:
    param = layer.convolution_param
    (kernel,) = param.kernel_size
    stride = param.stride[0] if param.stride else 1
    pad = param.pad[0] if param.pad else 0
    assert bottom[1] % param.group == 0
    weight = (param.num_output, bottom[1] // param.group, kernel, kernel)
    shapes.parameters[layer.name] = [weight] + [(param.num_output,)] * param.bias_term
    height, width = ((size + 2 * pad - kernel) // stride + 1 for size in bottom[2:])
    shapes.macs += bottom[0] * height * width * math.prod(weight)
    return (bottom[0], param.num_output, height, width)


def _inner_product(layer: LayerParameter, bottom: Shape, shapes: Shapes) -> Shape:
    param = layer.inner_product_param
    weight = (param.num_output, math.prod(bottom[1:]))
    shapes.parameters[layer.name] = [weight] + [(param.num_output,)] * param.bias_term
    shapes.macs += bottom[0] * math.prod(weight)
    return (bottom[0], param.num_output)


def _embedding_bag(layer: LayerParameter, bottom: Shape, shapes: Shapes) -> Shape:
    param = layer.embedding_bag_param
    shapes.parameters[layer.name] = [(param.input_dim, param.num_output)]
    return (bottom[0], param.num_output)


def _interaction(layer: LayerParameter, bottoms: list[Shape]) -> list[Shape]:
    assert len(set(bottoms)) == 1 and not layer.dot_interaction_param.diagonal
    batch, size = bottoms[0]
    return [(batch, size + math.comb(len(bottoms), 2))]


def _slice(layer: LayerParameter, bottoms: list[Shape]) -> list[Shape]:
    (shape,), param = bottoms, layer.slice_param
    cuts = [0, *param.slice_point, shape[param.axis]]
    return [(*shape[: param.axis], end - begin, *shape[param.axis + 1 :]) for begin, end in pairwise(cuts)]


def _reshape(layer: LayerParameter, bottoms: list[Shape]) -> list[Shape]:
    (shape,) = bottoms
    wanted = tuple(size or shape[axis] for axis, size in enumerate(layer.reshape_param.shape.dim))
    assert math.prod(wanted) == math.prod(shape)
    return [wanted]


def _pooling(param: PoolingParameter, bottom: Shape) -> Shape:
    assert param.round_mode == PoolingParameter.CEIL
    sizes = []
    for size in bottom[2:]:
        pooled = math.ceil((size + 2 * param.pad - param.kernel_size) / param.stride) + 1
        if param.pad and (pooled - 1) * param.stride >= size + param.pad:
            pooled -= 1
        sizes.append(pooled)
    return (*bottom[:2], *sizes)


REARRANGING: dict[str, Callable[[LayerParameter, list[Shape]], list[Shape]]] = {
    "DotInteraction": _interaction,
    "Slice": _slice,
    "Reshape": _reshape,
    "Permute": lambda layer, bottoms: [tuple(bottoms[0][axis] for axis in layer.permute_param.order)],
    "Reduction": lambda layer, bottoms: [bottoms[0][: layer.reduction_param.axis]],
    "Flatten": lambda layer, bottoms: [(bottoms[0][0], math.prod(bottoms[0][1:]))],
}

__all__ = ["TEST", "TRAIN", "Shape", "Shapes", "infer", "layers_of"]
