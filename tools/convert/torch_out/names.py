"""Names of nets, layers and blobs as names in Python: valid, used once, and in nobody's way."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

import torch

_FILE = ("torch", "nn", "F", "math", "Path", "load")
_ATTRIBUTES = frozenset(dir(torch.nn.Module()))
_LOCALS = frozenset({"self", *_FILE, *dir(builtins)})


class Names:
    """Names that are given once each.

    Args:
        taken: what no name may be.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def new(self, wished: str) -> str:
        """Return the wished name as an identifier, with a number behind it where it is taken."""
        base = name = identifier(wished)
        number = 2
        while name in self._taken or keyword.iskeyword(name):
            name, number = (f"{base}_", number) if name == base else (f"{base}_{number}", number + 1)
        self._taken.add(name)
        return name


def attribute_names() -> Names:
    """Return names for attributes of a module."""
    return Names(_ATTRIBUTES)


def variable_names(helpers: Iterable[str]) -> Names:
    """Return names for variables of `forward`, which reads the file's own names as well."""
    return Names({*_LOCALS, *helpers})


def identifier(name: str) -> str:
    """Return a name with everything replaced that Python allows in none; two may become one."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    found = re.sub(r"^_+", "_", found)  # two of them would mean a private name of the class
    return f"_{found}" if not found or found[0].isdigit() else found


def class_name(net: str, helpers: Iterable[str]) -> str:
    """Return the name of the net's class: its words with capital letters."""
    words = re.findall(r"[A-Za-z0-9]+", net)
    name = "".join(word[0].upper() + word[1:] for word in words) or "Net"
    if name[0].isdigit():
        name = f"Net{name}"
    return Names({*_FILE, *dir(builtins), *helpers}).new(name)
