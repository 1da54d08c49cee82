"""Gets the exported program of what a user names: a file of torch.export, or a function that returns a module."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from mgcaffe.errors import DataError, Location, NetError, UsageError, describe_exception

_TORCH = Path(torch.__file__).parent


def load_program(
    spec: str, input_shape: Sequence[int] | None = None, *, extra_files: dict[str, Any] | None = None
) -> ExportedProgram:
    """Return the program that a user names.

    Args:
        spec: a `.pt2` file of torch.export.save, or `FILE.py:NAME` or `package.module:NAME`, where NAME is an nn.Module
            or is called without arguments and returns one. What the file or package does when it is loaded is done.
        input_shape: of the module's input, batch size included; a `.pt2` has its own.
        extra_files: filled with what a `.pt2` holds under these names besides.

    Raises:
        UsageError: there is no such function, or the shape is missing, or not that of the `.pt2`.
        DataError: the file cannot be read, or its code fails.
        NetError: torch.export refuses the module.
    """
    if spec.lower().endswith(".pt2"):
        return _of_shape(_read_program(Path(spec), extra_files), input_shape, spec)
    module = _call(spec, *_named(spec))
    if input_shape is None:
        raise UsageError(f"{spec}: the shape of the input is not known", hint="give it: --input_shape 1,3,224,224")
    return export_module(module, input_shape, spec)


def export_module(module: Any, input_shape: Sequence[int], name: str) -> ExportedProgram:
    """Return a module's program in evaluation mode; the module itself is left in that mode.

    Args:
        module: an nn.Module.
        input_shape: of its one input, batch size included.
        name: what to call it in messages.

    Raises:
        NetError: torch.export refuses the module, with the line of the user's Python where it does so.
    """
    example = torch.zeros(tuple(input_shape), dtype=_dtype(module))
    module.eval()
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, (example,), strict=False)
    except (Exception, SystemExit) as error:  # torch.export has no root of its errors, and the module's own code runs
        message = f"torch.export refuses {name}: {_first_lines(error)}"
        raise NetError(message, location=_users_line(error)) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what torch.export warns of and logs: what matters of it is in its exceptions."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _dtype(module: Any) -> torch.dtype:
    kinds = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else torch.float32


def _read_program(path: Path, extra_files: dict[str, Any] | None = None) -> ExportedProgram:
    if not path.is_file():
        raise DataError(f"cannot read {path}: there is no such file")
    try:
        with quiet():
            return torch.export.load(path, extra_files=extra_files)
    except Exception as error:  # a damaged archive fails in the reader of zip files, of JSON or of tensors
        raise DataError(f"{path} is no program that this PyTorch can read: {_first_lines(error)}") from None


def _of_shape(program: ExportedProgram, input_shape: Sequence[int] | None, spec: str) -> ExportedProgram:
    """Return the program if its first input has that shape, where one is given."""
    first = program.graph_signature.user_inputs[:1]
    value = next((node.meta["val"] for node in program.graph.nodes if node.name in first), None)
    shape = tuple(getattr(value, "shape", ()))
    if input_shape is not None and tuple(input_shape) != shape:
        raise UsageError(
            f"{spec} was exported for inputs of shape {shape}, not {tuple(input_shape)}",
            hint="leave --input_shape away, or export the module again",
        )
    return program


def _named(spec: str) -> tuple[str, str]:
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{spec} names no module", hint="write FILE.py:FUNCTION, package.module:FUNCTION or FILE.pt2")
    return place, name


def _call(spec: str, place: str, name: str) -> Any:
    """Return the module that a function makes, or that is there."""
    holder = _guarded(spec, lambda: _load(place))
    found = getattr(holder, name, None)
    if found is None:
        functions = [key for key, value in vars(holder).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"{place} has no '{name}'", hint=f"it has {', '.join(sorted(functions)[:20])}")
    if not isinstance(found, torch.nn.Module):
        if not callable(found):
            raise UsageError(f"{spec} is no nn.Module, and cannot be called")
        found = _guarded(spec, found)
    if not isinstance(found, torch.nn.Module):
        raise UsageError(f"{spec} returns {type(found).__name__}, which is no nn.Module")
    return found


def _load(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    if not path.is_file():
        raise DataError(f"cannot read {path}: there is no such file")
    description = importlib.util.spec_from_file_location(f"mgcaffe_user_{path.stem}", path)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[description.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        description.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _guarded(spec: str, call: Callable[[], Any]) -> Any:
    """Run the user's code; what it raises becomes one message with its line."""
    try:
        return call()
    except (DataError, UsageError):
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{spec}: {error}", location=_users_line(error)) from None
    except (Exception, SystemExit) as error:
        raise DataError(f"{spec} fails: {_first_lines(error)}", location=_users_line(error)) from None


def _users_line(error: BaseException) -> Location | None:
    """Return the innermost line of code that is neither PyTorch's, Python's nor ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return Location(error.filename, error.lineno or 1, error.offset or 1)
    ours = Path(__file__).parents[2]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        foreign = path.is_relative_to(_TORCH) or path.is_relative_to(ours / "tools") or "importlib" in frame.filename
        if not foreign and path.is_file():
            return Location(frame.filename, frame.lineno or 1, 1)
    return None


def _first_lines(error: BaseException) -> str:
    """Return what an exception says, without the pages that torch.export adds."""
    lines = [line.strip() for line in describe_exception(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:400]
