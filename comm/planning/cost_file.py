"""Files of measured all-reduce costs, so that a run need not begin with measuring.

    {
     "all_reduce_costs": [
      {
       "hosts": {"node1": 4, "node2": 4},
       "ranks": 8,
       "mpi": "Open MPI v5.0.11",
       "transport": "host memory, float32; OMPI_MCA_btl=tcp,self",
       "fit": {"a": 0.00052, "b": 8.6e-10, "r2": 0.99, "mean_error": 0.12, "worst_error": 0.4, "worst_bytes": 12288},
       "polled": {"kind": "curve", "points": [[1024, 0.0006], ...]},
       "busy_polled": {"kind": "curve", ...},
       "blocking": {"kind": "curve", ...}
      }
     ]
    }

A measurement holds for the hosts, the ranks on each of them, the MPI library and the transport that it was taken
with, and for no others. One file holds any number of them, one for each such key. `engine plan --cost` reads the
same files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mgcaffe.comm.planning.cost import AllReduceCost, AllReduceCosts, line_error, read_cost
from mgcaffe.comm.planning.csv_rows import read_text
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, CommError, DataError
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.whole_files import overwrite

_HEAD = "all_reduce_costs"

_CURVES = tuple(field.name for field in fields(AllReduceCosts))
_EARLIER_NAMES = {"busy_polled": "hurried"}
"""What older files call a curve."""

_TRANSPORT_VARIABLES = (
    "OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_coll",
    "UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER", "MPIR_CVAR_CH4_NETMOD", "I_MPI_FABRICS",
)  # fmt: skip
"""What users choose an MPI library's transport with."""


@dataclass(frozen=True)
class CostKey:
    """What a measurement holds for.

    Attributes:
        hosts: how many ranks run on each host, by its name.
        ranks: how many ranks there are.
        mpi: the library and its version.
        transport: where gradients lie, their type, and what was chosen with environment variables.
    """

    hosts: Mapping[str, int]
    ranks: int
    mpi: str
    transport: str


def find_key(communicator: Communicator, path: str) -> CostKey:
    """Return the key of this job, the same on every rank; a collective call.

    Args:
        communicator: the ranks.
        path: how gradients travel, such as "host memory, float32".
    """
    hosts = dict(sorted(Counter(communicator.allgather(communicator.host)).items()))
    chosen = [f"{name}={os.environ[name]}" for name in _TRANSPORT_VARIABLES if os.environ.get(name)]
    mine = CostKey(hosts, communicator.size, communicator.library, "; ".join([path, *chosen]))
    return communicator.broadcast_object(mine)


@dataclass(frozen=True)
class CostEntry:
    """A measurement with its key."""

    key: CostKey
    costs: AllReduceCosts


def read_cost_file(path: str | Path) -> list[CostEntry]:
    """Read all measurements of a file; a file that does not exist holds none.

    Raises:
        DataError: it cannot be read.
        CommError: (exit code 65) it is no file of costs.
    """
    if not Path(path).exists():
        return []
    text = read_text(path, "measured costs")
    try:
        return parse_costs(parse_json(text, str(path), "these are no measured costs"))
    except DataError as error:
        raise CommError(
            f"cost file: {error.message}",
            location=error.location,
            hint="give the name of a new file, and the costs are measured and written to it",
            exit_code=EXIT_BAD_INPUT,
        ) from None


def is_cost_file(document: Json) -> bool:
    """Return whether a document is the content of such a file."""
    return isinstance(document.value, dict) and _HEAD in document.value


def parse_costs(document: Json) -> list[CostEntry]:
    """Return the measurements in the content of a file.

    Raises:
        DataError: it is none; located.
    """
    return [_parse_entry(entry) for entry in document[_HEAD].elements()]


def _parse_entry(entry: Json) -> CostEntry:
    hosts = {host: ranks.integer(least=1) for host, ranks in entry["hosts"].members().items()}
    key = CostKey(hosts, entry["ranks"].integer(least=1), entry["mpi"].text(), entry["transport"].text())
    return CostEntry(key, AllReduceCosts(**{name: _curve(_member(entry, name)) for name in _CURVES}))


def _member(entry: Json, name: str) -> Json:
    earlier = entry.get(_EARLIER_NAMES.get(name, name))
    return earlier if earlier is not None else entry[name]


def _curve(value: Json) -> AllReduceCost:
    cost = read_cost(value)
    if not isinstance(cost, AllReduceCost):
        value.fail(f"{value.path} is no curve")
    return cost


def find_costs(entries: Sequence[CostEntry], key: CostKey) -> tuple[AllReduceCosts | None, str]:
    """Return the costs measured under a key; or None, and how the nearest measurement differs."""
    for entry in entries:
        if entry.key == key:
            return entry.costs, ""
    if not entries:
        return None, "which held none"
    nearest = min((_differences(entry.key, key) for entry in entries), key=len)
    return None, "; ".join(nearest)


def _differences(measured: CostKey, wanted: CostKey) -> list[str]:
    """Name what differs, in the user's words."""
    pairs = [(field.name, getattr(measured, field.name), getattr(wanted, field.name)) for field in fields(CostKey)]
    return [f"{name} {_shown(theirs)} there, {_shown(ours)} here" for name, theirs, ours in pairs if theirs != ours]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{host} x {ranks}" for host, ranks in value.items())
    return f"'{value}'" if isinstance(value, str) else str(value)


def write_cost_file(path: str | Path, entries: Sequence[CostEntry], new: CostEntry) -> None:
    """Write measurements and a new one, which replaces that of the same key, if any; it comes last.

    Where the folder allows it, the file is replaced as a whole, so that a job that reads it meanwhile finds the old
    content or the new.

    Raises:
        CommError: (exit code 73) the file cannot be written.
    """
    kept = [entry for entry in entries if entry.key != new.key]
    rows = [_row(entry) for entry in [*kept, new]]
    text = f'{{\n "{_HEAD}": [\n' + ",\n".join(rows) + "\n ]\n}\n"
    try:
        overwrite(path, [text.encode()])
    except OSError as error:
        raise CommError(
            f"cannot write the cost file {path}: {error.strerror or error}", exit_code=EXIT_CANNOT_WRITE
        ) from None


def _row(entry: CostEntry) -> str:
    a, b, fit = entry.costs.busy_polled.affine()
    mean, worst, size = line_error(entry.costs.busy_polled)
    record = {
        **asdict(entry.key),
        "fit": {"a": a, "b": b, "r2": fit, "mean_error": mean, "worst_error": worst, "worst_bytes": size},
        **{name: getattr(entry.costs, name).to_json() for name in _CURVES},
    }
    lines = [f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in record.items()]
    return "  {\n" + ",\n".join(lines) + "\n  }"
