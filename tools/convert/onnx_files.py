"""ONNX files as a format of `formats.py`: read, written from nets, and run to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mgcaffe.engine.net import Net
from mgcaffe.errors import UsageError
from mgcaffe.tools.convert.formats import Opened, Options
from mgcaffe.tools.convert.importing.values import Shape
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_side import OnnxSide, need_onnx


class OnnxFile(Opened):
    """`FILE.onnx`."""

    @property
    def path(self) -> Path:
        """The one file."""
        if len(self.words) > 1:
            raise UsageError(f"{self.words[0]} has its weights inside; '{self.words[1]}' does not belong to it")
        return Path(self.words[0])

    def model(self) -> Model:
        """Return the net that the model becomes."""
        return read_onnx(self.path, dict(self.options.input_shapes))

    def side(self) -> OnnxSide:
        """Return it as something that runs."""
        return OnnxSide(self.path, dict(self.options.input_shapes))


def read_onnx(path: Path, input_shapes: Mapping[str, Shape] | None = None) -> Model:
    """Return the net that a model becomes.

    Args:
        path: the file.
        input_shapes: shapes of inputs that the file leaves open, by name; the name '' means the first input.

    Raises:
        UsageError: the package onnx is not installed, or the size of an input is open and not given.
        DataError: the file is no ONNX model, or damaged.
        NetError: no layer computes what an operator does; names it.
    """
    need_onnx("onnx")
    from mgcaffe.tools.convert.onnx_in.graph import read_graph
    from mgcaffe.tools.convert.onnx_in.importer import import_graph

    return import_graph(read_graph(path), name=path.stem, input_shapes=input_shapes)


def write_onnx(net: Net, path: Path, options: Options) -> None:
    """Write a net as an ONNX file.

    Raises:
        UsageError: the package onnx is not installed.
        NetError: a layer that ONNX cannot express.
    """
    need_onnx("onnx")
    from mgcaffe.tools.convert.onnx_out.export import export_net
    from mgcaffe.tools.convert.onnx_out.file import write_model

    write_model(export_net(net, allow=options.allow), path, note=options.note)
