"""What `module_files.py` writes as one side of a proof: the file's own statements are run, one after the other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgcaffe.errors import DataError, describe_exception
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.tools.convert.torch_out.file import DOCUMENT
from mgcaffe.tools.convert.torch_side import TorchSide


def forward_statements(text: str, name: str) -> list[ast.Assign]:
    """Return the assignments in the `forward` of a class.

    Args:
        text: of the Python file.
        name: of the class.
    """
    return [statement for statement in _forward(text, name).body if isinstance(statement, ast.Assign)]


def _forward(text: str, name: str) -> ast.FunctionDef:
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    return next(node for node in classes[0].body if isinstance(node, ast.FunctionDef) and node.name == "forward")


@dataclass(frozen=True)
class Loaded:
    """A Python file whose code has run.

    Attributes:
        text: the code.
        file: its name.
        space: the names that it has defined.
        module: the net, with its weights, in evaluation mode.
    """

    text: str
    file: str
    space: Mapping[str, Any]
    module: torch.nn.Module


def run_file(text: str, file: str) -> dict[str, Any]:
    """Run the code of a Python file and return the names that it defines.

    It is not imported, which would leave a file of bytecode beside it.
    """
    space: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
    exec(compile(text, file, "exec"), space)
    return space


class ModuleSide:
    """A module that was written; see `proof.Side`.

    Values between are those that the statements of `forward` assign, outputs those of a call of the whole module.

    Args:
        loaded: the file.
        document: what the net calls its values (`Module.document`).

    Attributes:
        module: the net, in evaluation mode.
    """

    def __init__(self, loaded: Loaded, document: Mapping[str, Any]) -> None:
        self._loaded = loaded
        self._document = document
        self.module = loaded.module

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The inputs, with the shapes of the net."""
        return {name: tuple(shape) for name, shape in self._document["inputs"].items()}

    @property
    def outputs(self) -> Sequence[str]:
        """What `forward` returns."""
        names: list[str] = self._document["outputs"]
        return names

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run statement by statement, then the whole module.

        Raises:
            DataError: the file's code fails.
        """
        given = [torch.from_numpy(inputs[name]).to(self._dtype) for name in self.inputs]
        try:
            with torch.no_grad():
                values = {name: _array(value) for name, value in self.statement_values(given)}
                self._begin_anew()
                returned = self.module(*given)
                self._begin_anew()
        except Exception as error:  # whatever PyTorch raises
            raise DataError(f"{self._loaded.file} fails: {describe_exception(error)}") from None
        whole = returned if isinstance(returned, tuple) else (returned,)
        return {**values, **dict(zip(self.outputs, map(_array, whole), strict=True))}

    @property
    def _dtype(self) -> torch.dtype:
        return next((each.dtype for each in self.module.parameters()), torch.float32)

    def statement_values(self, given: Sequence[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Run the statements of `forward` one by one and give what each assigns, by the net's names.

        Args:
            given: the inputs.
        """
        function = _forward(self._loaded.text, type(self.module).__name__)
        variables = [argument.arg for argument in function.args.args]
        space = {**self._loaded.space, **dict(zip(variables, (self.module, *given), strict=True))}
        statements = [statement for statement in function.body if isinstance(statement, ast.Assign)]
        for statement, names in zip(statements, self._document["values"], strict=True):
            exec(compile(ast.Module([statement], []), self._loaded.file, "exec"), space)
            for variable, name in zip(_targets(statement), names, strict=True):
                yield name, space[variable]

    def _begin_anew(self) -> None:
        """Drop the state that recurrent layers carry from call to call."""
        for part in self.module.modules():
            if isinstance(getattr(part, "carries_state", None), bool):  # a helper, and no layer that is called so
                part.reset()  # type: ignore[operator]

    @property
    def parameters(self) -> dict[str, tuple[tuple[str, int], bool]]:
        """By name of a parameter, the layer and number of its blob, and whether that is transposed."""
        return {
            name: ((layer, number), transposed)
            for name, (layer, number, transposed) in self._document["parameters"].items()
        }

    def gradients(self) -> dict[tuple[str, int], np.ndarray]:
        """Return the gradients of trained blobs by layer and number, in the blobs' own layout.

        Values are those that `backward` has left in the module's parameters; parameters without any are missing.
        """
        found = {}
        for name, parameter in self.module.named_parameters():
            if parameter.grad is not None and name in self._document["parameters"]:
                layer, number, transposed = self._document["parameters"][name]
                found[layer, number] = _array(parameter.grad.t() if transposed else parameter.grad)
        return found


class ProgramSide:
    """A `.pt2` file that `module_files.write_program` has written; see `proof.Side`.

    Args:
        program: what is in it.
        document: what the net calls its values.
    """

    def __init__(self, program: torch.export.ExportedProgram, document: Mapping[str, Any]) -> None:
        self._side = TorchSide(program)
        self._document = document

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The inputs, in the program's order, by the net's names."""
        return dict(zip(self._document["inputs"], self._side.inputs.values(), strict=True))

    @property
    def outputs(self) -> Sequence[str]:
        """What the program returns, by the net's names."""
        names: list[str] = self._document["outputs"]
        return names

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run node by node; values without a node of their own are missing."""
        fed = {node: inputs[name] for node, name in zip(self._side.inputs, self._document["inputs"], strict=True)}
        values = {**fed, **self._side.run(fed)}
        nodes = {**self._document["nodes"], **dict(zip(self.outputs, self._side.outputs, strict=True))}
        return {name: values[node] for name, node in nodes.items() if node in values}


def read_side(path: Path, change: Callable[[str], str] = str) -> ModuleSide:
    """Return a written Python file with the weights beside it.

    Args:
        path: the Python file.
        change: what is done to its code before it runs.

    Raises:
        DataError: one of them cannot be read.
    """
    from safetensors import safe_open

    try:
        text = change(path.read_text(encoding="utf-8"))
        with safe_open(path.with_suffix(".safetensors"), framework="pt") as file:
            said = (file.metadata() or {}).get(DOCUMENT, "")
        space = run_file(text, str(path))
        loaded = Loaded(text, str(path), space, space["load"]())
    except Exception as error:  # whatever the file's code and safetensors raise
        raise DataError(f"{path} cannot be loaded: {describe_exception(error)}") from None
    return ModuleSide(loaded, document_of(said, str(path)))


def document_of(text: str, file: str) -> Mapping[str, Any]:
    """Return a `Module.document` from its JSON."""
    document: Mapping[str, Any] = parse_json(text, file, "the names of the values are damaged").value
    return document


def _targets(statement: ast.Assign) -> list[str]:
    """Return the variables that a statement assigns."""
    return [node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy().copy()
