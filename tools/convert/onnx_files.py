"""ONNX files as a format of `formats.py`: written from nets, and run to be compared."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.engine.net import Net
from mgcaffe.errors import UsageError
from mgcaffe.tools.convert.formats import Opened, Options
from mgcaffe.tools.convert.onnx_side import OnnxSide, need_onnx


class OnnxFile(Opened):
    """A model file that is compared."""

    def side(self) -> OnnxSide:
        """Return it as something that runs."""
        if len(self.words) > 1:
            raise UsageError(f"{self.words[0]} has its weights inside; '{self.words[1]}' does not belong to it")
        return OnnxSide(Path(self.words[0]), dict(self.options.input_shapes))


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
