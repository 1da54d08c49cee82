"""A training net's pass, which replays what can be replayed (Caffe has no such thing: its layers are compiled code)."""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence
from itertools import groupby

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.capture.captured_range import CapturedRange, OnLayerDone
from mgcaffe.engine.graph.fused_layer import FusedLayer
from mgcaffe.engine.graph.fused_residual import makers_of
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels.linear_ways import is_large
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.net import Net

FEWEST = 2
"""How many layers a range has at least."""


class ReplayedPass:
    """The two directions of a net's whole pass: `forward`, then `backward`, as `Net`'s.

    Ranges of two or more `capturable` layers are replayed; what is between them runs as always. So does everything
    while candidates are measured, where layers run again in backward, with a factor on the loss, and in nets that keep
    their blobs or compute on a GPU. Python takes some 10 us a call, which is 20 % of a step of cifar10_quick with one
    image and nothing that can be seen with 100, but up to 13 % of nets with hundreds of layers and 8 images of 224x224
    (docs/step_times.md).

    Args:
        net: a training net.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._steps: list[Node] = []
        self._parts: list[Node | CapturedRange] = []
        self._loss_scale = 1.0
        self._is_divided = False  # whether the pass that has gone forward ran by parts

    @property
    def ranges(self) -> list[CapturedRange]:
        """The ranges that may be replayed."""
        return [part for part in self._parts if isinstance(part, CapturedRange)]

    def forward(self, loss_scale: float = 1.0) -> float:
        """Run all layers; return the loss, as `Net.forward`.

        Args:
            loss_scale: the factor on the loss whose gradients `backward` will compute.
        """
        self._loss_scale = loss_scale
        self._is_divided = loss_scale == 1 and self._can_divide()
        if not self._is_divided:
            return self._net.forward()
        if self._steps is not self._net.steps:
            self._divide()
        loss = 0.0
        for part in self._parts:
            if isinstance(part, Node):
                loss += self._net.run_forward(part, self._net.compute_forward)
            else:
                loss = part.forward(loss)
        return loss

    def backward(self, on_layer_done: OnLayerDone | None = None) -> None:
        """Run all layers backward, as `Net.backward` from the last layer to the first."""
        if not self._is_divided:
            self._net.backward(on_layer_done, loss_scale=self._loss_scale)
            return
        for part in reversed(self._parts):
            if isinstance(part, Node):
                self._net.run_backward(part, self._net.compute_backward, on_layer_done)
            else:
                part.backward(on_layer_done)

    def _can_divide(self) -> bool:
        net = self._net
        return net.device.type == "cpu" and not (net.keep_blobs or net.recomputes or net.context.choices.measures)

    def _divide(self) -> None:
        """Find the ranges of the net's steps."""
        self._steps, self._parts = self._net.steps, []
        for row in _rows(self._steps):
            self._parts += [CapturedRange(self._net, row)] if len(row) >= FEWEST else row


def _rows(steps: Sequence[Node]) -> list[list[Node]]:
    """Return the steps in rows: those that may be captured together, and others alone.

    A layer that asks another one to make its top again is in one row with it, or neither is captured.
    """
    read = {blob for node in steps for blob in node.bottoms}
    node_of = {node.layer: node for node in steps}
    capturable = {node for node in steps if _is_capturable(node, read)}
    while True:
        rows: list[list[Node]] = []
        for captures, nodes in groupby(steps, capturable.__contains__):
            found = [*nodes]
            rows += [found] if captures else [[node] for node in found]
        place = {node: number for number, row in enumerate(rows) for node in row}
        asked = [(node, node_of[maker]) for node in steps for maker in makers_of(node.layer)]
        apart = {node for pair in asked if place[pair[0]] != place[pair[1]] for node in pair}
        if not apart & capturable:
            return rows
        capturable -= apart


def _is_capturable(node: Node, read: Container[Blob]) -> bool:
    layer = node.layer
    members = layer.members if isinstance(layer, FusedLayer) else [layer]
    parameters = [parameter for member in members for parameter in member.parameters]
    is_owner = len(parameters) == len(node.owned) and all(map(operator.is_, parameters, node.owned))
    # A loss is read by the net where nothing else does.
    is_plain = not any(weight and blob in read for blob, weight in zip(node.tops, node.loss_weights, strict=True))
    # A gradient may be kept as a product (`Parameter.keeps_product`), whose calls come with the update.
    may_keep_product = any(isinstance(each, InnerProduct) and is_large(each.parameters[0].data) for each in members)
    is_closed = is_owner and is_plain and not may_keep_product
    return is_closed and all(member.capturable for member in members)
