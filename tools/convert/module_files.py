"""Modules of PyTorch as a format that is written: a Python file with its weights beside it, or a `.pt2`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch.export import ExportedProgram

from mgcaffe.engine.net import Net
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, NetError, describe_exception
from mgcaffe.tools.convert.formats import Options
from mgcaffe.tools.convert.module_side import (
    Loaded,
    ProgramSide,
    document_of,
    forward_statements,
    run_file,
)
from mgcaffe.tools.convert.safetensors_file import need_safetensors
from mgcaffe.tools.convert.torch_in.program import load_program, quiet
from mgcaffe.tools.convert.torch_out.export import export_net
from mgcaffe.tools.convert.torch_out.file import DOCUMENT, state_of, write_arrays, write_text
from mgcaffe.tools.convert.torch_out.module import Module
from mgcaffe.tools.convert.torch_out.text import module_text


def write_module(net: Net, origin: str, paths: Sequence[Path], options: Options) -> None:
    """Write a net as a Python file and its weights.

    Args:
        net: in its TEST phase, with its weights.
        origin: the file that it was read from.
        paths: the Python file and the weights.
        options: what is allowed, and what the file says of itself.

    Raises:
        UsageError: safetensors is not installed.
        NetError: a layer that PyTorch cannot express.
        EngineError: (exit code 73) a file cannot be written.
    """
    need_safetensors()
    module = export_net(net, allow=options.allow)
    write_arrays(module, paths[1])
    write_text(_text(module, origin, options), paths[0])


def write_program(net: Net, origin: str, paths: Sequence[Path], options: Options) -> None:
    """Write a net as a program of torch.export.

    Args:
        net, origin, options: as for `write_module`.
        paths: the file.

    Raises:
        NetError: a layer that PyTorch cannot express, or that torch.export refuses.
        EngineError: (exit code 73) the file cannot be written.
    """
    module = export_net(net, allow=options.allow, stateless=True)
    program, document = exported(module, _text(module, origin, options))
    if options.note:
        document["note"] = options.note
    try:
        with paths[0].open("wb") as file, quiet():
            target = _Target(file)
            torch.export.save(program, cast("IO[bytes]", target), extra_files={DOCUMENT: json.dumps(document)})
            if target.error is not None:
                raise target.error
    except OSError as error:
        raise EngineError(f"cannot write {paths[0]}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


class _Target:
    """Where an archive is written. A full disk is noted, since PyTorch's writer would end the process.

    Args:
        file: takes what is written.

    Attributes:
        error: the first one; None: there was none.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, unless that has failed before."""
        try:
            if self.error is None:
                self._file.write(data)
        except OSError as error:
            self.error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing: whoever opened the file closes it."""


def _text(module: Module, origin: str, options: Options) -> str:
    return module_text(module, origin=Path(origin).name, version=version("mgcaffe"), note=options.note)


def _file_of(module: Module) -> str:
    return f"<{module.name}>"


def loaded(module: Module, text: str) -> Loaded:
    """Return a module as its file's `load` would, from memory: its arrays are not copied."""
    space = run_file(text, _file_of(module))
    with torch.device("meta"):
        made: torch.nn.Module = space[module.name]()
    made.load_state_dict(state_of(module), assign=True)
    return Loaded(text, _file_of(module), space, made.eval())


def exported(module: Module, text: str) -> tuple[ExportedProgram, dict[str, Any]]:
    """Return a module's program for inputs of the net's sizes, and its document with the names of the nodes' values.

    Raises:
        NetError: torch.export refuses it.
    """
    made, file = loaded(module, text).module, _file_of(module)
    examples = tuple(torch.zeros(tuple(value.shape)) for value in module.inputs)
    try:
        with torch.no_grad(), quiet():
            program = torch.export.export(made, examples, strict=False)
    except Exception as error:  # torch.export has no root of its errors
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = _statement_at(module, text, lines)
        reason = " ".join(describe_exception(error).split())[:300]
        raise NetError(f"torch.export refuses the module{where}: {reason}") from None
    document = {**module.document(), "nodes": _nodes_of_values(program, module, text, file)}
    return program, document


def _statement_at(module: Module, text: str, lines: Sequence[int | None]) -> str:
    """Say which value is computed at the first of these lines that belongs to `forward`."""
    for statement, made in zip(forward_statements(text, module.name), module.statements, strict=True):
        if any(line is not None and statement.lineno <= line <= (statement.end_lineno or 0) for line in lines):
            return f" where it computes {', '.join(made.values)}"
    return ""


def _nodes_of_values(program: ExportedProgram, module: Module, text: str, file: str) -> Mapping[str, str]:
    """Return the node that holds each value of the net, as far as there is one.

    These are the ones of its statement that are read behind it, or by nothing, without places (max pooling's).
    """
    by_line: dict[int, list[Any]] = {}
    for node in program.graph.nodes:
        trace = (node.meta.get("stack_trace") or "").splitlines()
        lines = [line for line in trace if f'File "{file}"' in line and line.rstrip().endswith("in forward")]
        if node.op == "call_function" and lines:
            by_line.setdefault(int(lines[0].partition(", line ")[2].partition(",")[0]), []).append(node)
    shapes = {name: shape for made in module.statements for name, shape in zip(made.values, made.shapes, strict=True)}
    found = {}
    for statement, made in zip(forward_statements(text, module.name), module.statements, strict=True):
        nodes = [
            node
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            for node in by_line.get(line, ())
            if isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_floating_point()
        ]
        ends = [node for node in nodes if not node.users or node.users.keys() - set(nodes)]
        ends = ends[-1:] if len(made.values) == 1 else ends
        if len(ends) != len(made.values):
            continue
        for value, node in zip(made.values, ends, strict=True):
            if _is_shape(node.meta["val"].shape, shapes[value]):
                found[value] = str(node.name)
    return found


def _is_shape(found: Sequence[int | torch.SymInt], shape: Sequence[int]) -> bool:
    """Return whether a node has a shape, as far as that is known before the program runs."""
    known = [(size, other) for size, other in zip(found, shape, strict=False) if isinstance(size, int)]
    return len(found) == len(shape) and all(size == other for size, other in known)


def run_program(path: Path) -> ProgramSide:
    """Return a written program as something that runs.

    Raises:
        DataError: it cannot be read.
    """
    extra = {DOCUMENT: "{}"}
    program = load_program(str(path), extra_files=extra)
    return ProgramSide(program, document_of(extra[DOCUMENT], str(path)))
