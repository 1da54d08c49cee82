"""A layer in its place: which blobs it reads and writes, and what the net has worked out about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.rules import LayerSpec
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.types import Shape
from mgcaffe.errors import NetError

AUTOMATIC = "(automatic)"
"""Caffe's name for tops that losses have without naming them; here the layer's name and a number follow it."""


@dataclass(eq=False)
class Node:
    """One layer of the explicit list.

    Attributes:
        index: its number in the net.
        layer: the layer.
        bottoms, tops: its blobs; an in-place layer has the same Blob in both.
        loss_weights: one a top; 0 where it is no part of the loss.
        needs_backward: whether backward visits it.
        wants: one flag a bottom, whether its gradient is computed.
        shapes: the bottoms' shapes that the layer was last reshaped for.
        owned: the parameters whose gradients are complete once this layer has run backward.
        members: the numbers of the layers that run in this node: its own, or those of a fused layer.
        dead: the blobs that nothing reads after its forward pass.
        has_run: whether it ran forward since its bottoms got their shapes.
    """

    index: int
    layer: Layer
    bottoms: list[Blob]
    tops: list[Blob]
    loss_weights: list[float] = field(default_factory=list)
    needs_backward: bool = False
    wants: list[bool] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    owned: list[Parameter] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    dead: list[Blob] = field(default_factory=list)
    has_run: bool = False

    def __post_init__(self) -> None:
        self.members = [self.index]

    @property
    def in_place(self) -> bool:
        """Whether top 0 is bottom 0."""
        return bool(self.bottoms and self.tops and self.bottoms[0] is self.tops[0])

    def copy_if_shared(self, blob: Blob, tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> torch.Tensor:
        """Return what the layer computed for a blob, copied where Caffe keeps it apart from others that it lies with.

        Args:
            blob: a bottom or top.
            tensor: its gradient or values.
            others: those of the layer's other blobs.
        """
        if self.layer.shares_blobs or (blob in self.bottoms and blob in self.tops):
            return tensor
        storage = tensor.untyped_storage().data_ptr()
        return tensor.clone() if any(other.untyped_storage().data_ptr() == storage for other in others) else tensor


def readers_of(nodes: Sequence[Node], maker: Node) -> list[Node]:
    """Return the nodes that read what one of a net's nodes puts into its tops, before another one writes there."""
    found: list[Node] = []
    tops = set(maker.tops)
    for node in nodes[maker.index + 1 :]:
        if not tops.isdisjoint(node.bottoms):
            found.append(node)
        tops.difference_update(node.tops)
    return found


def connect(index: int, spec: LayerSpec, layer: Layer, blobs: dict[str, Blob]) -> Node:
    """Place a layer: find its bottoms among `blobs`, add its tops to them.

    Raises:
        NetError: a top that another layer already made, or a number of blobs that the type does not take.
    """
    param = spec.param
    bottoms = [blobs[name] for name in param.bottom]
    names = list(param.top)
    if layer.auto_tops:
        missing = max(layer.tops.least, 1) - len(names)
        names += [f"{AUTOMATIC} {param.name} {number}" for number in range(missing)]
    _check_arity(spec, layer, len(bottoms), len(names))
    tops = [_top(spec, layer, number, names, blobs) for number in range(len(names))]
    return Node(index, layer, bottoms, tops, _loss_weights(spec, layer, len(tops)))


def _check_arity(spec: LayerSpec, layer: Layer, bottoms: int, tops: int) -> None:
    name = f"(layer '{spec.param.name}')"
    if bottoms not in layer.bottoms:
        raise NetError(
            f"{layer.type} takes {layer.bottoms} bottom blob(s), not {bottoms} {name}",
            location=spec.location("bottom"),
        )
    if tops not in layer.tops:
        raise NetError(f"{layer.type} makes {layer.tops} top blob(s), not {tops} {name}", location=spec.location("top"))
    if layer.one_top_per_bottom and bottoms != tops:
        raise NetError(
            f"{layer.type} makes one top a bottom, but has {bottoms} bottom(s) and {tops} top(s) {name}",
            location=spec.location("top"),
        )
    flags = len(spec.param.propagate_down)
    if flags not in (0, bottoms):
        raise NetError(
            f"propagate_down is given {flags} time(s), but there are {bottoms} bottom(s) {name}",
            location=spec.location("propagate_down"),
            hint="Give it once for every bottom, or not at all.",
        )


def _top(spec: LayerSpec, layer: Layer, number: int, names: Sequence[str], blobs: Mapping[str, Blob]) -> Blob:
    name, bottom = names[number], spec.param.bottom
    if number < len(bottom) and bottom[number] == name:
        if not layer.in_place:
            raise NetError(
                f"{layer.type} cannot work in place on blob '{name}' (layer '{spec.param.name}')",
                location=spec.location("top", number),
                hint="Give the top a name of its own.",
            )
        return blobs[name]
    if name in blobs or name in names[:number]:
        raise NetError(
            f"Top blob '{name}' is produced by multiple sources (layer '{spec.param.name}', top {number})",
            location=spec.location("top", number),
            hint="Give the top another name, or, if the layers belong to different phases, include rules.",
        )
    return Blob(name)


def _loss_weights(spec: LayerSpec, layer: Layer, tops: int) -> list[float]:
    given = [float(weight) for weight in spec.param.loss_weight]
    if not given:
        return [layer.loss_weight if number == 0 else 0.0 for number in range(tops)]
    if len(given) == 1 and layer.loss_weight:
        given += [0.0] * (tops - 1)
    if len(given) != tops:
        raise NetError(
            f"loss_weight is given {len(given)} time(s) for {tops} top(s) (layer '{spec.param.name}')",
            location=spec.location("loss_weight"),
            hint="Give it once for every top, or not at all.",
        )
    return given
