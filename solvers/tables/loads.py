"""The loads of a net's tables, by which they are assigned to ranks: from a file, or counted from the net.

The file is a table (CSV) with the columns `table`, the name of the layer that has it, and `rows`, how many of its rows
a pass looks up. Of a table that is not in it, or without a file, the rows are counted: as many as the blob of ids has
numbers when the net is built. `engine time --loads` counts them in passes on real batches, and writes the file.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mgcaffe.comm.planning.csv_rows import csv_rows, read_text
from mgcaffe.engine import Net
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.whole_files import write_output

_COLUMNS = ("table", "rows")


@dataclass
class CountedLoad:
    """What passes of a net look up in one table.

    Attributes:
        table: the name of the layer that has it.
        rows: how many a pass looks up, in the mean.
        distinct: how many different ones.
    """

    table: str
    rows: float = 0.0
    distinct: float = 0.0


def count_loads(net: Net, passes: int) -> list[CountedLoad]:
    """Run forward passes and return what they look up in each table, those that layers share once.

    Args:
        net: the net, which keeps its blobs, and none of whose tables lies elsewhere.
        passes: how many to take the mean of.
    """
    loads: dict[int, CountedLoad] = {}
    for _ in range(passes):
        net.forward()
        ids: dict[int, list[torch.Tensor]] = {}
        for node in net.nodes:
            if isinstance(node.layer, EmbeddingBag):
                table = id(node.layer.table.owner or node.layer.table)
                loads.setdefault(table, CountedLoad(node.layer.name))
                assert node.bottoms[0].data is not None
                ids.setdefault(table, []).append(node.bottoms[0].data.reshape(-1))
        for table, parts in ids.items():
            together = torch.cat(parts)
            loads[table].rows += together.numel() / passes
            loads[table].distinct += together.unique().numel() / passes
    return list(loads.values())


def write_loads(path: str | Path, loads: Iterable[CountedLoad], remarks: Iterable[str] = ()) -> None:
    """Write a file of loads, with remarks at its head, for `read_loads`.

    Raises:
        EngineError: with exit code 73: it cannot be written.
        DataError: several tables are in layers of one name.
    """
    loads = list(loads)
    names = [each.table for each in loads]
    for name in names:
        if names.count(name) > 1:
            raise _several(name, names.count(name))
    text = io.StringIO()
    for remark in remarks:
        text.write(f"# {remark}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_COLUMNS, "distinct"))
    writer.writerows((each.table, f"{each.rows:.6g}", f"{each.distinct:.6g}") for each in loads)
    write_output(path, text.getvalue())


def _several(name: str, count: int, location: Location | None = None) -> DataError:
    return DataError(
        f"the net has {count} tables in layers called '{name}', whose loads a file cannot tell apart",
        location=location,
        hint="give the layers different names",
    )


def read_loads(path: str | Path, names: Sequence[str]) -> dict[str, float]:
    """Read the rows that a pass looks up, by the names of tables.

    Args:
        path: the file.
        names: those of the net's tables.

    Raises:
        DataError: it cannot be read, names another table, one twice, several at once, or gives no number.
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
        if names.count(name) > 1:
            raise _several(name, names.count(name), location)
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
