"""Neighbouring layers that run as one, without the prototxt's layers disappearing.

A training net (one that frees its blobs) runs Convolution + ReLU and BatchNorm + Scale (+ ReLU) in one pass
over memory each, InnerProduct + ReLU as one step, and neighbouring EmbeddingBags by one look-up (`fused_bags.py`). The
layers stay in the net's list with their names and parameters; only the blobs between them never exist. The arithmetic
is that of the single layers, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.graph.fused_bags import EmbeddingBags, bags_of
from mgcaffe.engine.graph.fused_layer import FusedLayer
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.engine.layers.scale import Scale
from mgcaffe.engine.layers.shared.neuron import run_backward


class ConvolutionReLU(FusedLayer):
    """y = max(W * x + b, 0)."""

    keeps_others = False
    keeps_tops = True
    takes_narrow = True

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[0], Convolution)
        self.convolution = members[0]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep bottom and top."""
        x = self.convolution.operand(bottoms[0])
        y = self.convolution.convolve(self.convolution.forward_operand(bottoms[0], x), relu=True)
        self.saved = (x, y) if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the ReLU's mask, then the convolution's adjoints."""
        x, y = self.saved
        dy = _through_relu(top_diffs[0], y, self.may_overwrite_top_diff[0])
        self.convolution.saved = [x]
        diffs = self.convolution.backward([dy], wanted)
        self.convolution.release()
        return diffs


class InnerProductReLU(FusedLayer):
    """y = max(W x + b, 0)."""

    keeps_others = False
    keeps_tops = True
    takes_narrow = True

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[0], InnerProduct)
        self.product = members[0]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep bottom and top."""
        # Not by oneDNN's own ReLU, which makes 0 of nan.
        y = self.product.forward(bottoms)[0].relu_()
        self.saved = y if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the ReLU's mask, then the product's adjoints."""
        dy = _through_relu(top_diffs[0], self.saved, self.may_overwrite_top_diff[0])
        self.saved = None  # before the product's gradients take memory
        return self.product.backward([dy], wanted)

    def release(self) -> None:
        """Drop what forward kept, bottom and top."""
        super().release()
        self.product.release()


class BatchNormScale(FusedLayer):
    """y = s (x - mean) / sqrt(variance + eps) + b, and with a ReLU behind it max(y, 0).

    Where x comes in 16 bits so do y and the gradients; the statistics are computed and kept in float32.
    """

    takes_narrow = True

    keeps_others = False

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[0], BatchNorm)
        assert isinstance(members[1], Scale)
        self.norm, self.scale = members[0], members[1]
        self.relu = len(members) > 2
        self.keeps_tops = self.relu

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom, the statistics and, with a ReLU, the top."""
        x = bottoms[0]
        factor = self.scale.parameters[0].data
        bias = self.scale.bias.data if self.scale.bias is not None else None
        if self.norm.use_global:
            return [self._with_stored_statistics(widened(x), factor, bias)]
        y, statistics = batch_norm.forward(x, factor, bias, self.norm.eps, relu=self.relu)
        self.norm.store(statistics)
        if self.backward_follows:
            self.saved = (x, y if self.relu else None, statistics.mean, statistics.inverse_std)
        return [y]

    def _with_stored_statistics(self, x: torch.Tensor, factor: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        mean, inverse_std = self.norm.stored_statistics()
        factor = factor * inverse_std
        shift = -mean * factor if bias is None else bias - mean * factor
        y = torch.addcmul(batch_norm.channel_view(shift, x), x, batch_norm.channel_view(factor, x))
        return y.clamp_(min=0) if self.relu else y

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the ReLU's mask, then one pass for all three gradients."""
        x, y, mean, inverse_std = self.saved
        dy = top_diffs[0].to(x.dtype)
        if y is not None:
            dy = _through_relu(dy, y, self.may_overwrite_top_diff[0] or dy is not top_diffs[0])
        factor, bias = self.scale.parameters[0], self.scale.bias
        wants = (wanted[0], factor.wanted, bias is not None and bias.wanted)
        dx, dfactor, dbias = batch_norm.backward(dy, x, factor.data, mean, inverse_std, wants)
        if dfactor is not None:
            factor.accumulate(dfactor)
        if bias is not None and dbias is not None:
            bias.accumulate(dbias)
        return [dx]


def fuse(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes to run, in order: those given, with neighbours that can run as one replaced by one node."""
    readers: dict[int, int] = {}
    for node in nodes:
        for blob in node.bottoms:
            readers[id(blob)] = readers.get(id(blob), 0) + 1
    steps: list[Node] = []
    index = 0
    while index < len(nodes):
        length = _fusible(nodes, index, readers)
        members = nodes[index : index + length]
        steps.append(nodes[index] if length == 1 else _merge(members))
        index += length
    return steps


def _fusible(nodes: Sequence[Node], index: int, readers: dict[int, int]) -> int:
    """Return how many nodes from `index` on run as one."""
    first = nodes[index]
    if (bags := bags_of(nodes, index)) > 1:
        return bags
    if isinstance(first.layer, InnerProduct):
        return 2 if _relu_follows(nodes, index, readers) else 1
    if isinstance(first.layer, Convolution):
        simple = len(first.bottoms) == 1 and first.layer.channel_axis == 1
        return 2 if simple and _relu_follows(nodes, index, readers) else 1
    if not isinstance(first.layer, BatchNorm) or not _follows(nodes, index, readers):
        return 1
    if first.layer.scale_bias or (first.needs_backward and first.layer.use_global):
        return 1
    scale = nodes[index + 1].layer
    if not isinstance(scale, Scale) or not scale.learned or scale.axis != 1 or len(scale.blob_shape) != 1:
        return 1
    return 3 if _relu_follows(nodes, index + 1, readers) else 2


def _follows(nodes: Sequence[Node], index: int, readers: dict[int, int]) -> bool:
    """Return whether the next node is the only one that reads what this one makes."""
    if index + 1 >= len(nodes):
        return False
    node, following = nodes[index], nodes[index + 1]
    if len(node.tops) != 1 or len(following.tops) != 1 or following.bottoms != node.tops:
        return False
    alone = following.in_place or readers[id(node.tops[0])] == 1
    plain = not any(node.loss_weights) and node.needs_backward <= following.needs_backward
    return alone and plain and following.wants[0] == node.needs_backward


def _relu_follows(nodes: Sequence[Node], index: int, readers: dict[int, int]) -> bool:
    if not _follows(nodes, index, readers):
        return False
    layer = nodes[index + 1].layer
    return isinstance(layer, ReLU) and layer.param.relu_param.negative_slope == 0


_CHAINS: dict[type[Layer], type[FusedLayer]] = {
    Convolution: ConvolutionReLU,
    InnerProduct: InnerProductReLU,
    BatchNorm: BatchNormScale,
}


def _merge(members: Sequence[Node]) -> Node:
    first, last = members[0], members[-1]
    layer: FusedLayer
    if isinstance(first.layer, EmbeddingBag):
        layer, merged = _side_by_side(members)
    else:
        kind = next(kind for type_, kind in _CHAINS.items() if isinstance(first.layer, type_))
        layer = kind([node.layer for node in members])
        merged = Node(first.index, layer, first.bottoms, last.tops, last.loss_weights)
        merged.wants, merged.shapes = first.wants, first.shapes
    merged.needs_backward = any(node.needs_backward for node in members)
    layer.backward_follows = merged.needs_backward
    layer.wants_bottom = merged.wants
    merged.members = [node.index for node in members]
    merged.owned = [parameter for node in members for parameter in node.owned]
    return merged


def _side_by_side(members: Sequence[Node]) -> tuple[EmbeddingBags, Node]:
    """Return layers that do not read each other's tops as one layer, and its node with all their blobs."""
    layer = EmbeddingBags([node.layer for node in members])
    merged = Node(
        members[0].index,
        layer,
        [blob for node in members for blob in node.bottoms],
        [blob for node in members for blob in node.tops],
        [weight for node in members for weight in node.loss_weights],
    )
    merged.wants = [wanted for node in members for wanted in node.wants]
    merged.shapes = [shape for node in members for shape in node.shapes]
    layer.reshape(merged.shapes)
    return layer, merged


def _through_relu(dy: torch.Tensor, y: torch.Tensor, in_place: bool) -> torch.Tensor:
    """Give dy where y is positive, else 0."""
    return run_backward(torch.ops.aten.threshold_backward, dy, y, 0, out=dy if in_place else None)
