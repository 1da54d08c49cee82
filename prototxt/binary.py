"""Reads and writes messages in protobuf's wire format: caffemodel, solverstate and binaryproto files.

protobuf keeps fields and enum values that the schema does not know aside without a warning; here each is found
and reported, as in text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from mgcaffe.errors import EXIT_CANNOT_WRITE, Location, PrototxtError
from mgcaffe.errors.whole_files import Content, write_whole
from mgcaffe.prototxt.foreign_text import text_of
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.problems import Problem, Problems
from mgcaffe.prototxt.schema import MessageFacts

_M = TypeVar("_M", bound=Message)
MAX_PROBLEMS = 1000
_ZIP, _PICKLE = "a zip file, as checkpoints of PyTorch are", "a pickle, as checkpoints of PyTorch before 1.6 are"
_FOREIGN = {
    b"\x89HDF": "an HDF5 file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"PK\3\4": _ZIP,
    b"version https://git-lfs": "a Git LFS pointer, whose file has still to be fetched (git lfs pull)",
}
_OLD_CHECKPOINT = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", re.DOTALL)
"""The head of a pickle of protocol 2 to 5, and the number that `torch.save` put in front."""
_CHECKPOINT_HINT = (
    "for weights of PyTorch write FILE.py with a function that makes the module and loads them, and give"
    " FILE.py:FUNCTION to `engine convert`"
)
_WEB_PAGE = (b"<!doctype html", b"<html")
_HEAD = 256


def parse_binary(data: bytes, message_class: type[_M], *, file: str = "<bytes>") -> tuple[_M, Problems]:
    """Read a message from its wire format.

    Args:
        data: the bytes.
        message_class: the class of the message, such as NetParameter.
        file: what to call the bytes in messages.

    Returns:
        The message, and what was unknown in it or not UTF-8 (which the caller reports).

    Raises:
        PrototxtError: the bytes are cut short, damaged, or no such message.
    """
    refuse_foreign(data, message_class, file)
    message = message_class()
    name = message_class.DESCRIPTOR.name
    try:
        message.MergeFromString(data)
    except DecodeError as error:
        raise PrototxtError(
            f"{len(data)} bytes that are no {name} in binary form: cut short, damaged, or something else ({error})",
            location=Location(file),
        ) from None
    if not message.IsInitialized():
        # types-protobuf does not know the method.
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise PrototxtError(f"this {name} lacks what it must have: {missing}", location=Location(file))
    problems = Problems()
    _read_foreign_texts(message, name, Location(file), problems)
    for problem in _unknown_fields(message, name, Location(file), is_top_level=True):
        if len(problems.found) >= MAX_PROBLEMS:
            message_text = f"{problem.message}; {MAX_PROBLEMS} such problems came before it, giving up"
            raise PrototxtError(message_text, location=problem.location)
        problems.found.append(problem)
    return message, problems


def refuse_foreign(data: bytes, message_class: type[Message], file: str) -> None:
    """Refuse data that begin like a file of a kind that is often given by mistake.

    Raises:
        PrototxtError: it is an HDF5 file, say.
    """
    kinds = [what for start, what in _FOREIGN.items() if data.startswith(start)]
    if data[:_HEAD].lstrip().lower().startswith(_WEB_PAGE):
        kinds = ["a web page"]
    if _OLD_CHECKPOINT.match(data):
        kinds = [_PICKLE]
    if kinds:
        name = message_class.DESCRIPTOR.name
        hint = _CHECKPOINT_HINT if kinds[0] in (_ZIP, _PICKLE) and name == "NetParameter" else None
        raise PrototxtError(f"this is {kinds[0]}, not a {name} of protobuf", location=Location(file), hint=hint)


def _unknown_fields(message: Message, path: str, location: Location, is_top_level: bool) -> Iterator[Problem]:
    facts = message_facts(message)
    unknown_fields: Any = UnknownFieldSet(message)
    for unknown in unknown_fields:
        what = _describe(facts, unknown.field_number, unknown.data)
        yield Problem(f"{what} in {path}", location, str(unknown.field_number), is_top_level=is_top_level)
    for descriptor, value in message.ListFields():
        field = facts.fields[descriptor.name]
        if field.kind != "message":
            continue
        for index, item in enumerate(value if field.repeated else [value]):
            where = f"{path}.{field.name}[{index}]" if field.repeated else f"{path}.{field.name}"
            yield from _unknown_fields(item, where, location, is_top_level=False)


def _read_foreign_texts(message: Message, path: str, location: Location, problems: Problems) -> None:
    """Put text in the place of strings that are not UTF-8, which protobuf gives as bytes."""
    for descriptor, value in message.ListFields():
        field = message_facts(message).fields[descriptor.name]
        if field.kind not in ("message", "string"):
            continue
        for index, item in enumerate(value if field.repeated else [value]):
            where = f"{path}.{field.name}[{index}]" if field.repeated else f"{path}.{field.name}"
            if field.kind == "message":
                _read_foreign_texts(item, where, location, problems)
            elif isinstance(item, bytes):
                text = text_of(item)
                problems.foreign.append((location, where, text))
                if field.repeated:
                    value[index] = text
                else:
                    setattr(message, field.name, text)


def _describe(facts: MessageFacts, number: int, data: Any) -> str:
    known = next((field for field in facts.fields.values() if field.number == number), None)
    if known is None:
        return f"unknown field number {number}"
    if known.kind == "enum" and isinstance(data, int):
        return f"unknown value {data} for {known.name}"
    return f"field number {number} of another type than {known.name}"


def read_binary(path: str | os.PathLike[str], message_class: type[_M], *, strict: bool = False) -> _M:
    """Read a binary file into a message, and warn of what it does not know.

    Args:
        path: the file.
        message_class: the class of the message in it, such as BlobProto for a mean file.
        strict: makes an unknown field an error.

    Returns:
        The message. Nothing in it is upgraded.

    Raises:
        PrototxtError: the file cannot be read, is no such message, or has unknown fields under strict.
    """
    message, problems = parse_binary(read_bytes(path), message_class, file=os.fspath(path))
    problems.report(strict)
    return message


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a whole file.

    Raises:
        PrototxtError: there is no such file, it is a directory or a device, or may not be read.
    """
    location = Location(os.fspath(path))
    try:
        file = Path(path)
        if file.is_dir():
            raise PrototxtError("this is a directory, not a file", location=location)
        if file.is_char_device() or file.is_block_device() or file.is_socket():
            raise PrototxtError("this is a device or a socket, not a file", location=location)
        return file.read_bytes()
    except FileNotFoundError:
        raise PrototxtError("no such file", location=location) from None
    except PermissionError:
        raise PrototxtError("no permission to read this file", location=location) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PrototxtError(f"cannot be read: {reason}", location=location) from None


def write_binary(message: Message, path: str | os.PathLike[str]) -> None:
    """Write a message in protobuf's wire format, so that the file is whole or not there.

    Raises:
        PrototxtError: the message lacks a required field or is larger than protobuf's 2 GiB, or the file
            cannot be written (exit code 73).
    """
    location = Location(os.fspath(path))
    try:
        data = message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise PrototxtError(f"cannot be put into binary form: {error}", location=location) from None
    write_bytes(data, path)


def write_bytes(data: Content, path: str | os.PathLike[str]) -> None:
    """Write a file that is whole or not there.

    Raises:
        PrototxtError: (exit code 73) it cannot be written; what was there before is untouched.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        message_text = f"cannot be written: {error.strerror or error}"
        raise PrototxtError(message_text, location=Location(os.fspath(path)), exit_code=EXIT_CANNOT_WRITE) from None
