"""Opens nets and solvers, text or binary, and upgrades what is written in an old way.

Which of text and binary a file is, is found out from its content: names say little (a `.prototxt.txt`, a
caffemodel without an ending).
"""

from __future__ import annotations

import os
from typing import TypeVar

from google.protobuf.message import Message

from mgcaffe.errors import Location, PrototxtError
from mgcaffe.prototxt.binary import parse_binary, read_bytes, refuse_foreign
from mgcaffe.prototxt.lexer import SourceText
from mgcaffe.prototxt.messages import NetParameter, SolverParameter, SolverState
from mgcaffe.prototxt.names import check_names
from mgcaffe.prototxt.problems import Problems
from mgcaffe.prototxt.source import NetSource, Place, SolverSource, Source
from mgcaffe.prototxt.text_reader import parse
from mgcaffe.prototxt.upgrade import upgrade_net, upgrade_solver

_CONTROL_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\v\f\r")
_SAMPLE = 65536
_MAX_TEXT_TRIAL = 1 << 24

_M = TypeVar("_M", bound=Message)


def read_net_source(path: str | os.PathLike[str], strict: bool = False) -> NetSource:
    """Read a net, upgraded to the form of today's Caffe, with the places of its layers and fields.

    Args:
        path: a prototxt or a binary NetParameter (a caffemodel).
        strict: makes an unknown field an error, instead of a warning.

    Returns:
        The net and where everything in it was written.

    Raises:
        PrototxtError: the file cannot be read, is no net, or cannot be upgraded.
    """
    return net_source_of(read_bytes(path), os.fspath(path), strict)


def read_net(path: str | os.PathLike[str], strict: bool = False) -> NetParameter:
    """Read a net as `read_net_source` does, and give just the NetParameter."""
    return read_net_source(path, strict).param


def read_solver_source(path: str | os.PathLike[str], strict: bool = False) -> SolverSource:
    """Read a solver, upgraded to the form of today's Caffe along with the nets written inside it.

    Args:
        path: a prototxt or a binary SolverParameter.
        strict: makes an unknown field an error, instead of a warning.

    Returns:
        The solver and where everything in it was written.

    Raises:
        PrototxtError: the file cannot be read, is no solver, or cannot be upgraded.
    """
    return _solver_source(read_bytes(path), os.fspath(path), strict)


def read_solver(path: str | os.PathLike[str], strict: bool = False) -> SolverParameter:
    """Read a solver as `read_solver_source` does, and give just the SolverParameter."""
    return read_solver_source(path, strict).param


def parse_net(text: str, *, file: str = "<string>", strict: bool = False) -> NetSource:
    """Read a net from a text as `read_net_source` reads it from a file."""
    return net_source_of(text.encode("utf-8", "surrogateescape"), file, strict)


def parse_solver(text: str, *, file: str = "<string>", strict: bool = False) -> SolverSource:
    """Read a solver from a text as `read_solver_source` reads it from a file."""
    return _solver_source(text.encode("utf-8", "surrogateescape"), file, strict)


def net_source(param: NetParameter, *, file: str = "<memory>") -> NetSource:
    """Wrap a NetParameter that was made in memory, whose places are all the `file` as a whole."""
    return NetSource(SourceText(file, None), Place(0), file, param)


def net_source_of(data: bytes, file: str, strict: bool = False) -> NetSource:
    """Read a net as `read_net_source` does from the content of a file."""
    param, source, problems = _decode(data, NetParameter, file)
    _refuse_solver(param, problems, data, source)
    problems.report(strict)
    net = NetSource(source.text, source.place, file, param)
    check_names(param, source)
    upgrade_net(net)
    return net


def _solver_source(data: bytes, file: str, strict: bool) -> SolverSource:
    param, source, problems = _decode(data, SolverParameter, file)
    _refuse_net(problems, data, source)
    problems.report(strict)
    check_names(param, source)
    solver = SolverSource(source.text, source.place, file, param)
    upgrade_solver(solver)
    return solver


def _decode(data: bytes, message_class: type[_M], file: str) -> tuple[_M, Source, Problems]:
    """Find out whether the data are text or binary, and read them."""
    refuse_foreign(data, message_class, file)
    sample = data[:_SAMPLE]
    is_binary = len(sample.translate(None, _CONTROL_BYTES)) < len(sample)
    decoded = _decode_binary(data, message_class, file) if is_binary else _decode_text(data, message_class, file)
    if not decoded[0].ListFields() and not decoded[2].found:
        raise PrototxtError("this file is empty, or holds nothing but comments", location=Location(file))
    return decoded


def _decode_text(data: bytes, message_class: type[_M], file: str) -> tuple[_M, Source, Problems]:
    try:
        return parse(data.decode("utf-8", "surrogateescape"), message_class, file=file)
    except PrototxtError as text_error:
        # A short binary message can look like text throughout.
        try:
            message, problems = parse_binary(data, message_class, file=file)
        except PrototxtError:
            raise text_error from None
        if problems.found or problems.foreign:
            raise
        return message, Source(SourceText(file, None), Place(0)), problems


def _decode_binary(data: bytes, message_class: type[_M], file: str) -> tuple[_M, Source, Problems]:
    try:
        message, problems = parse_binary(data, message_class, file=file)
        if problems.found and not message.ListFields():
            raise problems.found[0].error()
        return message, Source(SourceText(file, None), Place(0)), problems
    except PrototxtError as binary_error:
        source = Source(SourceText(file, None), Place(0))
        if message_class is NetParameter and _is_whole(data, SolverState, source):
            hint = "Give the caffemodel beside it, or go on from it with --snapshot."
            raise source.error("this is a solverstate, not weights", hint=hint) from None
        name = message_class.DESCRIPTOR.name
        if len(data) > _MAX_TEXT_TRIAL:
            text_reason = "it contains control characters"
        else:
            try:
                return parse(data.decode("utf-8", "surrogateescape"), message_class, file=file)
            except PrototxtError as text_error:
                assert text_error.location is not None
                place = f"line {text_error.location.line}, column {text_error.location.column}"
                text_reason = f"{text_error.message.splitlines()[0]} ({place})"
        raise PrototxtError(
            f"this is no {name}, neither as text nor in binary\n"
            f"  as text: {text_reason}\n  in binary: {binary_error.message}",
            location=Location(file),
        ) from None


def _refuse_solver(param: NetParameter, problems: Problems, data: bytes, source: Source) -> None:
    """Refuse a solver that was given where a net is wanted."""
    if param.layer or param.layers or not problems.found:
        return
    if source.text.text is None:
        if _is_whole(data, SolverParameter, source):
            raise source.error("this is a solver, not a net", hint="Give the net that the solver names.")
        return
    fields = SolverParameter.DESCRIPTOR.fields_by_name
    for problem in problems.found:
        if problem.is_top_level and problem.field in fields:
            message = f"this is a solver, not a net: it has '{problem.field}'\n{problem.excerpt}"
            raise PrototxtError(message, location=problem.location, hint="Give the net that the solver names.")


def _refuse_net(problems: Problems, data: bytes, source: Source) -> None:
    """Refuse a net that was given where a solver is wanted."""
    if not problems.found:
        return
    hint = "Give the solver that names this net."
    if source.text.text is None:
        if _is_whole(data, NetParameter, source):
            raise source.error("this is a net, not a solver", hint=hint)
        return
    for problem in problems.found:
        if problem.is_top_level and problem.field in ("layer", "layers", "input"):
            message = f"this is a net, not a solver: it has '{problem.field}'\n{problem.excerpt}"
            raise PrototxtError(message, location=problem.location, hint=hint)


def _is_whole(data: bytes, message_class: type[Message], source: Source) -> bool:
    """Say whether binary data make a message of some class without anything unknown in it, all its strings text."""
    try:
        _, problems = parse_binary(data, message_class, file=source.text.file)
    except PrototxtError:
        return False
    return not problems.found and not problems.foreign
