"""Modules of PyTorch as a format of `formats.py`: made by a function of a Python file or package, or a `.pt2`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from torch.export import ExportedProgram

from mgcaffe.errors import NetError, UsageError
from mgcaffe.tools.convert.formats import Opened
from mgcaffe.tools.convert.torch_in.activations import dropouts_left_out
from mgcaffe.tools.convert.torch_in.importer import TorchModel, import_program
from mgcaffe.tools.convert.torch_in.operation import module_path
from mgcaffe.tools.convert.torch_in.program import load_program
from mgcaffe.tools.convert.torch_side import TorchSide
from mgcaffe.tools.convert.torch_training import TorchTraining


class TorchModule(Opened):
    """`FILE.py:FUNCTION`, `package.module:FUNCTION` or `FILE.pt2`."""

    trains = True

    @cached_property
    def program(self) -> ExportedProgram:
        """The exported program."""
        if len(self.words) > 1:
            raise UsageError(f"{self.words[0]} has its weights inside; '{self.words[1]}' does not belong to it")
        return load_program(self.words[0], dict(self.options.input_shapes))

    def model(self) -> TorchModel:
        """Return the net that the module becomes."""
        model = import_program(self.program, name=net_name(self.words[0]), file=self.words[0])
        if left_out := [
            f"'{module_path(node)[0] or node.name}'" for node in dropouts_left_out(self.program.graph.nodes)
        ]:
            self.notes.append(f"left out, since no layer drops as they do in training: {', '.join(left_out)}")
        return model

    def side(self) -> TorchSide:
        """Return the program as PyTorch runs it, with the names of the net where it can become one."""
        try:
            source = self.source
        except NetError:
            return TorchSide(self.program)
        assert isinstance(source, TorchModel)
        return TorchSide(self.program, {value: blob for blob, value in source.names.items()}, outputs=source.outputs)

    def training(self) -> TorchTraining:
        """Return the program as something that computes a training step."""
        source = self.source
        assert isinstance(source, TorchModel)
        return TorchTraining(self.program, source)

    def name_of(self, value: str) -> str | None:
        """Return the value's own name, which `side` uses too."""
        return value if value in self.source.names else None


def net_name(spec: str) -> str:
    """Return what a net is called that is made from such a module: its function, or its file."""
    return Path(spec).stem if spec.endswith(".pt2") else spec.rpartition(":")[2]
