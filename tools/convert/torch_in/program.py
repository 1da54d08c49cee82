"""Gets the exported program of what a user names: a file of torch.export, or a function that returns a module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import io
import logging
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from mgcaffe.errors import DataError, Location, NetError, UsageError, describe_exception
from mgcaffe.tools.convert.torch_in.row_inputs import find_rows

_TORCH = Path(torch.__file__).parent
_PYTHON = Path(inspect.__file__).parent
_NO_ROWS = "indices"
"""A word of what PyTorch says of looking rows up by floating-point numbers."""
_CAST = "where an input is computed on before it is looked up, cast it in forward: ids.long()"
_MOST_VALUES = 2**31 - 1
"""The most values of a blob (Caffe counts them in an int)."""

Shape = Sequence[int]
Shapes = Shape | Mapping[str, Shape]
"""The shape of the first input, or shapes of inputs by name; the name '' means the first input."""

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def load_module(spec: str) -> Any:
    """Return the nn.Module that a user names, `FILE.py:NAME` or `package.module:NAME`; see `load_program`.

    Raises:
        UsageError: there is no such function, or it returns no module.
        DataError: the code fails.
    """
    return _call(spec, *_named(spec))


def load_program(
    spec: str, input_shape: Shapes | None = None, *, extra_files: dict[str, Any] | None = None
) -> ExportedProgram:
    """Return the program that a user names.

    Args:
        spec: a `.pt2` file of torch.export.save, or `FILE.py:NAME` or `package.module:NAME`, where NAME is an nn.Module
            or is called without arguments and returns one. What the file or package does when it is loaded is done.
        input_shape: of the module's input, or of its inputs by name, batch size included; a `.pt2` has its own.
        extra_files: filled with what a `.pt2` holds under these names besides.

    Raises:
        UsageError: there is no such function, or the shape is missing, or not that of the `.pt2`.
        DataError: the file cannot be read, or its code fails.
        NetError: torch.export refuses the module.
    """
    if spec.lower().endswith(".pt2"):
        return _of_shape(_read_program(Path(spec), extra_files), input_shape, spec)
    return export_module(load_module(spec), input_shape, spec)


def export_module(module: Any, input_shape: Shapes | None, name: str) -> ExportedProgram:
    """Return a module's program in evaluation mode; the module itself is left in that mode.

    Args:
        module: an nn.Module.
        input_shape: of its one input, or of its inputs by name, batch size included.
        name: what to call it in messages.

    Raises:
        UsageError: no shape is given, or `forward` has no such input, or one more that has no shape, or no blob can
            have that shape.
        NetError: torch.export refuses the module, with the line of the user's Python where it does so.
    """
    if not input_shape:
        raise UsageError(f"{name}: the shape of the input is not known", hint="give it: --input_shape 1,3,224,224")
    in_order, by_name = _examples(module, input_shape, name)
    module.eval()
    try:
        try:
            return _export(module, in_order, by_name)
        except Exception as error:
            if _NO_ROWS not in str(error):
                raise
            with quiet():
                rows = find_rows(module, in_order, by_name)
            if not rows:
                raise
        in_order = tuple(each.long() if id(each) in rows else each for each in in_order)
        return _export(module, in_order, {key: x.long() if id(x) in rows else x for key, x in by_name.items()})
    except (Exception, SystemExit) as error:  # torch.export has no root of its errors, and the module's own code runs
        message = f"torch.export refuses {name}: {_first_lines(error)}"
        raise NetError(message, location=_users_line(error), hint=_CAST if _NO_ROWS in message else None) from None


def _export(module: Any, in_order: tuple[torch.Tensor, ...], by_name: dict[str, torch.Tensor]) -> ExportedProgram:
    with torch.no_grad(), quiet():
        return torch.export.export(module, in_order, by_name, strict=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what torch.export warns of, logs and prints: what matters of it is in its exceptions."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _examples(module: Any, input_shape: Shapes, name: str) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """Return inputs of these shapes: in order, and, behind one that is left out, by name."""
    dtype = _dtype(module)
    shapes = dict(input_shape) if isinstance(input_shape, Mapping) else {"": input_shape}
    for shape in shapes.values():
        if any(size < 1 for size in shape) or math.prod(shape) > _MOST_VALUES:
            raise UsageError(
                f"{name}: no blob can have the shape {tuple(shape)}",
                hint=f"sizes are 1 or more, and their product at most {_MOST_VALUES}",
            )
    given = {key: torch.zeros(tuple(shape), dtype=dtype) for key, shape in shapes.items()}
    parameters = [each for each in inspect.signature(module.forward).parameters.values() if each.kind in _NAMED]
    if not parameters:
        return tuple(given.values()), {}
    names = [each.name for each in parameters]
    if len(given) == 1 and "data" not in names:  # what the one input of a net is called
        given = {"" if key == "data" else key: value for key, value in given.items()}
    given = {key or names[0]: value for key, value in given.items()}
    unknown = [key for key in given if key not in names]
    if unknown:
        raise UsageError(f"{name} has no input '{unknown[0]}'", hint=f"its forward takes {', '.join(names)}")
    missing = [each.name for each in parameters if each.default is each.empty and each.name not in given]
    if missing:
        raise UsageError(
            f"{name}: the shape of the input '{missing[0]}' is not known",
            hint=f"give it: --input_shape {missing[0]}=1,3,224,224",
        )
    count = next((number for number, key in enumerate(names) if key not in given), len(names))
    return tuple(given[key] for key in names[:count]), {key: given[key] for key in names[count:] if key in given}


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


def _of_shape(program: ExportedProgram, input_shape: Shapes | None, spec: str) -> ExportedProgram:
    """Return the program if its inputs have those shapes, where some are given."""
    names = program.graph_signature.user_inputs
    found = {node.name: node.meta["val"] for node in program.graph.nodes if node.name in names}
    given = dict(input_shape) if isinstance(input_shape, Mapping) else {"": input_shape} if input_shape else {}
    for key, shape in given.items():
        name = names[0] if key == "" or (key == "data" and len(names) == 1) else key
        if name not in found:
            raise UsageError(f"{spec} has no input '{key}'", hint=f"it has {', '.join(map(str, names))}")
        exported = tuple(getattr(found[name], "shape", ()))
        if tuple(shape) != exported:
            raise UsageError(
                f"{spec} was exported for inputs of shape {exported}, not {tuple(shape)}",
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
        _refuse_arguments(spec, found)
        found = _guarded(spec, found)
    if not isinstance(found, torch.nn.Module):
        raise UsageError(f"{spec} returns {type(found).__name__}, which is no nn.Module")
    return found


def _refuse_arguments(spec: str, function: Callable[..., Any]) -> None:
    """Refuse what cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # not every callable has a signature
        return
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in optional]
    if needed:
        raise UsageError(
            f"{spec} is called without arguments, and needs {', '.join(needed)}",
            hint="name a function without any that returns the module",
        )


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
    """Return the innermost line of code that is neither PyTorch's, Python's nor ours; None where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return Location(error.filename, error.lineno or 1, error.offset or 1)
    ours = Path(__file__).resolve().parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        own = path.resolve().is_relative_to(ours)
        foreign = own or path.is_relative_to(_TORCH) or path.parent == _PYTHON or "importlib" in frame.filename
        if not foreign and path.is_file():
            return Location(frame.filename, frame.lineno or 1, 1)
    return None


def _first_lines(error: BaseException) -> str:
    """Return what an exception says, without the pages that torch.export adds."""
    lines = [line.strip() for line in describe_exception(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:400]
