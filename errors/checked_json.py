"""JSON that something else wrote, or that somebody edited: read with types and bounds, never believed.

    document = parse_json(text, "plan.json", "this is no plan")
    for layer in document["layers"].elements():
        name, elements = layer["name"].text(), layer["elements"].integer(least=0)

Whatever is missing, of another type or out of bounds raises a DataError with the value's place in the file and its
path in the document: `plan.json:7:21: this is no plan: layers[0].elements should be a whole number of 0 or more, not
"many"`. Every reader of JSON in this project goes through here, so that none of them meets an unexpected value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import what_is_wrong_with_name

MAX_INTEGER = 2**63 - 1
MAX_NUMBER = 1e300
"""The largest number that is accepted; sums, differences and products by constants of such numbers stay finite."""

_BLANK = re.compile(r"[ \t\r\n]*")
_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_MAX_SHOWN = 40


@dataclass(frozen=True)
class _Document:
    """What an error needs to know: the text, where it stands, and how the error begins."""

    text: str | None
    file: str
    complaint: str
    hint: str | None
    line: int


class Json:
    """A value in a document.

    Attributes:
        value: the value as `json.loads` gives it.
    """

    __slots__ = ("_document", "_parent", "_step", "value")

    def __init__(
        self, value: Any, document: _Document, parent: Json | None = None, step: str | int | None = None
    ) -> None:
        self.value = value
        self._document, self._parent, self._step = document, parent, step

    # -- what it holds ---------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Json:
        """Return a member of an object.

        Raises:
            DataError: this is no object, or has no such member.
        """
        members = self._of_type(dict)
        if name not in members:
            self.fail(f"'{name}' is missing{f' in {self.path}' if self._parent is not None else ''}")
        return Json(members[name], self._document, self, name)

    def get(self, name: str) -> Json | None:
        """Return a member of an object, None where it is missing or null.

        Raises:
            DataError: this is no object.
        """
        value = self._of_type(dict).get(name)
        return None if value is None else Json(value, self._document, self, name)

    def members(self) -> dict[str, Json]:
        """Return the members of an object by name.

        Raises:
            DataError: this is no object.
        """
        return {
            _printable(name): Json(value, self._document, self, name) for name, value in self._of_type(dict).items()
        }

    def elements(self) -> list[Json]:
        """Return the elements of a list.

        Raises:
            DataError: this is no list.
        """
        return [Json(value, self._document, self, index) for index, value in enumerate(self._of_type(list))]

    def text(self) -> str:
        """Return a text, in which what Unicode cannot express is replaced.

        Raises:
            DataError: this is no text.
        """
        return _printable(self._of_type(str))

    def file_name(self) -> str:
        """Return a text that can be the name of a file, also one that is not UTF-8 on this system.

        Raises:
            DataError: this is no such text.
        """
        name: str = self._of_type(str)
        problem = what_is_wrong_with_name(name)
        if problem:
            self.fail(f"{self.path} should be the name of a file, and {problem}")
        return name

    def flag(self) -> bool:
        """Return true or false.

        Raises:
            DataError: this is neither.
        """
        return bool(self._of_type(bool))

    def integer(self, least: int = -MAX_INTEGER, most: int = MAX_INTEGER) -> int:
        """Return a whole number from `least` to `most`.

        Raises:
            DataError: this is no such number.
        """
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.fail(f"{self.path} should be a whole number{_bounds(least, most, MAX_INTEGER)}, not {self._shown()}")
        return value

    def number(self, least: float = -MAX_NUMBER, most: float = MAX_NUMBER) -> float:
        """Return a finite number from `least` to `most`.

        Raises:
            DataError: this is no such number.
        """
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Whole numbers of any size compare with floats; a NaN fails both comparisons.
        if not is_number or not least <= value <= most:
            self.fail(f"{self.path} should be a number{_bounds(least, most, MAX_NUMBER)}, not {self._shown()}")
        return float(value)

    def is_list(self) -> bool:
        """Return whether this is a list."""
        return isinstance(self.value, list)

    # -- errors ----------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where in the document this is: `layers[3].name`."""
        text = ""
        for step in self._steps():
            text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{_shortened(step)}"
        return text or "the document"

    @property
    def location(self) -> Location:
        """Where in the file this begins."""
        document = self._document
        if document.text is None:
            return Location(document.file, document.line)
        return _location(document, _offset(document.text, list(self._steps())))

    def fail(self, reason: str) -> NoReturn:
        """Raise the error for something wrong with this value."""
        document = self._document
        raise DataError(f"{document.complaint}: {reason}", location=self.location, hint=document.hint)

    def _of_type(self, kind: type) -> Any:
        if not isinstance(self.value, kind):
            self.fail(f"{self.path} should be {_NAMES[kind]}, not {self._shown()}")
        return self.value

    def _steps(self) -> Iterator[str | int]:
        if self._parent is not None:
            yield from self._parent._steps()
            assert self._step is not None
            yield self._step

    def _shown(self) -> str:
        """Return the value, shortened; of a long one what it is."""
        if isinstance(self.value, dict | list):
            return _NAMES[type(self.value)]
        if isinstance(self.value, int) and abs(self.value) > MAX_INTEGER:
            return "a number above 2^63" if self.value > 0 else "a number below -2^63"
        return _shortened(json.dumps(self.value))


def parse_json(text: str | bytes, file: str, complaint: str, *, hint: str | None = None, line: int = 1) -> Json:
    """Read a JSON document.

    Args:
        text: the document.
        file: what to call it in messages.
        complaint: how messages begin, such as `this is no plan`.
        hint: what to do about it.
        line: the line of the file in which the text begins.

    Raises:
        DataError: the text is no JSON.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError:
        raise DataError(f"{complaint}: it is not UTF-8", location=Location(file), hint=hint) from None
    document = _Document(decoded, file, complaint, hint, line)
    try:
        return Json(json.loads(decoded), document)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{complaint}: no JSON ({error.msg})", location=_location(document, error.pos), hint=hint
        ) from None
    except ValueError:  # a whole number of more than 4,300 digits
        reason, where = "a number in it has too many digits", Location(file, line if line > 1 else 0)
    except RecursionError:
        reason, where = "it is nested too deeply", Location(file, line if line > 1 else 0)
    raise DataError(f"{complaint}: {reason}", location=where, hint=hint)


def json_value(value: Any, complaint: str) -> Json:
    """Return a value that is parsed already for checked reading; errors name no place in it."""
    return Json(value, _Document(None, "<memory>", complaint, None, 0))


def _printable(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no file and no terminal takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _shortened(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _bounds(least: float, most: float, widest: float) -> str:
    """`` of 0 or more``, `` from 1 to 8``, or nothing where only the widest bounds hold."""
    low, high = (f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (least, most))
    if most < widest:
        return f" from {low} to {high}" if least > -widest else f" of at most {high}"
    return f" of {low} or more" if least > -widest else ""


def _location(document: _Document, offset: int) -> Location:
    text = document.text or ""
    before = text.count("\n", 0, offset)
    return Location(document.file, document.line + before, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def _offset(text: str, steps: list[str | int]) -> int:
    """Return where in a valid document the value begins that `steps` lead to."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    for step in steps:
        at = _skip(text, at + 1)
        if isinstance(step, int):
            for _ in range(step):
                at = _skip(text, decoder.raw_decode(text, at)[1])
                at = _skip(text, at + 1)
            continue
        found = at
        while text[at] == '"':
            name, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
            if name == step:
                found = at  # of several members of one name the last one counts
            at = _skip(text, decoder.raw_decode(text, at)[1])
            if text[at] != ",":
                break
            at = _skip(text, at + 1)
        at = found
    return at


def _skip(text: str, at: int) -> int:
    """Return where the blanks from `at` on end."""
    match = _BLANK.match(text, at)
    return match.end() if match else at
