"""Layers whose values are dropped after forward, and computed a second time when backward comes to them.

The second time gives the same bits: each layer begins with the random stream as it was the first time, reads the same
values, and leaves its measured statistics alone (`LayerContext.runs_again`). What the net has done before (the loss,
its outputs, the stream's position) stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.checks import sizes
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels.precision import widened


@dataclass
class _Kept:
    """What a layer needs to run again: the random stream's state before it, and bottoms, by their numbers."""

    stream: torch.Tensor
    bottoms: dict[int, torch.Tensor]


class Segment:
    """Layers that run a second time together.

    Args:
        steps: them, in order.
        held: the numbers of the bottoms, by node, that none of the steps makes: their values are kept.

    Attributes:
        steps, held: the same.
    """

    def __init__(self, steps: Sequence[Node], held: Mapping[Node, Collection[int]]) -> None:
        self.steps, self.held = steps, held
        self._kept: dict[Node, _Kept] = {}
        last: dict[Blob, Node] = {}
        for node in steps:
            for blob in [*node.bottoms, *node.tops]:
                last[blob] = node
        self._dead: dict[Node, list[Blob]] = {node: [] for node in steps}
        for blob, node in last.items():
            self._dead[node].append(blob)

    def before_forward(self, node: Node, bottoms: Sequence[torch.Tensor]) -> None:
        """Keep what one of the steps needs to run again."""
        stream = node.layer.context.generator.get_state()
        self._kept[node] = _Kept(stream, {number: bottoms[number] for number in self.held[node]})

    def before_backward(self) -> None:
        """Run the steps again, unless that is done, so that each keeps what its backward pass needs.

        Raises:
            NetError: a step has not run forward.
        """
        if not self._kept:
            return
        context = self.steps[0].layer.context
        stream = context.generator.get_state()
        context.runs_again = True
        values: dict[Blob, torch.Tensor] = {}
        try:
            for node in self.steps:
                self._run(node, values)
        finally:
            context.runs_again = False
            context.generator.set_state(stream)

    def _run(self, node: Node, values: dict[Blob, torch.Tensor]) -> None:
        """Run one step; `values` are those that the steps before it made and a later one reads."""
        kept = self._kept.pop(node, None)
        if kept is None:
            node.layer.fail("it is to be computed again, but did not run: run the whole net forward first")
        values.update((node.bottoms[number], bottom) for number, bottom in kept.bottoms.items())
        if not node.layer.takes_narrow:  # as `Net` does, whose later readers get them so too
            values.update((blob, widened(values[blob])) for blob in node.bottoms)
        bottoms = [values[blob] for blob in node.bottoms]
        node.layer.context.generator.set_state(kept.stream)
        try:
            tops = node.layer.forward(bottoms)
        except (RuntimeError, MemoryError) as error:
            sizes.explain(node.layer, "forward, a second time", error)
            raise
        values.update(zip(node.tops, tops, strict=True))
        for blob in self._dead[node]:
            values.pop(blob, None)
