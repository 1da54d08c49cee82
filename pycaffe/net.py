"""The net, as scripts see it (Caffe: pycaffe.py, _caffe.cpp, the class Net)."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mgcaffe import engine
from mgcaffe.engine.data.memory_data import MemoryData
from mgcaffe.engine.graph.node import AUTOMATIC
from mgcaffe.engine.host_blob import ParameterBlob
from mgcaffe.engine.host_copies import Loans, write_back
from mgcaffe.engine.layer import Layer as EngineLayer
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.layers.python import Python
from mgcaffe.engine.types import Array
from mgcaffe.engine.user_layer import UserLayer
from mgcaffe.engine.weights import hdf5
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.batching import in_batches, joined
from mgcaffe.pycaffe.blob import Blob, BlobVec, TopValues
from mgcaffe.pycaffe.problems import ArgumentError, UnknownBlobError, check_file, removed

Hook = Callable[[int], Any]


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


class Net:
    """A net that runs.

        Net("deploy.prototxt", caffe.TEST, weights="net.caffemodel")
        Net("deploy.prototxt", "net.caffemodel", caffe.TEST)        # the old form

    Args:
        network_file: a prototxt.
        phase: TRAIN or TEST.
        level, stages: the rest of the net's state; a level of None is 0.
        weights: a caffemodel to load.

    Attributes:
        blobs: by name, in the order in which they are made.
        layers: in order; a layer written in Python is the user's own object.
        layer_dict: the same by name.
        params: the learnable blobs of the layers that have any, by layer.
        inputs, outputs: names of the blobs made by Input layers, and of those that nothing reads.
        top_names, bottom_names: the names of each layer's blobs, by layer.
        blob_loss_weights: each blob's weight in the loss, by name.
    """

    def __init__(
        self,
        network_file: str | os.PathLike[str],
        phase: Any,
        level: Any = None,
        stages: Sequence[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(phase, (str, os.PathLike)):
            if level is None:
                raise ArgumentError(
                    "the phase is missing",
                    hint="write Net(file, weights, caffe.TEST), or caffe.TRAIN",
                )
            weights, phase, level = phase, level, 0
        if isinstance(level, (str, os.PathLike)):
            raise ArgumentError(
                f"the third argument, {os.fspath(level)!r}, is no level",
                hint="write Net(file, phase, weights=...) or Net(file, weights, phase)",
            )
        if phase not in (mode.TRAIN, mode.TEST):
            raise ArgumentError(f"the phase {phase!r} is neither caffe.TRAIN (0) nor caffe.TEST (1)")
        mode.start_caffe_log()
        check_file(network_file)
        if weights is not None:
            check_file(weights)
        net = engine.Net.from_file(
            network_file,
            phase=phase,
            level=level or 0,
            stages=[stages] if isinstance(stages, str) else list(stages or ()),
            device=mode.device(),
            seed=mode.next_seed(),
        )
        self._bind(net, Loans())
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def of(cls, net: engine.Net, loans: Loans) -> Net:
        """Show a net of the engine's, which has to keep its blobs; `loans` are those of all nets that run together."""
        shown = cls.__new__(cls)
        shown._bind(net, loans)
        return shown

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what became of a method that Caffe had before its release 1.0."""
            if error := removed(f"'{type(self).__name__}' object", name):
                raise error
            return object.__getattribute__(self, name)  # raises again what led here, also within a property

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

    # -- running -----------------------------------------------------------------------------------------

    def forward(
        self,
        blobs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run the net, or the layers from `start` to `end`, both included.

        Args:
            blobs: more blobs to return.
            start, end: names of layers.
            inputs: the values of all inputs, by name; none to leave in them what is there.

        Returns:
            The values of the outputs (of `end`'s tops, if that is given) and of `blobs`, by name.

        Raises:
            ArgumentError: names or batch sizes do not fit.
        """
        first = self._number(start) if start is not None else 0
        last = self._number(end) if end is not None else len(self.layers) - 1
        names = [*(self.outputs if end is None else self.top_names[end]), *self._known(blobs)]
        if inputs:
            self._check_names("input", set(inputs), set(self.inputs))
            for name, values in inputs.items():
                self._put("input", name, self.blobs[name].data, values)
                self.blobs[name].feed()
        self._forward(first, last)
        return {name: self.blobs[name].data for name in names}

    def backward(
        self,
        diffs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **top_diffs: Any,
    ) -> dict[str, Array]:
        """Run the net backward, or the layers from `start` down to `end`, both included.

        Args:
            diffs: more blobs whose gradients to return.
            start, end: names of layers.
            top_diffs: the gradients of all outputs, by name; none to leave in them what is there.

        Returns:
            The gradients of the inputs (of `end`'s bottoms, if that is given) and of `diffs`, by name.

        Raises:
            ArgumentError: names or batch sizes do not fit.
        """
        first = self._number(start) if start is not None else len(self.layers) - 1
        last = self._number(end) if end is not None else 0
        names = [*(self.inputs if end is None else self.bottom_names[end]), *self._known(diffs)]
        if top_diffs:
            self._check_names("top diff", set(top_diffs), set(self.outputs))
            for name, values in top_diffs.items():
                self._put("top diff", name, self.blobs[name].diff, values)
        self._backward(first, last)
        return {name: self.blobs[name].diff for name in names}

    def forward_all(self, blobs: Iterable[str] | None = None, **inputs: Any) -> dict[str, Array]:
        """Run any number of records through the net, batch by batch.

        Args:
            blobs: more blobs to return.
            inputs: the values of all inputs, by name, as many as there are records.

        Returns:
            The values of the outputs and of `blobs`, by name, one row a record.
        """
        names = [*self.outputs, *self._known(blobs)]
        parts = [
            {name: values.copy() for name, values in self.forward(blobs, None, None, **batch).items()}
            for batch in self._batch(inputs)
        ]
        return joined(parts, names, _records(inputs))

    def forward_backward_all(
        self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None, **arrays: Any
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Run any number of records through the net and back, batch by batch.

        Args:
            blobs, diffs: more blobs whose values and gradients to return.
            arrays: the values of all inputs, and the gradients of outputs, by name.

        Returns:
            The values of the outputs and of `blobs`, and the gradients of the inputs and of `diffs`.
        """
        top_diffs = {name: values for name, values in arrays.items() if name in self.outputs}
        inputs = {name: values for name, values in arrays.items() if name not in top_diffs}
        values, gradients = [], []
        tops = list(self._batch(top_diffs)) if top_diffs else None
        for number, batch in enumerate(self._batch(inputs)):
            values.append({name: out.copy() for name, out in self.forward(blobs, None, None, **batch).items()})
            backward = self.backward(diffs, None, None, **(tops[number] if tops else {}))
            gradients.append({name: out.copy() for name, out in backward.items()})
        count = _records(inputs)
        return (
            joined(values, [*self.outputs, *self._known(blobs)], count),
            joined(gradients, [*self.inputs, *self._known(diffs)], count),
        )

    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs' shapes; forward does so by itself."""
        write_back(self._loans)
        self.engine_net.reshape()

    def clear_param_diffs(self) -> None:
        """Set the gradients of all learnable blobs to zero."""
        write_back(self._loans)
        for layer in self.engine_net.layers:
            for parameter in layer.parameters:
                parameter.clear_diff()

    def set_input_arrays(self, data: Array, labels: Array) -> None:
        """Give the net's MemoryData layer, which has to be layer 0, its data and labels.

        Raises:
            ArgumentError: layer 0 is none.
            DataError: the arrays do not fit.
        """
        layer = self.engine_net.layers[0]
        if not isinstance(layer, MemoryData):
            raise ArgumentError(f"set_input_arrays fills a MemoryData layer, but layer 0 is of type {layer.type}")
        layer.reset(np.asarray(data), np.asarray(labels))

    # -- hooks -------------------------------------------------------------------------------------------

    def before_forward(self, hook: Hook) -> None:
        """Have `hook` called with a layer's number before the layer runs forward."""
        self.engine_net.before_forward.append(_calling(hook, self._loans))

    def after_forward(self, hook: Hook) -> None:
        """Have `hook` called with a layer's number after the layer ran forward."""
        self.engine_net.after_forward.append(_calling(hook, self._loans))

    def before_backward(self, hook: Hook) -> None:
        """Have `hook` called with a layer's number before the layer runs backward."""
        self.engine_net.before_backward.append(_calling(hook, self._loans))

    def after_backward(self, hook: Hook) -> None:
        """Have `hook` called with a layer's number after the layer ran backward."""
        self.engine_net.after_backward.append(_calling(hook, self._loans))

    # -- weights -----------------------------------------------------------------------------------------

    def copy_from(self, weights: str | os.PathLike[str]) -> None:
        """Load a caffemodel's weights, binary or HDF5, by layer name."""
        write_back(self._loans)
        check_file(weights)
        self.engine_net.copy_trained_layers(Path(weights))

    def share_with(self, other: Net) -> None:
        """Make the layers named as in `other` use that net's learnable blobs; not for the net that a solver trains."""
        write_back(self._loans)
        self.engine_net.share_trained_layers_with(other.engine_net)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a caffemodel."""
        write_back(self._loans)
        save_caffemodel(self.engine_net, path)

    def save_hdf5(self, path: str | os.PathLike[str], diff: bool = False) -> None:
        """Write the weights (and gradients) as HDF5."""
        write_back(self._loans)
        hdf5.save_hdf5(self.engine_net, path, diff)

    def load_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Load weights from HDF5, by layer name."""
        write_back(self._loans)
        check_file(path)
        hdf5.load_hdf5(self.engine_net, path)

    # -- inside ------------------------------------------------------------------------------------------

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

    def _number(self, layer: str) -> int:
        if layer not in self.layer_dict:
            raise ArgumentError(f"the net has no layer '{layer}'", hint=f"its layers: {', '.join(self._layer_names)}")
        return self._layer_names.index(layer)

    def _known(self, names: Iterable[str] | None) -> list[str]:
        listed = [names] if isinstance(names, str) else list(names or ())
        for name in listed:
            if name not in self.blobs:
                raise UnknownBlobError(f"the net has no blob '{name}'", hint=f"its blobs: {', '.join(self.blobs)}")
        return listed

    def _check_names(self, what: str, given: set[str], wanted: set[str]) -> None:
        if given != wanted:
            raise ArgumentError(
                f"{what} arguments {', '.join(sorted(given))} do not match the net's: {', '.join(sorted(wanted))}",
                hint="give all of them, or none",
            )

    @staticmethod
    def _put(what: str, name: str, target: Array, values: Any) -> None:
        """Assign values to a blob's array as numpy does, which broadcasts them.

        Raises:
            ArgumentError: they are not as many records as the batch has, or their shape does not broadcast.
        """
        array = np.asarray(values)
        shapes = f"has shape {array.shape}, but the blob has shape {target.shape}"
        if array.shape[:1] != target.shape[:1]:
            raise ArgumentError(
                f"{what} '{name}' is not batch sized: it {shapes}",
                hint="reshape the blob first, or give as many records as a batch has",
            )
        try:
            target[...] = array
        except ValueError:
            raise ArgumentError(f"{what} '{name}' {shapes}", hint="numpy cannot broadcast it to that") from None

    def _batch(self, blobs: Mapping[str, Any]) -> Iterator[dict[str, Array]]:
        """Return arrays by name in pieces of the net's batch size; pycaffe's name for it, which scripts know.

        Raises:
            ArgumentError: the net has no inputs, there are no arrays, or not as many records in each.
        """
        if not self.inputs:
            raise ArgumentError("the net has no inputs that records could be given to")
        return in_batches(blobs, self.blobs[self.inputs[0]].shape[0])


def _calling(hook: Hook, loans: Loans) -> Hook:
    """Return the hook, after which what it wrote into blobs is where the net finds it."""

    def call(layer: int) -> None:
        hook(layer)
        write_back(loans)

    return call


def _held_values(layer: EngineLayer) -> TopValues | None:
    """Return what a layer's next forward finds in its tops, where scripts may write that; None for other layers."""
    if isinstance(layer, Input):
        return layer.values
    return layer.top_values if isinstance(layer, Python) else None


def _records(arrays: Mapping[str, Any]) -> int:
    return len(next(iter(arrays.values()), ()))
