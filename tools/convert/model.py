"""The form between all formats: a net in Caffe's terms, with its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.engine.weights import by_name
from mgcaffe.engine.weights.by_name import SavedLayer
from mgcaffe.engine.weights.hdf5_image import is_hdf5
from mgcaffe.errors import DataError, UsageError
from mgcaffe.prototxt import NetParameter, NetSource, read_net, read_net_source
from mgcaffe.prototxt.files import net_source
from mgcaffe.tools.convert.array_files import is_array_file, read_array_file


@dataclass
class Model:
    """A net and its weights.

    Attributes:
        source: the net, brought into today's form, with the places of its fields for errors.
        weights: layers that hold the net's parameters in their `blobs`, or a file of any kind, or saved layers, all by
            name; None: those of fillers.
        names: for a blob (by its name here) the name of the same value in the model that this one was made from; blobs
            that stand for none are missing.
        skipped: after `build`, what of the weights found no place in the net, and which layers found no weights.
    """

    source: NetSource
    weights: NetParameter | Path | Sequence[SavedLayer] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    skipped: Sequence[str] = field(default=(), init=False)

    @classmethod
    def of_message(cls, param: NetParameter, names: Mapping[str, str], *, file: str) -> Model:
        """Return the model that an importer has made.

        Args:
            param: the net; its layers hold their parameters in `blobs`.
            names: as in the attributes.
            file: what it was made from, for messages.
        """
        structure = NetParameter()
        structure.CopyFrom(param)
        for layer in structure.layer:
            del layer.blobs[:]
        return cls(net_source(structure, file=file), param, names)

    def build(
        self,
        *,
        dtype: torch.dtype = torch.float32,
        stages: Sequence[str] = (),
        seed: int | None = None,
    ) -> Net:
        """Return the net in its TEST phase, with its weights.

        Raises:
            UsageError: it has no Input layer, so that it cannot be fed.
            DataError: no layer of the net is named in the weights, or the file cannot be read.
            NetError, PrototxtError: as for `Net` and `Net.copy_trained_layers`.
        """
        weights = self._read_weights()  # before the net takes its memory
        net = Net(self.source.param, sources=self.source, phase=TEST, dtype=dtype, stages=stages, seed=seed)
        if not net.inputs:
            net.close()
            raise UsageError(
                f"{self.source.path} has no Input layer",
                hint="give the deploy net",
            )
        if weights is None:
            return net
        source = str(self.weights) if isinstance(self.weights, Path) else self.source.path
        if isinstance(weights, NetParameter):
            report = by_name.copy_message(net.layers, weights, source)
        elif isinstance(weights, Path):
            report = net.copy_trained_layers(weights)
        else:
            report = by_name.copy_saved(net.layers, weights, source)
        self.skipped = [f"layer '{row.layer}': {row.detail}" for row in report.skipped]
        if net.parameters and not report.copied:
            raise DataError(f"no layer of {self.source.path} is named in {source}")
        return net

    def _read_weights(self) -> NetParameter | Path | Sequence[SavedLayer] | None:
        """Return the weights, read if they are a file that is read as a whole."""
        if isinstance(self.weights, Path) and is_array_file(self.weights):
            return read_array_file(self.weights)
        if isinstance(self.weights, Path) and not is_hdf5(self.weights):
            return read_net(self.weights)
        return self.weights


def read_model(net: str | Path, weights: str | Path | None = None, *, strict: bool = False) -> Model:
    """Read a prototxt and its weights: a caffemodel (binary or HDF5), safetensors or npz.

    Raises:
        PrototxtError: with the place in the file.
    """
    return Model(read_net_source(Path(net), strict=strict), Path(weights) if weights is not None else None)
