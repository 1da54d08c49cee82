"""Texts in a message that cannot be what they stand for: names with NUL bytes, and file names that no file can have."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from mgcaffe.errors import PrototxtError
from mgcaffe.errors.file_names import is_there, shown_name, what_is_wrong_with_name

# Fields that name a file, a folder, or what files' names begin with, and what is written behind it.
_FILES = {
    **dict.fromkeys(("source", "root_folder", "mean_file", "file_name", "meanfile"), ""),
    **dict.fromkeys(("net", "train_net", "test_net", "weights", "plan_file", "cost_file", "dictionary"), ""),
    "snapshot_prefix": "_iter_2147483647.solverstate.h5.manifest.json.4194304.tmp",
}
# The text of a user's layer is the user's own.
_FREE = {"param_str"}
_STRING, _MESSAGE = 9, 11
_ESCAPED = dict(zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True))
_MAX_NAME = 1000
"""Longer names of layers and blobs would fill every message that names them."""


def check_names(message: Message, source: Any = None) -> None:
    """Refuse texts that cannot be names, in a message and in those inside it; weights apart.

    Args:
        message: a net, a layer or a solver.
        source: where its fields stand, if that is known.

    Raises:
        PrototxtError: names the field, and its place.
    """
    for field, value in message.ListFields():
        if field.name == "blobs" or field.type not in (_STRING, _MESSAGE):
            continue
        for index, each in enumerate([value] if isinstance(value, str) or hasattr(value, "ListFields") else value):
            if field.type == _STRING:
                problem = _problem(field.name, each)
                if problem:
                    location = source.field(field.name, index) if source is not None else None
                    complaint = f"{field.name} is '{shown_name(each)}': {problem}"
                    hint = "Write / in paths." if "escape" in problem else None
                    raise PrototxtError(complaint, location=location, hint=hint)
            elif source is not None:
                check_names(each, source.inner(field.name, index))
            else:
                check_names(each)


def _problem(field: str, text: str) -> str | None:
    if field in _FREE:
        return None
    if field in _FILES:
        return what_is_wrong_with_name(text, _FILES[field]) or _escape_in(text)
    if "\0" in text:
        return "it holds a NUL byte"
    return f"it is {len(text)} characters long, and a name has at most {_MAX_NAME}" if len(text) > _MAX_NAME else None


def _escape_in(path: str) -> str | None:
    r"""Say which escape a path holds that is meant to be the path of a file on Windows; None if it has none.

    In "data\train" the backslash and the t are one character, a tab.
    """
    escape = next((_ESCAPED[character] for character in path if character in _ESCAPED), None)
    return None if escape is None or is_there(path) else f"in quotes \\{escape} is an escape, for one character"
