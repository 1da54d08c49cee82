"""The net, as scripts see it (Caffe: pycaffe.py, _caffe.cpp, the class Net)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcaffe import engine
from mgcaffe.engine.data.memory_data import MemoryData
from mgcaffe.engine.host_copies import Loans, write_back
from mgcaffe.engine.types import Array
from mgcaffe.engine.weights import hdf5
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.pycaffe import mode
from mgcaffe.pycaffe.batching import in_batches, joined
from mgcaffe.pycaffe.bound_net import BoundNet
from mgcaffe.pycaffe.problems import ArgumentError, UnknownBlobError, check_file, removed

Hook = Callable[[int], Any]


class Net(BoundNet):
    """A net that runs.

        Net("deploy.prototxt", caffe.TEST, weights="net.caffemodel")
        Net("deploy.prototxt", "net.caffemodel", caffe.TEST)        # the old form

    Args:
        network_file: a prototxt.
        phase: TRAIN or TEST.
        level, stages: the rest of the net's state; a level of None is 0.
        weights: a caffemodel to load.

    The attributes are those of `BoundNet`.
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


def _records(arrays: Mapping[str, Any]) -> int:
    return len(next(iter(arrays.values()), ()))
