"""ONNX files as a format of `formats.py`: read, written from nets, and run to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.engine.net import Net
from mgcaffe.errors import UsageError
from mgcaffe.tools.convert.formats import Opened, Options
from mgcaffe.tools.convert.importing.batch_size import for_any_batch, notes_on_sizes
from mgcaffe.tools.convert.importing.values import Shape
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_side import OnnxSide, need_onnx
from mgcaffe.tools.model import apply_input_shapes

if TYPE_CHECKING:
    import onnx


class OnnxFile(Opened):
    """`FILE.onnx`."""

    @property
    def path(self) -> Path:
        """The one file."""
        if len(self.words) > 1:
            raise UsageError(f"{self.words[0]} has its weights inside; '{self.words[1]}' does not belong to it")
        return Path(self.words[0])

    def model(self) -> Model:
        """Return the net that the file was made from, or else that its operators become."""
        need_onnx("onnx")
        from mgcaffe.tools.convert.onnx_in.graph import parse_model
        from mgcaffe.tools.convert.onnx_own import has_own_net, own_model

        message = parse_model(self.path)
        own = own_model(message, self.path)
        if own is not None:
            apply_input_shapes(own.source.param, list(self.options.input_shapes))
            return own
        if has_own_net(message):
            self.notes.append(
                f"{self.path} holds the net that it was made from, but its graph was changed since: its operators are"
                " read instead"
            )
        model, bound = _read(self.path, dict(self.options.input_shapes), message)
        self.notes += notes_on_sizes(bound)
        return model

    def side(self) -> OnnxSide:
        """Return it as something that runs."""
        return OnnxSide(self.path, dict(self.options.input_shapes))


def read_onnx(
    path: Path, input_shapes: Mapping[str, Shape] | None = None, message: onnx.ModelProto | None = None
) -> Model:
    """Return the net that a model's operators become.

    Args:
        path: the file.
        input_shapes: shapes of inputs that the file leaves open, by name; the name '' means the first input.
        message: what is in the file, where it has been read.

    Raises:
        UsageError: the package onnx is not installed, or the size of an input is open and not given.
        DataError: the file is no ONNX model, or damaged.
        NetError: no layer computes what an operator does; names it.
    """
    return _read(path, input_shapes, message)[0]


def _read(
    path: Path, input_shapes: Mapping[str, Shape] | None = None, message: onnx.ModelProto | None = None
) -> tuple[Model, list[str]]:
    """Return what `read_onnx` does, and the layers that hold for one batch size alone."""
    need_onnx("onnx")
    from mgcaffe.tools.convert.onnx_in.graph import graph_of, parse_model
    from mgcaffe.tools.convert.onnx_in.importer import import_graph

    graph = graph_of(parse_model(path) if message is None else message, path)
    given = dict(input_shapes or {})

    first = next(iter(given.values()))[0] if given else None

    def at(size: int) -> Model:
        shapes = {name: (size if shape[0] == first else shape[0], *shape[1:]) for name, shape in given.items()}
        return import_graph(graph, name=path.stem, input_shapes=shapes)

    model = import_graph(graph, name=path.stem, input_shapes=given)
    return for_any_batch(model, at if given else None, first)


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
