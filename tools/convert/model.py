"""The form between all formats: a net in Caffe's terms, with its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.engine.weights import by_name
from mgcaffe.engine.weights.saved_layers import SavedLayer
from mgcaffe.errors import DataError, UsageError
from mgcaffe.prototxt import NetSource, read_net_source
from mgcaffe.tools.convert.array_files import is_array_file, read_array_file


@dataclass
class Model:
    """A net and its weights.

    Attributes:
        source: the net, brought into today's form, with the places of its fields for errors.
        weights: layers that hold the net's parameters, by name: in a file, or where an importer found them (which is
            not copied); None: those of fillers.
        names: for a blob (by its name here) the name of the same value in the model that this one was made from; blobs
            that stand for none are missing.
        shapes: by layer, those of its tops, where an importer made the net.
        all_items: what takes all items of the batch by their numbers, so that an importer made no layer of it.
        skipped: after `build`, what of the weights found no place in the net, and which layers found no weights.
    """

    source: NetSource
    weights: Sequence[SavedLayer] | Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict, kw_only=True)
    all_items: Sequence[str] = field(default=(), kw_only=True)
    skipped: Sequence[str] = field(default=(), init=False)

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
        net = Net(self.source.param, sources=self.source, phase=TEST, dtype=dtype, stages=stages, seed=seed)
        if not net.inputs:
            net.close()
            raise UsageError(
                f"{self.source.path} has no Input layer",
                hint="give the deploy net; engine edit train_val.prototxt -o deploy.prototxt --deploy makes it",
            )
        report = self.copy_weights(net)
        if report is not None:
            self.skipped = [f"layer '{row.layer}': {row.detail}" for row in report.skipped]
            if net.parameters and not report.copied:
                raise DataError(f"no layer of {self.source.path} is named in {self.weights}")
        return net

    def copy_weights(self, net: Net) -> by_name.CopyReport | None:
        """Copy the weights to the layers of the same names and say what became of them; None where there are none.

        Raises:
            NetError, PrototxtError: as for `Net.copy_trained_layers`.
        """
        if self.weights is None:
            return None
        if isinstance(self.weights, Path) and is_array_file(self.weights):
            return by_name.copy_saved(net.layers, read_array_file(self.weights), str(self.weights))
        if isinstance(self.weights, Path):
            return net.copy_trained_layers(self.weights)
        return by_name.copy_saved(net.layers, self.weights, self.source.path)


def read_model(net: str | Path, weights: str | Path | None = None, *, strict: bool = False) -> Model:
    """Read a prototxt and its weights: a caffemodel (binary or HDF5), safetensors or npz.

    Raises:
        PrototxtError: with the place in the file.
    """
    return Model(read_net_source(Path(net), strict=strict), Path(weights) if weights is not None else None)
