"""Modules of PyTorch as a format of `formats.py`: made by a function of a Python file or package, or a `.pt2`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from mgcaffe.errors import NetError, UsageError
from mgcaffe.tools.convert.formats import Opened
from mgcaffe.tools.convert.importing.batch_size import for_any_batch, notes_on_sizes
from mgcaffe.tools.convert.torch_in.activations import dropouts_left_out
from mgcaffe.tools.convert.torch_in.importer import TorchModel, import_program
from mgcaffe.tools.convert.torch_in.look_ups import rows_that_learn_elsewhere
from mgcaffe.tools.convert.torch_in.operation import module_path
from mgcaffe.tools.convert.torch_in.program import export_module, load_module, load_program
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
        if self._is_program:
            return load_program(self.words[0], dict(self.options.input_shapes))
        return export_module(self._module, dict(self.options.input_shapes), self.words[0])

    @property
    def _is_program(self) -> bool:
        return self.words[0].lower().endswith(".pt2")

    @cached_property
    def _module(self) -> Any:
        return load_module(self.words[0])

    def model(self) -> TorchModel:
        """Return the net that the module becomes, for any batch size where that can be."""
        model, bound = for_any_batch(self._imported(self.program), None if self._is_program else self._at)
        self.notes += notes_on_sizes(bound)
        nodes = self.program.graph.nodes
        if left_out := [f"'{module_path(node)[0] or node.name}'" for node in dropouts_left_out(nodes)]:
            self.notes.append(f"left out, since no layer drops as they do in training: {', '.join(left_out)}")
        if elsewhere := [f"'{module_path(node)[0] or node.name}'" for node in rows_that_learn_elsewhere(nodes)]:
            self.notes.append(
                "the row of padding_idx stays what it is, also where the table learns elsewhere:"
                f" {', '.join(dict.fromkeys(elsewhere))}"
            )
        if replaced := [each.name.removesuffix(".normalized") for each in model.replaced.values()]:
            self.notes.append(
                "trained as one weight, where PyTorch trains its direction and lengths apart (weight_norm):"
                f" {', '.join(dict.fromkeys(replaced))}"
            )
        if dropping := [] if self._is_program else attentions_that_drop(self._module):
            self.notes.append(f"left out: the dropout of attention's weights in {', '.join(dropping)}")
        return model

    def _imported(self, program: ExportedProgram) -> TorchModel:
        return import_program(program, name=net_name(self.words[0]), file=self.words[0])

    def _at(self, size: int) -> TorchModel:
        """Return the net at another batch size: inputs whose first axis is as that of the first one get it."""
        shapes = dict(self.options.input_shapes)
        given = next(iter(shapes.values()))[0]
        other = {name: (size if shape[0] == given else shape[0], *shape[1:]) for name, shape in shapes.items()}
        return self._imported(export_module(self._module, other, self.words[0]))

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


def attentions_that_drop(module: torch.nn.Module) -> list[str]:
    """Return the paths of nn.MultiheadAttention modules whose weights are dropped in training."""
    kinds = torch.nn.MultiheadAttention
    return [f"'{path}'" for path, part in module.named_modules() if isinstance(part, kinds) and part.dropout > 0]


def net_name(spec: str) -> str:
    """Return what a net is called that is made from such a module: its function, or its file."""
    return Path(spec).stem if spec.endswith(".pt2") else spec.rpartition(":")[2]
