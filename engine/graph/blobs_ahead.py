"""Values of blobs in passes to come, where they follow from data layers alone: the ids that are looked up next.

Between a data layer and the layers in question there may be such as only give values other shapes and names.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layers.reshape import Reshaping
from mgcaffe.engine.layers.slice import Slice
from mgcaffe.engine.layers.split import Split

_RENAMING = (Split, Slice, Reshaping)


class BlobsAhead:
    """The bottoms of some layers of a net, in the passes that follow the one whose data layers have run.

    Args:
        nodes: the net's.
        wanted: those of the layers whose bottoms are wanted.

    Attributes:
        unknown: what makes a bottom that is not known ahead; None: all are.
    """

    def __init__(self, nodes: Sequence[Node], wanted: Sequence[Node]) -> None:
        self.unknown: Node | None = None
        self._wanted = wanted
        self._steps: list[Node] = []
        makers: dict[int, Node] = {}  # by the id of a blob: what made its values last
        known: set[int] = set()
        for node in nodes[: wanted[-1].index + 1]:
            bottoms, tops = ({id(blob) for blob in blobs} for blobs in (node.bottoms, node.tops))
            if node in wanted:
                missing = [blob for blob in node.bottoms if id(blob) not in known]
                self.unknown = self.unknown or next((makers[id(blob)] for blob in missing), None)
                self._steps.append(node)
            if isinstance(node.layer, DataLayer) or (isinstance(node.layer, _RENAMING) and bottoms <= known):
                known |= tops
                self._steps.append(node)
            else:
                known -= tops
            renamed = isinstance(node.layer, _RENAMING)
            makers.update(dict.fromkeys(tops, makers[id(node.bottoms[0])] if renamed else node))
        self._leave_out_others()

    def _leave_out_others(self) -> None:
        """Keep the steps that lead to what is wanted."""
        kept: list[Node] = []
        needed: set[int] = set()
        for node in reversed(self._steps):
            tops = {id(blob) for blob in node.tops}
            if node in self._wanted or tops & needed:
                kept.append(node)
                needed = (needed - tops) | {id(blob) for blob in node.bottoms}
        self._steps = kept[::-1]

    def bottoms(self, ahead: int) -> list[list[torch.Tensor]] | None:
        """Return the bottoms of each of the layers, in the host's memory; nothing of the pass that runs changes.

        Args:
            ahead: 0 for the next pass, 1 for the one after it.

        Returns:
            None where they are not known, or a batch has another shape, for which layers would have to be reshaped.

        Raises:
            DataError: a record could not be read.
        """
        if self.unknown is not None:
            return None
        values: dict[int, torch.Tensor] = {}
        found: list[list[torch.Tensor]] = []
        for node in self._steps:
            given = [values[id(blob)] for blob in node.bottoms]
            if node in self._wanted:
                found.append(given)
                continue
            if isinstance(node.layer, DataLayer):
                made = node.layer.peek(ahead)
            elif [tuple(each.shape) for each in given] != node.shapes:
                return None
            else:
                made = node.layer.forward(given)
            values.update((id(blob), each) for blob, each in zip(node.tops, made, strict=True))
        return found
