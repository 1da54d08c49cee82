"""Nets and weights of Caffe's as a format of `formats.py`: read, run, and written in today's form."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.engine.net import Net
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.engine.weights.saved_layers import layers_as_saved
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import write_text
from mgcaffe.prototxt.blobs import net_without_blobs
from mgcaffe.tools.convert.caffe_side import CaffeSide
from mgcaffe.tools.convert.caffe_training import CaffeTraining
from mgcaffe.tools.convert.formats import Opened
from mgcaffe.tools.convert.model import Model, read_model
from mgcaffe.tools.model import apply_input_shapes


class CaffeFiles(Opened):
    """A prototxt and, as a second word, its weights, binary or HDF5."""

    trains = True

    def model(self) -> Model:
        """Return the net and where its weights are."""
        if len(self.words) > 2:
            raise UsageError(f"'{self.words[2]}' is one file too many: a model is a net and its weights")
        model = read_model(*self.words, strict=self.options.strict)
        apply_input_shapes(model.source.param, list(self.options.input_shapes))
        return model

    def side(self) -> CaffeSide:
        """Return the net as something that runs."""
        return CaffeSide(self.net)

    def training(self) -> CaffeTraining:
        """Return the net as something that computes a training step, for a module of PyTorch to be compared with."""
        model = self.source
        if model.weights is None:  # those of the definition and of the fillers, as `net` has them
            model = Model(model.source, layers_as_saved(self.net.layers))
        return CaffeTraining(model, as_module=True)

    @property
    def filled_layers(self) -> list[str]:
        """The layers of the net that begin with their fillers, since neither a file nor the definition has weights."""
        if self.source.weights is not None:
            return []
        given = {layer.name for layer in self.source.source.param.layer if layer.blobs}
        own = [layer for layer in self.net.layers if any(parameter.owner is None for parameter in layer.parameters)]
        return [layer.name for layer in own if layer.name not in given]

    def name_of(self, value: str) -> str | None:
        """Return the value's own name."""
        return value


def write_caffe(net: Net, model: Model, net_path: Path, weights_path: Path) -> None:
    """Write a net in today's form, without weights in it, and its weights, as HDF5 where their name ends with `.h5`.

    Raises:
        PrototxtError, SnapshotError: (exit code 73) a file cannot be written.
    """
    write_text(net_without_blobs(model.source.param), net_path)
    if weights_path.name.endswith(".h5"):
        save_hdf5(net, weights_path)
    else:
        save_caffemodel(net, weights_path)
