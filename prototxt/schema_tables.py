"""Reads the three tables that describe the schema, and resolves the clashes between their origins.

`caffe_fields.csv` and `caffe_enums.csv` list every field and enum value with its number, type, default and
origin: BVLC Caffe, its SSD, NVIDIA and Intel forks (rows only where they add or differ), and ourselves.
`caffe_docs.csv` says what messages and fields mean.

Where two origins give one number to two fields, or one name two numbers, the earlier origin of ORIGINS wins.
The loser keeps its name and gets RELOCATED[origin] plus its own number, so that text still names it while
binary files, where only the number speaks, are never guessed at.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

ORIGINS = ("bvlc", "mgcaffe", "ssd", "nvidia", "intel")
"""Who wins where names or numbers clash, first to last."""

_FIRST_OF_FORKS = 1101

RELOCATED = {"ssd": 20000, "nvidia": 30000, "intel": 40000}
"""What is added to the number of a fork's field or enum value that lost its own."""


@dataclass(frozen=True)
class Field:
    """One row of `caffe_fields.csv`; `own_number` is the number its origin uses."""

    origin: str
    message: str
    name: str
    number: int
    type: str
    label: str
    default: str
    packed: bool
    own_number: int

    @property
    def is_of_smaller_fork(self) -> bool:
        """Whether a field of ours is one that smaller forks call so in text, without a number that they agree on."""
        is_new = self.origin == "mgcaffe" and self.message != "LayerParameter"
        return is_new and self.number >= _FIRST_OF_FORKS


@dataclass(frozen=True)
class EnumValue:
    """One row of `caffe_enums.csv`; `own_number` is the number its origin uses."""

    origin: str
    enum: str
    name: str
    number: int
    own_number: int


def read_fields(path: Path) -> list[Field]:
    """Read the field table, in the order of the file."""
    with path.open(newline="", encoding="utf-8") as table:
        return [
            Field(
                origin=row["origin"],
                message=row["message"],
                name=row["field"],
                number=int(row["number"]),
                type=row["type"],
                label=row["label"],
                default=row["default"],
                packed=row["packed"] == "packed",
                own_number=int(row["number"]),
            )
            for row in csv.DictReader(table)
        ]


def read_enums(path: Path) -> list[EnumValue]:
    """Read the enum table, in the order of the file."""
    with path.open(newline="", encoding="utf-8") as table:
        return [
            EnumValue(row["origin"], row["enum"], row["value"], int(row["number"]), int(row["number"]))
            for row in csv.DictReader(table)
        ]


def read_docs(path: Path) -> dict[tuple[str, str], str]:
    """Read what fields mean by message and field; what a message is for stands under an empty field."""
    with path.open(newline="", encoding="utf-8") as table:
        return {(row["message"], row["field"]): row["text"] for row in csv.DictReader(table)}


def merge_fields(fields: list[Field]) -> list[Field]:
    """Resolve the clashes: one field for each name of a message, one name for each number.

    A number belongs to the first origin that uses it, also where that origin's field ended up elsewhere
    because an earlier one had defined its name. A name keeps the first of its numbers that belongs to it.
    """
    owner: dict[tuple[str, int], str] = {}
    resolved: dict[tuple[str, str], Field] = {}
    for field in sorted(fields, key=lambda field: ORIGINS.index(field.origin)):
        owns_number = owner.setdefault((field.message, field.own_number), field.name) == field.name
        earlier = resolved.get((field.message, field.name))
        if earlier is None:
            number = field.own_number if owns_number else RELOCATED[field.origin] + field.own_number
            resolved[field.message, field.name] = replace(field, number=number)
        elif earlier.number >= min(RELOCATED.values()) and owns_number and earlier.type == field.type:
            resolved[field.message, field.name] = replace(earlier, number=field.own_number)
    return list(resolved.values())


def merge_enums(values: list[EnumValue]) -> list[EnumValue]:
    """Resolve the clashes among enum values by the same rule as those among fields."""
    owner: dict[tuple[str, int], str] = {}
    resolved: dict[tuple[str, str], EnumValue] = {}
    for value in sorted(values, key=lambda value: ORIGINS.index(value.origin)):
        owns_number = owner.setdefault((value.enum, value.own_number), value.name) == value.name
        number = value.own_number if owns_number else RELOCATED[value.origin] + value.own_number
        resolved.setdefault((value.enum, value.name), replace(value, number=number))
    return list(resolved.values())
