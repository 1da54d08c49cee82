"""The end of a residual block as one layer that keeps no top: BatchNorm, Scale, the sum with a shortcut, and ReLU.

    y = max(s (x - mean) / sqrt(variance + eps) + b + shortcut, 0)

Convolutions that read y need it once more in backward. Where the shortcut is kept anyway, by the ReLU that made it, y
is made again then, from x and the shortcut, in a few passes over memory and with the same bits. It is itself the
shortcut of the next block, whose y can be made again from it, and so on. Whoever asks for the last of such a row has
them all made at once, so a row has at most three; the y behind it is kept. In ResNet-50 ten of sixteen are not kept,
113 MiB with 8 images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.fused_layer import FusedLayer, through_relu
from mgcaffe.engine.graph.fused_normalization import BatchNormScale
from mgcaffe.engine.graph.node import Node, readers_of
from mgcaffe.engine.kernels import batch_norm
from mgcaffe.engine.kernels.precision import FLOAT32
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.layers.eltwise import SUM, Eltwise
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.engine.layers.split import Split
from mgcaffe.engine.types import Shape

_MOST_IN_A_ROW = 3


class ResidualSum(FusedLayer):
    """The layer; its bottoms are x and the shortcut.

    Attributes:
        before: the layer that makes the shortcut again; None where the shortcut is kept.
        in_a_row: how many layers, this one included, `top` makes again where none of them has been made yet.
    """

    keeps_others = False

    def __init__(self, members: Sequence[Layer], before: ResidualSum | None) -> None:
        super().__init__(members)
        self.normalization, self.sum = BatchNormScale(members[:2]), members[2]
        self.before = before
        self.in_a_row: int = 1 if before is None else before.in_a_row + 1
        self.bottoms_made_again = () if before is None else (1,)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shape of x."""
        x, shortcut = bottom_shapes
        return self.sum.reshape([*self.normalization.reshape([x]), shortcut])

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep x, the statistics and, unless it is made again as well, the shortcut."""
        x, shortcut = bottoms
        self.normalization.backward_follows = self.backward_follows
        y = self.normalization.forward([x])[0].add_(shortcut).relu_()
        self.saved = (self.normalization.saved, shortcut if self.before is None else None, None)
        self.normalization.release()
        return [y]

    def top(self) -> torch.Tensor:
        """Return y between forward and backward, made again when it is first asked for."""
        y: torch.Tensor | None
        kept, shortcut, y = self.saved
        if y is None:
            # As in forward, so that all bits are the same; from the statistics alone it would round otherwise.
            y, _ = batch_norm.forward(kept[0], *self.normalization.factor_and_bias(), self.normalization.norm.eps)
            y.add_(shortcut if self.before is None else self.before.top()).relu_()
            self.saved = (kept, shortcut, y)
        return y

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the ReLU's mask, then the normalization's gradients; the shortcut gets the gradient of the sum."""
        dy = through_relu(top_diffs[0], self.top(), self.may_overwrite_top_diff[0])
        self.normalization.saved = self.saved[0]
        dx = self.normalization.backward([dy], [True])[0]
        self.normalization.release()
        return [dx, dy]


def residual_of(nodes: Sequence[Node], index: int, dropped: dict[Blob, ResidualSum]) -> Node | None:
    """Return four nodes as one that keeps no top, and have convolutions that read it ask for it; else None.

    Args:
        nodes: the net's.
        index: of a BatchNorm that can run as one with the Scale behind it.
        dropped: the blobs that are made again, with what makes them; the top of what is returned is added.
    """
    if index + 3 >= len(nodes):
        return None
    norm, scale, total, relu = nodes[index : index + 4]
    if not _is_block(norm, scale, total, relu) or len(_readers(nodes, scale)) != 1 or len(_readers(nodes, total)) != 1:
        return None
    place = total.bottoms.index(scale.tops[0])
    shortcut, top = total.bottoms[1 - place], relu.tops[0]
    readers = _readers(nodes, relu)
    convolutions = [node for node in readers if _is_convolution(nodes, node)]
    others = (node for node in readers if node not in convolutions)
    if not convolutions or not all(map(_keeps_nothing, others)):
        return None
    maker, made = _maker(nodes, total, shortcut), shortcut
    if maker is not None and isinstance(maker.layer, Split):
        made = maker.bottoms[0]
        maker = _maker(nodes, maker, made)
    before = dropped.get(made)
    if before is None and not _is_kept(nodes, maker):
        return None
    if before is not None and before.in_a_row == _MOST_IN_A_ROW:
        return None
    layer = ResidualSum([node.layer for node in nodes[index : index + 4]], before)
    for node in convolutions:
        assert isinstance(node.layer, Convolution)
        node.layer.make_bottom, node.layer.keeps_bottoms = layer.top, False
    dropped[top] = layer
    merged = Node(norm.index, layer, [norm.bottoms[0], shortcut], [top], relu.loss_weights)
    merged.wants = [norm.wants[0], total.wants[1 - place]]
    merged.shapes = [norm.shapes[0], total.shapes[1 - place]]
    return merged


def makers_of(layer: Layer) -> list[ResidualSum]:
    """Return the layers that backward of this one may ask to make their tops again."""
    members = layer.members if isinstance(layer, FusedLayer) else [layer]
    makers = [layer.before] if isinstance(layer, ResidualSum) else []
    for member in members:
        if isinstance(member, Convolution) and member.make_bottom is not None:
            maker = getattr(member.make_bottom, "__self__", None)
            assert isinstance(maker, ResidualSum)
            makers.append(maker)
    found: list[ResidualSum] = []
    for maker in makers:
        while maker is not None:
            found.append(maker)
            maker = maker.before
    return found


def keep_bottoms(layers: Sequence[Layer]) -> None:
    """Have convolutions keep what they read again, as without `residual_of`."""
    for layer in layers:
        if isinstance(layer, Convolution) and layer.make_bottom is not None:
            layer.make_bottom, layer.keeps_bottoms = None, True


def _is_block(norm: Node, scale: Node, total: Node, relu: Node) -> bool:
    """Return whether the nodes are a normalization whose result a shortcut is added to, and a ReLU of the sum."""
    if not (isinstance(total.layer, Eltwise) and isinstance(relu.layer, ReLU) and _suits(norm)):
        return False
    if total.layer.operation != SUM or total.layer.coefficients != [1.0, 1.0] or relu.layer.slope != 0:
        return False
    if not relu.in_place or relu.bottoms != total.tops or scale.tops[0] not in total.bottoms:
        return False
    members = (norm, scale, total, relu)
    plain = all(node.needs_backward and all(node.wants) and not any(node.loss_weights) for node in members)
    return plain and total.bottoms[0] is not total.bottoms[1]


def _suits(norm: Node) -> bool:
    """Return whether the memory is worth normalizing again."""
    context, shape = norm.layer.context, norm.shapes[0]
    plain = context.device.type == "cpu" and context.dtype == torch.float32 and context.precision == FLOAT32
    suits = plain and context.memory_format == torch.channels_last
    return suits and len(shape) == 4 and shape[1] >= batch_norm.MANY_CHANNELS and math.prod(shape) >= batch_norm.LARGE


def _readers(nodes: Sequence[Node], maker: Node) -> list[Node]:
    """Return the nodes that read the value that a node puts into its top, also by a Split."""
    found: list[Node] = []
    for node in readers_of(nodes, maker):
        found += readers_of(nodes, node) if isinstance(node.layer, Split) else [node]
    return found


def _is_convolution(nodes: Sequence[Node], node: Node) -> bool:
    """Return whether a node runs as a Convolution of one bottom by itself."""
    layer = node.layer
    if not isinstance(layer, Convolution) or len(node.bottoms) != 1 or layer.channel_axis != 1:
        return False
    return node.needs_backward and not any(isinstance(each.layer, ReLU) for each in _readers(nodes, node))


def _keeps_nothing(node: Node) -> bool:
    """Return whether a node neither keeps its bottoms for backward nor hands on their storage."""
    keeps = node.layer.keeps_bottoms or isinstance(node.layer, BatchNorm)  # which keeps them fused with a Scale
    return not (keeps or node.in_place or node.layer.tops_share_bottoms)


def _is_kept(nodes: Sequence[Node], maker: Node | None) -> bool:
    """Return whether a ReLU behind a sum made a shortcut, and keeps it until backward has come to it."""
    if maker is None or not isinstance(maker.layer, ReLU) or not maker.in_place:
        return False
    before = _maker(nodes, maker, maker.tops[0])
    return maker.needs_backward and maker.layer.keeps_tops and before is not None and isinstance(before.layer, Eltwise)


def _maker(nodes: Sequence[Node], reader: Node, blob: Blob) -> Node | None:
    """Return the node that made the value of a blob which another one reads."""
    return next((node for node in reversed(nodes[: reader.index]) if blob in node.tops), None)
