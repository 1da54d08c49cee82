"""The look-ups of a net whose tables lie in other processes: all that can be made at once travel together.

A layer of type EmbeddingBag is in the group of the one before it if its ids are there when the first of the group runs;
mostly all are, since ids come from the data layer. The first of a group that runs forward makes the look-ups of all;
the last that runs backward (the first of the group, if it trains) hands over all gradients.

Where tables can be looked up ahead, the first of a group also begins the look-ups of the next passes, whose ids the
data layers have by then, so that they are answered while this pass is computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.graph.blobs_ahead import BlobsAhead
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.tables.access import LookedUp, LookUp, PlaceTables, TableAccess, TableToPlace
from mgcaffe.engine.tables.bags import Bags
from mgcaffe.errors import DataError


@dataclass
class _Group:
    """Layers that look up together, and what they wait for.

    Attributes:
        nodes: the layers in their places.
        trains: one flag a layer: whether it will hand over a gradient.
        answers: bags and sums that layers have not taken yet, by the layer's number in the net.
        looked_up: takes the gradients.
        gradients: those handed over in this pass, one a layer.
        blobs: the ids of passes to come.
        begun: bags of the next passes, and the look-ups that were begun for them.
    """

    nodes: list[Node]
    trains: list[bool] = field(default_factory=list)
    answers: dict[int, tuple[Bags, torch.Tensor]] = field(default_factory=dict)
    looked_up: LookedUp | None = None
    gradients: list[torch.Tensor | None] = field(default_factory=list)
    blobs: BlobsAhead | None = None
    begun: deque[tuple[Sequence[Bags], LookedUp]] = field(default_factory=deque)

    @property
    def layers(self) -> list[EmbeddingBag]:
        return [_bag_layer(node) for node in self.nodes]


class TableLookUps:
    """Makes the look-ups of one net.

    Args:
        nodes: the net's, whose needs for gradients are known.
        access: where the tables are.
        ahead: for how many passes look-ups are begun ahead.
    """

    def __init__(self, nodes: Sequence[Node], access: TableAccess, ahead: int = 0) -> None:
        self._access = access
        self._ahead = ahead
        self._groups = _groups(nodes)
        for group in self._groups if ahead else ():
            group.blobs = BlobsAhead(nodes, group.nodes)
        self._of_layer: dict[int, tuple[_Group, int]] = {}
        for group in self._groups:
            group.trains = [
                node.needs_backward and layer.backward_follows and layer.table.wanted
                for node, layer in zip(group.nodes, group.layers, strict=True)
            ]
            for place, layer in enumerate(group.layers):
                self._of_layer[id(layer)] = group, place
                layer.elsewhere = self

    @property
    def not_ahead(self) -> list[tuple[Layer, Layer]]:
        """The first layer of each group that cannot look up ahead, and what makes its ids, which is not known ahead."""
        return [
            (group.layers[0], group.blobs.unknown.layer)
            for group in self._groups
            if group.blobs is not None and group.blobs.unknown is not None
        ]

    def take(self, layer: Layer) -> tuple[Bags, torch.Tensor]:
        """Return the layer's bags in this pass, and the sum of the rows of each; one look-up for all of its group."""
        group, place = self._of_layer[id(layer)]
        if place == 0 or place not in group.answers:
            self._look_up(group, [_read(node) for node in group.nodes])
        return group.answers.pop(place)

    def give(self, layer: Layer, gradient: torch.Tensor) -> None:
        """Hand over the gradient of these sums; they leave when all of the group are there."""
        group, place = self._of_layer[id(layer)]
        group.gradients[place] = gradient
        missing = (trains and each is None for trains, each in zip(group.trains, group.gradients, strict=True))
        if group.looked_up is None or any(missing):
            return
        group.looked_up.add_gradients(group.gradients)
        group.looked_up, group.gradients = None, []

    def gradients(self) -> Sequence[torch.Tensor]:
        """Return the gradients that wait here to be taken to the tables with the update."""
        return self._access.gradients()

    def forget_gradients(self) -> None:
        """Forget them."""
        self._access.forget_gradients()

    def update(self, rate: float, scale: float) -> None:
        """Take them to the tables; arguments as for `TableAccess.update`."""
        self._access.update(rate, scale)

    def forget_begun(self) -> None:
        """Begin the look-ups of the next passes anew, since tables have been read or written as a whole."""
        for group in self._groups:
            _drop_begun(group)

    def take_part(self) -> None:
        """Make the look-ups of a forward pass without an id, beside other processes that make such a pass."""
        for group in self._groups:
            empty = torch.zeros(0, dtype=torch.int64)
            self._look_up(group, [Bags(empty, 0)] * len(group.nodes))
            group.answers.clear()

    def _look_up(self, group: _Group, bags: Sequence[Bags]) -> None:
        if group.looked_up is not None:
            group.looked_up.drop()  # no backward pass came
        group.looked_up = _take_begun(group, bags) or self._begin(group, bags)
        self._begin_ahead(group)
        group.answers = dict(enumerate(zip(bags, group.looked_up.sums(), strict=True)))
        group.gradients = [None] * len(bags)

    def _begin(self, group: _Group, bags: Sequence[Bags]) -> LookedUp:
        look_ups = [
            LookUp(_number(layer), layer.table.shape[1], each, trains)
            for layer, each, trains in zip(group.layers, bags, group.trains, strict=True)
        ]
        return self._access.look_up(look_ups)

    def _begin_ahead(self, group: _Group) -> None:
        """Begin the look-ups of the next passes, as far as their ids are known.

        A batch with a mistake in it is looked up when it is run, which may never be, and raises the error then.
        """
        while group.blobs is not None and len(group.begun) < self._ahead:
            try:
                bottoms = group.blobs.bottoms(len(group.begun))
                if bottoms is None:
                    return
                bags = [layer.read_bags(each) for layer, each in zip(group.layers, bottoms, strict=True)]
            except DataError:
                return
            group.begun.append((bags, self._begin(group, bags)))


def _take_begun(group: _Group, bags: Sequence[Bags]) -> LookedUp | None:
    """Return the look-ups that were begun for these bags; where others were, since data layers were moved, none."""
    if not group.begun:
        return None
    begun, looked_up = group.begun.popleft()
    if all(one.equals(other) for one, other in zip(begun, bags, strict=True)):
        return looked_up
    looked_up.drop()
    _drop_begun(group)
    return None


def _drop_begun(group: _Group) -> None:
    for _, looked_up in group.begun:
        looked_up.drop()
    group.begun.clear()


def place(layers: Sequence[Layer], owned: Sequence[tuple[int, str, Parameter]], place_tables: PlaceTables) -> None:
    """Give the tables of a net that is being built their places.

    Args:
        layers: the net's.
        owned: (layer index, layer name, parameter) of every parameter that owns its values.
        place_tables: decides.
    """
    bags = [layer for layer in layers if isinstance(layer, EmbeddingBag)]
    counts: dict[int, int] = {}
    for layer in bags:
        owner = layer.table.owner or layer.table
        counts[id(owner)] = counts.get(id(owner), 0) + layer.ids_expected
    tables = [
        TableToPlace(layers[index], parameter, counts.get(id(parameter), 0))
        for index, _, parameter in owned
        if isinstance(parameter, RowParameter)
    ]
    for table, placement in zip(tables, place_tables(tables) if tables else (), strict=True):
        table.parameter.placement = placement


def _groups(nodes: Sequence[Node]) -> list[_Group]:
    """Cut the layers whose tables are placed into groups."""
    groups: list[_Group] = []
    written: dict[int, int] = {}  # by the id of a blob: the number of the last layer so far that wrote it
    for node in nodes:
        if isinstance(node.layer, EmbeddingBag) and node.layer.table.placement is not None:
            last = max((written.get(id(blob), -1) for blob in node.bottoms), default=-1)
            if groups and last < groups[-1].nodes[0].index:
                groups[-1].nodes.append(node)
            else:
                groups.append(_Group([node]))
        written.update((id(blob), node.index) for blob in node.tops)
    return groups


def _bag_layer(node: Node) -> EmbeddingBag:
    assert isinstance(node.layer, EmbeddingBag)
    return node.layer


def _read(node: Node) -> Bags:
    values = [blob.data for blob in node.bottoms]
    assert all(each is not None for each in values), "the layers before this one have run"
    return _bag_layer(node).read_bags([each for each in values if each is not None])


def _number(layer: EmbeddingBag) -> int:
    assert layer.table.placement is not None
    return layer.table.placement.number
