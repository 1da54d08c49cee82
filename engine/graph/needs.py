"""Which layers backward has to visit, which gradients it has to compute (Caffe: Net::Init), and which product is last.

Forward sweep: a layer needs backward if it has parameters that learn or a bottom that does. Of a shared parameter each
use goes by the lr_mult that its own layer gives. Backward sweep: a layer that no loss depends on does not.
`propagate_down` overrides the first sweep bottom by bottom, but not what a layer drops; `force_backward` overrides
both, as far as a gradient can flow at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.node import Node


def sweep(nodes: Sequence[Node], force_backward: bool) -> None:
    """Set `needs_backward` and `wants` of every node, and `wanted` of the parameters."""
    _sweep_forward(nodes)
    _sweep_backward(nodes)
    if force_backward:
        _force(nodes)
    for node in nodes:
        node.layer.wants_bottom = node.wants
        node.layer.backward_follows = node.needs_backward


def _sweep_forward(nodes: Sequence[Node]) -> None:
    learning: set[Blob] = set()
    for node in nodes:
        flags = node.layer.param.propagate_down
        inferred = [blob in learning for blob in node.bottoms]
        layer = node.layer
        node.wants = [
            wanted and (layer.differentiable(index) or not layer.drops_gradients)
            for index, wanted in enumerate(flags if len(flags) else inferred)
        ]
        node.needs_backward = any(inferred) or any(parameter.wanted for parameter in node.layer.parameters)
        for blob in node.tops:
            if node.needs_backward:
                learning.add(blob)


def _sweep_backward(nodes: Sequence[Node]) -> None:
    under_loss: set[Blob] = set()
    skipped: set[Blob] = set()
    for node in reversed(nodes):
        contributes = any(
            weight != 0 or blob in under_loss for blob, weight in zip(node.tops, node.loss_weights, strict=True)
        )
        if not contributes or all(blob in skipped for blob in node.tops):
            node.needs_backward = False
            node.wants = [False] * len(node.bottoms)
        for blob, wanted in zip(node.bottoms, node.wants, strict=True):
            if contributes:
                under_loss.add(blob)
            if not wanted:
                skipped.add(blob)


def _force(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.needs_backward = True
        node.wants = [wanted or node.layer.differentiable(index) for index, wanted in enumerate(node.wants)]
        for parameter in node.layer.parameters:
            parameter.wanted = True


def without_backward(nodes: Sequence[Node]) -> None:
    """Mark a net that is never run backward, so that its layers keep nothing."""
    for node in nodes:
        node.needs_backward = False
        node.wants = [False] * len(node.bottoms)
        node.layer.wants_bottom = node.wants
        node.layer.backward_follows = False


def find_last_products(nodes: Sequence[Node]) -> None:
    """Set `is_last_product` of every layer: it multiplies by weights, and what follows it does not."""
    multiplied: set[Blob] = set()
    for node in reversed(nodes):
        is_product = node.layer.takes_narrow and bool(node.layer.parameters)
        follows = any(blob in multiplied for blob in node.tops)
        node.layer.is_last_product = is_product and not follows
        if is_product or follows:
            multiplied.update(node.bottoms)


def check(nodes: Sequence[Node]) -> None:
    """Raise NetError where a gradient is wanted that cannot exist."""
    for node in nodes:
        if node.needs_backward:
            _check(node)


def _check(node: Node) -> None:
    for index, wanted in enumerate(node.wants):
        if wanted and not node.layer.differentiable(index):
            node.layer.fail(
                f"no gradient can flow to bottom {index}, blob '{node.bottoms[index].name}',"
                " but layers before it learn from it",
                hint=f"Set propagate_down: false for bottom {index}, or lr_mult: 0 in the layers before it.",
            )
