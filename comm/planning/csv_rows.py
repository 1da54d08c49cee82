"""Reads CSV files with remarks (lines that begin with `#`) at their head or anywhere else."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import refuse_device

Row = tuple[Location, dict[str, str]]


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text, without the byte order mark that spreadsheets put before it.

    Raises:
        DataError: it cannot be read; `what` says what it should have been.
    """
    try:
        refuse_device(path)
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {what}: {error.strerror}", location=Location(str(path))) from None
    except UnicodeDecodeError:
        raise DataError(f"{what} should be text, but this is not", location=Location(str(path))) from None


def csv_rows(path: str | Path, text: str, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield, for every row, where it stands and its values by column.

    Raises:
        DataError: a column is missing, or a row has too few values or more than there are columns.
    """
    hint = f"the columns are {', '.join(columns)}"
    header: list[str] | None = None
    lines = ("" if line.startswith("#") else line for line in text.splitlines())
    reader = csv.reader(lines)
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a cell of more than 128 KiB
            raise DataError(f"this is no table: {error}", location=Location(str(path), reader.line_num, 1)) from None
        location = Location(str(path), reader.line_num, 1)
        if not values:
            continue
        if header is None:
            header = [name.strip() for name in values]
            missing = [name for name in columns if name not in header]
            if missing:
                raise DataError(f"there is no column '{missing[0]}'", location=location, hint=hint)
            continue
        if len(values) < len(header) or any(values[len(header) :]):
            raise DataError(f"{len(values)} values for {len(header)} columns", location=location, hint=hint)
        yield location, dict(zip(header, values, strict=False))
