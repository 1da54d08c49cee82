"""Weights alone as a format of `formats.py`: caffemodel, HDF5, safetensors and npz, each made of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from mgcaffe.engine.net import Net
from mgcaffe.engine.weights import hdf5
from mgcaffe.engine.weights.saved_layers import SavedLayer, layers_as_saved, saved_layers
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError, UsageError
from mgcaffe.errors.whole_files import write_whole
from mgcaffe.prototxt import NetParameter, fill_blob, write_binary
from mgcaffe.prototxt.stored import read_stored_net
from mgcaffe.tools.convert.array_files import is_array_file, named_arrays, read_array_file, write_array_file
from mgcaffe.tools.convert.formats import ARRAY_ENDINGS, Opened, ending_of
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.proof import Difference, compare

_SHOWN = 5
"""How many names of arrays an error lists."""


class WeightsFile(Opened):
    """A file of weights without a net before it."""

    weights_alone = True

    @property
    def _path(self) -> Path:
        return Path(self.words[0])

    def model(self) -> Model:
        """Refuse: a net, which a caffemodel has around its weights, is that of a training run.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self._path} is taken as weights alone, of which no model can be made",
            hint=f"give their net: NET.prototxt {self._path}",
        )

    def side(self) -> WeightsSide:
        """Return the arrays, by name."""
        return WeightsSide(self.saved, self.words[0])

    @cached_property
    def saved(self) -> list[SavedLayer]:
        """The layers that have weights."""
        return read_saved(self._path)


class WeightsSide:
    """The arrays of weights as what a model computes, without any inputs; see `proof.Side`.

    Args:
        saved: the weights.
        source: where they come from, for messages.
    """

    def __init__(self, saved: Sequence[SavedLayer], source: str) -> None:
        self._blobs = dict(named_arrays(saved, source))

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """None."""
        return {}

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the arrays."""
        return list(self._blobs)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays."""
        return {name: blob.load() for name, blob in self._blobs.items()}

    def array(self, name: str) -> dict[str, np.ndarray]:
        """Return one array, by its name; of all together memory would be needed twice."""
        return {name: self._blobs[name].load()}


def weights_side(opened: Opened) -> WeightsSide:
    """Return the weights of a model, or of a file of weights, as a side of a proof."""
    if isinstance(opened, WeightsFile):
        return opened.side()
    return WeightsSide(saved_of_net(opened.net), " ".join(opened.words))


def compare_arrays(one: WeightsSide, other: WeightsSide) -> list[Difference]:
    """Compare weights without nets, one array at a time, the worst first.

    Raises:
        DataError: they do not have the same arrays, or one has another shape.
    """
    unmatched = set(one.outputs) ^ set(other.outputs)
    if unmatched:
        shown = ", ".join(sorted(unmatched)[:_SHOWN]) + (" and others" if len(unmatched) > _SHOWN else "")
        raise DataError(f"only one of the two has {shown}", hint="engine diff shows what two files of weights hold")
    found = [compare(one.array(name), other.array(name), {name: name})[0] for name in one.outputs]
    return sorted(found, key=lambda each: -each.largest_relative)


def read_saved(path: Path) -> list[SavedLayer]:
    """Read weights of any kind that have no net: the layers that have blobs.

    Raises:
        PrototxtError, NetError, DataError: the file cannot be read, or holds no weights.
    """
    if is_array_file(path):
        return read_array_file(path)
    saved = []
    stored = None if hdf5.is_hdf5(path) else read_stored_net(path)
    message = hdf5.read_message(path) if stored is None else stored.param
    values = {} if stored is None else stored.values
    for number, entry in enumerate(saved_layers(message, values, str(path))):
        fields = message.layer[number].blobs
        blobs = {n: blob for n, blob in entry.blobs.items() if fields[n].ListFields() or (number, n) in values}
        if blobs:
            saved.append(SavedLayer(entry.name, blobs))
    if not saved:
        raise DataError(f"{path} holds no weights")
    return saved


def saved_of_net(net: Net) -> list[SavedLayer]:
    """Return the weights of a net, those that layers share at their owner alone.

    Raises:
        DataError: it has none.
    """
    saved = []
    for layer, entry in zip(net.layers, layers_as_saved(net.layers), strict=True):
        blobs = {n: blob for n, blob in entry.blobs.items() if layer.parameters[n].owner is None}
        if blobs:
            saved.append(SavedLayer(layer.name, blobs))
    if not saved:
        raise DataError(f"net '{net.name}' has no weights")
    return saved


def write_weights(opened: Opened, path: Path) -> None:
    """Write the weights of a model, or of a file of weights, without a net.

    Raises:
        DataError: they cannot be written without their net, or in this format.
        EngineError: (exit code 73) the file cannot be written.
    """
    source = " ".join(opened.words)
    if isinstance(opened, WeightsFile):
        saved = opened.saved
        _refuse_old_shapes(saved, source, path)
    else:
        saved = saved_of_net(opened.net)
    if ending_of(path.name, ARRAY_ENDINGS):
        write_array_file(saved, path, source)
    elif path.name.lower().endswith(".h5"):
        content = hdf5.encode_saved(saved)
        try:
            write_whole(path, content)
        except OSError as error:
            raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    else:
        write_binary(_message(saved, source), path)


def _message(saved: Sequence[SavedLayer], source: str) -> NetParameter:
    """Return a message whose layers have names and blobs alone."""
    message = NetParameter()
    for layer in saved:
        if max(layer.blobs) >= len(layer.blobs):
            missing = next(number for number in range(len(layer.blobs)) if number not in layer.blobs)
            raise DataError(
                f"{source}: layer '{layer.name}' has no blob {missing}, which another layer may lend it, and a"
                " caffemodel holds all",
                hint=f"give its net: NET.prototxt {source}",
            )
        entry = message.layer.add(name=layer.name)
        for number in sorted(layer.blobs):
            fill_blob(entry.blobs.add(), layer.blobs[number].load())
    return message


def _refuse_old_shapes(saved: Sequence[SavedLayer], source: str, path: Path) -> None:
    """Refuse blobs whose shape in a net is not known: 1 x 1 x 1 x N may mean N, which only the net says."""
    for layer in saved:
        for number, blob in layer.blobs.items():
            if blob.is_legacy and blob.shape[:1] == (1,):
                shape = "x".join(map(str, blob.shape))
                raise DataError(
                    f"{source}: blob {number} of layer '{layer.name}' is stored in the old form, {shape}, which does"
                    " not say how many axes it has in a net",
                    hint=f"give its net: NET.prototxt {source} {path}",
                )
