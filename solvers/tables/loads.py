"""The loads of a net's tables, by which they are assigned to ranks: from a file, or counted from the net.

The file is a table (CSV) with the columns `table`, the name of the layer that has it, and `rows`, how many of its rows
a pass looks up. Of a table that is not in it, or without a file, the rows are counted: as many as the blob of ids has
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mgcaffe.comm.planning.csv_rows import csv_rows, read_text
from mgcaffe.errors import DataError

_COLUMNS = ("table", "rows")


def read_loads(path: str | Path, names: Sequence[str]) -> dict[str, float]:
    """Read the rows that a pass looks up, by the names of tables.

    Args:
        path: the file.
        names: those of the net's tables.

    Raises:
        DataError: it cannot be read, names another table, one twice, or gives no number.
    """
    found: dict[str, float] = {}
    for location, row in csv_rows(path, read_text(path, "a file of loads"), _COLUMNS):
        name = row["table"].strip()
        if name not in names:
            raise DataError(
                f"the net has no table in a layer '{name}'",
                location=location,
                hint=f"the layers with tables are {', '.join(names)}",
            )
        if name in found:
            raise DataError(f"table '{name}' is listed twice", location=location)
        try:
            rows = float(row["rows"])
        except ValueError:
            rows = math.nan
        if not (math.isfinite(rows) and rows >= 0):
            raise DataError(
                f"'{row['rows'].strip()}' is no number of rows that a pass looks up in table '{name}'",
                location=location,
            )
        found[name] = rows
    return found
