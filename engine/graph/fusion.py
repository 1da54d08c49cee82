"""Neighbouring layers that run as one, without the prototxt's layers disappearing.

A training net (one that frees its blobs) runs Convolution + ReLU and BatchNorm + Scale (+ ReLU) in one pass over memory
each, the latter with the Convolution that reads it (`fused_normalization.py`), InnerProduct + ReLU as one step, MAX
pooling with the mask of the ReLU that it reads (`fused_pooling.py`), the end of a residual block so that it need not
be kept (`fused_residual.py`), and neighbouring EmbeddingBags by one look-up (`fused_bags.py`). The layers stay in the
net's list with their names and parameters; only the blobs between them never exist. The arithmetic is that of the
single layers, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.fused_bags import EmbeddingBags, bags_of
from mgcaffe.engine.graph.fused_layer import FusedLayer, through_relu
from mgcaffe.engine.graph.fused_normalization import BatchNormScale, NormalizedConvolution
from mgcaffe.engine.graph.fused_pooling import RectifiedPooling, pooling_behind
from mgcaffe.engine.graph.fused_residual import ResidualSum, residual_of
from mgcaffe.engine.graph.node import Node, readers_of
from mgcaffe.engine.kernels.elementwise import relu_
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.layers.pooling import Pooling
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.engine.layers.scale import Scale


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
        """Keep the bottom, and the top for the mask."""
        x = self.convolution.operand(bottoms[0])
        operand = self.convolution.forward_operand(bottoms[0], x)
        y = self.convolution.convolve(operand, relu=True, keeps=self.backward_follows and operand is x)
        self.saved = (x, y if self.masks else None) if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Mask the gradient by the ReLU, unless that is done, and return the convolution's adjoints."""
        x, y = self.saved
        dy = through_relu(top_diffs[0], y, self.may_overwrite_top_diff[0]) if self.masks else top_diffs[0]
        self.convolution.saved = [x]
        diffs = self.convolution.backward([dy], wanted)
        self.convolution.release()
        return diffs

    def release(self) -> None:
        """Drop what the convolution kept as well."""
        super().release()
        self.convolution.release()


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
        y = relu_(self.product.forward(bottoms)[0])
        self.saved = y if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the ReLU's mask, then the product's adjoints."""
        dy = through_relu(top_diffs[0], self.saved, self.may_overwrite_top_diff[0])
        self.saved = None  # before the product's gradients take memory
        return self.product.backward([dy], wanted)

    def release(self) -> None:
        """Drop what forward kept, bottom and top."""
        super().release()
        self.product.release()


def fuse(nodes: Sequence[Node], *, makes_again: bool = True) -> list[Node]:
    """Return the nodes to run, in order: those given, with neighbours that can run as one replaced by one node.

    Args:
        nodes: the net's.
        makes_again: whether the ends of residual blocks may be made again in backward (`fused_residual.py`).
    """
    readers: dict[int, int] = {}
    for node in nodes:
        for blob in node.bottoms:
            readers[id(blob)] = readers.get(id(blob), 0) + 1
    steps: list[Node] = []
    dropped: dict[Blob, ResidualSum] = {}
    rectified: set[int] = set()
    index = 0
    while index < len(nodes):
        length = _fusible(nodes, index, readers)
        is_normalized = length == 2 and isinstance(nodes[index].layer, BatchNorm)
        residual = residual_of(nodes, index, dropped) if makes_again and is_normalized else None
        length = 4 if residual is not None else length
        members = nodes[index : index + length]
        steps.append(nodes[index] if length == 1 and index not in rectified else _merge(members, residual))
        index += length
        layer, last = steps[-1].layer, nodes[index - 1]
        if isinstance(layer, BatchNormScale):
            layer.top_is_kept = any(map(_keeps, readers_of(nodes, last)))
        if isinstance(layer, ConvolutionReLU | BatchNormScale) and isinstance(last.layer, ReLU):
            pooling = pooling_behind(nodes, last)
            if pooling is not None:
                layer.masks = layer.keeps_tops = False
                rectified.add(pooling.index)
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
    # The Scale may learn where the BatchNorm, whose statistics are frozen, hands no gradient on.
    if first.layer.scale_bias or (nodes[index + 1].needs_backward and first.layer.use_global):
        return 1
    scale = nodes[index + 1].layer
    if not isinstance(scale, Scale) or not scale.learned or scale.axis != 1 or len(scale.blob_shape) != 1:
        return 1
    if not _relu_follows(nodes, index + 1, readers):
        return 2
    return 4 if _convolution_follows(nodes, index + 2) else 3


def _convolution_follows(nodes: Sequence[Node], index: int) -> bool:
    """Return whether what this node makes is read by the next one alone, a Convolution of one bottom."""
    if index + 1 >= len(nodes):
        return False
    node, following = nodes[index], nodes[index + 1]
    layer = following.layer
    if not isinstance(layer, Convolution) or len(following.bottoms) != 1 or layer.channel_axis != 1:
        return False
    plain = not any(node.loss_weights) and node.needs_backward == following.needs_backward == following.wants[0]
    return plain and readers_of(nodes, node) == [following] and not _relu_reads(nodes, index + 1)


def _relu_reads(nodes: Sequence[Node], index: int) -> bool:
    """Return whether the next node is a ReLU that reads what this one makes."""
    following = nodes[index + 1] if index + 1 < len(nodes) else None
    return following is not None and isinstance(following.layer, ReLU) and following.bottoms == nodes[index].tops


def _keeps(node: Node) -> bool:
    """Return whether a layer, or one that shares its bottom's storage, may keep its bottom for backward."""
    return node.layer.tops_share_bottoms or (node.needs_backward and node.layer.keeps_bottoms)


def _follows(nodes: Sequence[Node], index: int, readers: dict[int, int]) -> bool:
    """Return whether the next node is the only one that reads what this one makes."""
    if index + 1 >= len(nodes):
        return False
    node, following = nodes[index], nodes[index + 1]
    if len(node.tops) != 1 or len(following.tops) != 1 or following.bottoms != node.tops:
        return False
    alone = following.in_place or readers[id(node.tops[0])] == 1
    # Where the next layer hands no gradient on (propagate_down: false), this one's parameters do not learn.
    learns_alike = node.needs_backward == following.needs_backward or not any(p.wanted for p in node.layer.parameters)
    plain = not any(node.loss_weights) and node.needs_backward <= following.needs_backward and learns_alike
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
    Pooling: RectifiedPooling,
}


def _merge(members: Sequence[Node], residual: Node | None = None) -> Node:
    first, last = members[0], members[-1]
    layer: Layer
    if residual is not None:
        layer, merged = residual.layer, residual
    elif isinstance(first.layer, EmbeddingBag):
        layer, merged = _side_by_side(members)
    else:
        kind = next(kind for type_, kind in _CHAINS.items() if isinstance(first.layer, type_))
        kind = NormalizedConvolution if len(members) > 3 else kind
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
