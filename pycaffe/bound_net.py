"""A net of the engine's, bound to what scripts see of it: its layers, blobs and their names, by their numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

from mgcaffe import engine
from mgcaffe.engine.graph.node import AUTOMATIC
from mgcaffe.engine.host_blob import ParameterBlob
from mgcaffe.engine.host_copies import Loans, write_back
from mgcaffe.engine.layer import Layer as EngineLayer
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.layers.python import Python
from mgcaffe.engine.user_layer import UserLayer
from mgcaffe.pycaffe.blob import Blob, BlobVec, TopValues


class NetLayer:
    """A layer of a net.

    Attributes:
        name, type: as in the prototxt.
        blobs: its learnable blobs.
    """

    def __init__(self, layer: EngineLayer) -> None:
        self.name = layer.name
        self.type = layer.type
        self.blobs = BlobVec(ParameterBlob(parameter) for parameter in layer.parameters)


class BoundNet:
    """What scripts see of a net of the engine's, and its passes over layers by their numbers; the base of `Net`.

    Attributes:
        blobs: by name, in the order in which they are made.
        layers: in order; a layer written in Python is the user's own object.
        layer_dict: the same by name.
        params: the learnable blobs of the layers that have any, by layer.
        inputs, outputs: names of the blobs made by Input layers, and of those that nothing reads.
        top_names, bottom_names: the names of each layer's blobs, by layer.
        blob_loss_weights: each blob's weight in the loss, by name.
    """

    def _bind(self, net: engine.Net, loans: Loans) -> None:
        self.engine_net = net
        self._loans = loans
        # pycaffe's own names for what its C++ side offers; scripts that walk the graph use them.
        self._layer_names = [layer.name for layer in net.layers]
        blobs = list(dict.fromkeys(top for node in net.nodes for top in node.tops))
        self._numbers = {blob: number for number, blob in enumerate(blobs)}
        # Losses without a top have one all the same, of Caffe's name; of several, `blobs` holds the last.
        self._blob_names = [blob.name if blob.name in net.blobs else AUTOMATIC for blob in blobs]
        self.layers: list[NetLayer | UserLayer] = [
            layer.user if isinstance(layer, Python) else NetLayer(layer) for layer in net.layers
        ]
        self.layer_dict = OrderedDict(zip(self._layer_names, self.layers, strict=True))
        self.params = OrderedDict((name, layer.blobs) for name, layer in self.layer_dict.items() if layer.blobs)
        sources: dict[engine.Blob, tuple[TopValues, int]] = {}
        for node in net.nodes:
            held = _held_values(node.layer)
            if held is not None:
                sources |= {top: (held, index) for index, top in enumerate(node.tops) if top not in node.bottoms}
        weights = [net.loss_weights.get(blob.name, 0.0) for blob in blobs]
        self.blob_loss_weights = OrderedDict(zip(self._blob_names, weights, strict=True))
        self._blobs = [
            Blob(net, blob, sources.get(blob), weight, loans) for blob, weight in zip(blobs, weights, strict=True)
        ]
        self.blobs = OrderedDict(zip(self._blob_names, self._blobs, strict=True))
        self.inputs = list(net.inputs)
        self.outputs = list(net.outputs)
        self._inputs = [self._numbers[net.blobs[name]] for name in self.inputs]
        self._outputs = [self._numbers[net.blobs[name]] for name in self.outputs]
        self.bottom_names = self._names_by_layer(self._bottom_ids)
        self.top_names = self._names_by_layer(self._top_ids)

    def _names_by_layer(self, ids: Callable[[int], Sequence[int]]) -> OrderedDict[str, list[str]]:
        """Return the names of the blobs whose numbers `ids` gives for a layer's, by the layers' names."""
        return OrderedDict(
            (name, [self._blob_names[blob] for blob in ids(layer)]) for layer, name in enumerate(self._layer_names)
        )

    def _forward(self, first: int, last: int) -> float:
        """Run the layers of these numbers and those between; return their part of the loss.

        Blobs that layers before them make, and that have no values yet, are zeros.
        """
        made: set[int] = set()
        for layer in range(first, last + 1) if first else ():
            for blob in set(self._bottom_ids(layer)) - made:
                self._blobs[blob].fill()
            made.update(self._top_ids(layer))
        write_back(self._loans)
        return self.engine_net.forward(first, last + 1)

    def _backward(self, first: int, last: int) -> None:
        """Run the layers of these numbers and those between backward, `first` being the higher number."""
        write_back(self._loans)
        inputs = [self.engine_net.blobs[name] for name in self.inputs]
        before = [blob.diff for blob in inputs]
        self.engine_net.backward(start=first, end=last)
        for blob, diff in zip(inputs, before, strict=True):
            if diff is not None and blob.diff is not None and blob.diff is not diff and blob.diff.shape == diff.shape:
                self._move_diff(blob.diff, diff)

    def _move_diff(self, diff: torch.Tensor, held: torch.Tensor) -> None:
        """Copy an input's gradient to where a script may hold it, and have all blobs that share it share it there."""
        storage, start = diff.untyped_storage().data_ptr(), diff.storage_offset()
        held.copy_(diff)
        for blob in self.engine_net.blobs.values():
            other = blob.diff
            if other is diff:
                blob.diff = held
            elif other is not None and other.untyped_storage().data_ptr() == storage and diff.stride() == held.stride():
                place = held.storage_offset() + other.storage_offset() - start
                blob.diff = held.as_strided(other.shape, other.stride(), place)

    def _top_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that the layer of this number makes."""
        return [self._numbers[blob] for blob in self.engine_net.top_blobs[layer]]

    def _bottom_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that the layer of this number reads."""
        return [self._numbers[blob] for blob in self.engine_net.bottom_blobs[layer]]


def _held_values(layer: EngineLayer) -> TopValues | None:
    """Return what a layer's next forward finds in its tops, where scripts may write that; None for other layers."""
    if isinstance(layer, Input):
        return layer.values
    return layer.top_values if isinstance(layer, Python) else None
