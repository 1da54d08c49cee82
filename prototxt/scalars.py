"""Turns the tokens of a single value into the Python value that its field takes.

The rules are those of protobuf's text format, with the spellings that real files use: `true`, `t`, `True` and
`1`; decimal, octal and hexadecimal integers; floats with an `f` at the end; `inf` and `nan` in any case.
"""

from __future__ import annotations

import re
import struct

from mgcaffe.prototxt.foreign_text import text_of
from mgcaffe.prototxt.lexer import Lexer
from mgcaffe.prototxt.schema import FieldFacts

_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*")
_FLOAT = re.compile(r"((?:0|[1-9][0-9]*|0+(?=\.))?\.?[0-9]*(?:[eE][+-]?[0-9]+)?)[fF]?")
_MAX_INTEGER = 40
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_SIMPLE_ESCAPES = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_TRUE = frozenset({"true", "t", "True"})
_FALSE = frozenset({"false", "f", "False"})
_EXPECTED = {
    "string": "a string in quotes",
    "bytes": "a string in quotes",
    "bool": "true or false",
    "float": "a number",
    "double": "a number",
    "enum": "the name of a value",
}


class UnknownEnumValue(Exception):
    """An enum value that the schema does not have. `name` is what stood in the text."""

    def __init__(self, name: str, offset: int) -> None:
        super().__init__(name)
        self.name = name
        self.offset = offset


def read_scalar(lexer: Lexer, facts: FieldFacts) -> bool | int | float | str | bytes:
    """Read one value of a field that holds no message, and step over it.

    Raises:
        PrototxtError: the value does not fit the field's type or its range.
        UnknownEnumValue: the value names nothing in the field's enum; it has been stepped over.
    """
    if facts.kind in ("string", "bytes"):
        return _read_string(lexer, facts)
    start = lexer.offset
    negative = lexer.accept("-")
    if facts.kind == "enum":
        return _read_enum(lexer, facts, negative, start)
    if facts.kind == "bool":
        return _read_bool(lexer, facts, negative)
    if facts.kind == "integer":
        return _read_integer(lexer, facts, negative, start)
    return _read_float(lexer, facts, negative, start)


def expected(facts: FieldFacts) -> str:
    """Say in words what a field holds."""
    if facts.kind == "message":
        return "a message in braces"
    if facts.kind == "integer":
        return f"an integer from {facts.low} to {facts.high}"
    return _EXPECTED[facts.kind]


def _mismatch(lexer: Lexer, facts: FieldFacts) -> Exception:
    message = f"{facts.name}: expected {expected(facts)}, found {lexer.found()}"
    return lexer.source.error(message, lexer.offset, facts.hint)


def _to_integer(token: str) -> int | None:
    if len(token) > _MAX_INTEGER or not _INTEGER.fullmatch(token):
        return None
    if token[:2] in ("0x", "0X"):
        return int(token, 16)
    return int(token, 8) if token[0] == "0" else int(token)


def _read_integer(lexer: Lexer, facts: FieldFacts, negative: bool, start: int) -> int:
    too_long = lexer.kind == "number" and len(lexer.token) > _MAX_INTEGER and lexer.token.isdigit()
    value = _to_integer(lexer.token) if lexer.kind == "number" else None
    if value is None and not too_long:
        raise _mismatch(lexer, facts)
    signed = facts.high + 1 if value is None else -value if negative else value
    if not facts.low <= signed <= facts.high:
        shown = ("-" if negative else "") + lexer.found().strip("'")
        message = f"{facts.name}: {shown} is out of range ({facts.low} to {facts.high})"
        raise lexer.source.error(message, start)
    lexer.advance()
    return signed


def _read_float(lexer: Lexer, facts: FieldFacts, negative: bool, start: int) -> float:
    if lexer.kind == "name" and lexer.token.lower() in ("inf", "infinity", "nan"):
        value = float(lexer.token)
    else:
        match = _FLOAT.fullmatch(lexer.token) if lexer.kind == "number" else None
        if match is None:
            raise _mismatch(lexer, facts)
        value = float(match[1])
        if lexer.token[0] == "0" and _to_integer(lexer.token) not in (None, value):
            message = f"{facts.name}: '{lexer.token}' has a leading zero, by which some Caffes read it as octal"
            raise lexer.source.error(message, start, hint="Write it without the zero.")
        if not fits(value, facts.kind):
            raise lexer.source.error(f"{facts.name}: {lexer.found()} is too large for a {facts.kind}", start)
    lexer.advance()
    return -value if negative else value


def fits(value: float, kind: str) -> bool:
    """Say whether a number stays finite as a `float` or a `double`."""
    if value in (float("inf"), float("-inf")):
        return False
    if kind == "double":
        return True
    try:
        struct.pack("<f", value)
    except OverflowError:
        return False
    return True


def _read_bool(lexer: Lexer, facts: FieldFacts, negative: bool) -> bool:
    token = lexer.token
    number = _to_integer(token) if lexer.kind == "number" else None
    if negative or not (token in _TRUE or token in _FALSE or number in (0, 1)) or lexer.kind == "string":
        raise _mismatch(lexer, facts)
    lexer.advance()
    return token in _TRUE or number == 1


def _read_enum(lexer: Lexer, facts: FieldFacts, negative: bool, start: int) -> int:
    assert facts.enum is not None
    token = lexer.token
    if lexer.kind == "name" and not negative:
        number = facts.enum.numbers.get(token)
    else:
        number = _to_integer(token) if lexer.kind == "number" else None
        if number is None:
            raise _mismatch(lexer, facts)
        number = -number if negative else number
        token = f"{number}"
        number = number if number in facts.enum.names else None
    lexer.advance()
    if number is None:
        raise UnknownEnumValue(token, start)
    return number


def _read_string(lexer: Lexer, facts: FieldFacts) -> str | bytes:
    if lexer.kind != "string":
        raise _mismatch(lexer, facts)
    pieces = []
    while lexer.kind == "string":
        body = lexer.token[1:-1].encode("utf-8", "surrogateescape")
        try:
            pieces.append(_ESCAPE.sub(_unescape, body) if b"\\" in body else body)
        except ValueError as error:
            hint = r"In quotes a backslash begins an escape: write / in paths, and \\ for a backslash."
            raise lexer.source.error(
                f"{facts.name}: {error}", lexer.offset, hint if facts.kind == "string" else None
            ) from None
        lexer.advance()
    value = b"".join(pieces)
    if facts.kind == "bytes":
        return value
    return text_of(value)


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, simple = match.groups()
    if octal or hexadecimal:
        value = int(octal, 8) if octal else int(hexadecimal, 16)
        if value > 255:
            raise ValueError(f"the escape '{match[0].decode()}' is more than one byte")
        return bytes([value])
    if short or long:
        code = int(short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"the escape '{match[0].decode()}' is no character")
        return chr(code).encode()
    if simple[0] not in _SIMPLE_ESCAPES:
        raise ValueError(f"unknown escape '{match[0].decode('utf-8', 'replace')}'")
    return bytes([_SIMPLE_ESCAPES[simple[0]]])
