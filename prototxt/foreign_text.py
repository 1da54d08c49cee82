"""Strings that are not UTF-8, such as paths and names of layers in Latin-1 or GBK.

Caffe takes the bytes of a string as they are; protobuf for Python holds text alone. So such a string is read as
Latin-1, in which every byte is a character: equal bytes stay equal names, in text and in binary files. A warning says
so once a file. Written again, the string is UTF-8. `errors.file_names.found_name` finds files by the bytes that they
were named with.
"""

from __future__ import annotations

from mgcaffe.errors import Location

_MAX_SHOWN = 60
_MAX_NAMED = 5


class ForeignText(str):
    """A text whose bytes were not UTF-8."""

    __slots__ = ()


def text_of(value: bytes) -> str:
    """Return the text that a string's bytes are in UTF-8, or in Latin-1 as a ForeignText."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return ForeignText(value.decode("latin-1"))


def foreign_note(found: list[tuple[Location, str, str]]) -> str:
    """Say of the strings of a file that are not UTF-8 which is the first, and what became of it.

    Args:
        found: the place, the field and the text of each; at least one.
    """
    location, field, text = found[0]
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    others = sorted({name for _, name, _ in found[1:]})
    count = len(found) - 1
    many = "is 1 more string" if count == 1 else f"are {count} more strings"
    more = f", and so {many} ({', '.join(others[:_MAX_NAMED])})" if others else ""
    return f"{location}: {field} is not UTF-8 and is read as Latin-1, {shown!r}{more}; written again it is UTF-8"
