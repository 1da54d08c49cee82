"""Networks of any size: what an all-reduce costs among N workers, by algorithm or as it was measured.

With alpha the seconds to send a message, beta the seconds to send a byte and gamma those to reduce one, the
costs a + bM are (arXiv 1912.09268, table of collectives; rounds = log2 N, rounded up):

| algorithm                    | a                | b                                               |
|------------------------------|------------------|-------------------------------------------------|
| `ring`                       | 2 (N - 1) alpha  | 2 (N - 1) / N beta + (N - 1) / N gamma          |
| `recursive_doubling`         | rounds alpha     | rounds (beta + gamma)                           |
| `recursive_halving_doubling` | 2 rounds alpha   | 2 beta - (2 beta + gamma) / N + gamma           |
| `binary_tree`                | 2 rounds alpha   | rounds (2 beta + gamma)                         |
| `double_binary_trees`        | 2 rounds alpha   | beta + gamma                                    |

Users write them `ring:alpha=45.25e-6,beta=9.93e-10,gamma=2.5e-9`; `affine:a=9.08e-4,b=7.4e-10` is a line that
holds at any number of workers, and a file's name stands for what was measured.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mgcaffe.comm.planning.cost import MAX_BYTES, MAX_SECONDS, AffineCost, AllReduceCost, Cost, read_cost
from mgcaffe.comm.planning.cost_file import is_cost_file, parse_costs
from mgcaffe.comm.planning.csv_rows import csv_rows, read_text
from mgcaffe.errors import EXIT_BAD_INPUT, CommError, DataError, Location, UsageError
from mgcaffe.errors.checked_json import parse_json


@dataclass(frozen=True)
class Link:
    """One worker's connection and its processor.

    Attributes:
        alpha: seconds to send a message of any size.
        beta: seconds to send a byte.
        gamma: seconds to add a byte to another.
    """

    alpha: float
    beta: float
    gamma: float = 0.0


class Network(Protocol):
    """The cost of an all-reduce by the number of workers."""

    @property
    def name(self) -> str:
        """What the user called it."""

    def cost(self, workers: int) -> Cost:
        """Return what an all-reduce among so many workers costs; alone it costs nothing.

        Raises:
            CommError: the network says nothing about so many workers.
        """


def ring(workers: int, link: Link) -> AffineCost:
    """Reduce-scatter, then all-gather, each in N - 1 steps around the ring."""
    share = (workers - 1) / workers
    return AffineCost(2 * (workers - 1) * link.alpha, 2 * share * link.beta + share * link.gamma)


def recursive_doubling(workers: int, link: Link) -> AffineCost:
    """Exchange everything with a partner twice as far away in each round."""
    rounds = _rounds(workers)
    return AffineCost(rounds * link.alpha, rounds * (link.beta + link.gamma))


def recursive_halving_doubling(workers: int, link: Link) -> AffineCost:
    """Reduce-scatter by halves, then all-gather by doubles (Rabenseifner)."""
    both = 2 * link.beta + link.gamma
    return AffineCost(2 * _rounds(workers) * link.alpha, both - both / workers)


def binary_tree(workers: int, link: Link) -> AffineCost:
    """Reduce up a tree, broadcast down."""
    rounds = _rounds(workers)
    return AffineCost(2 * rounds * link.alpha, rounds * (2 * link.beta + link.gamma))


def double_binary_trees(workers: int, link: Link) -> AffineCost:
    """Two trees at once, each worker a leaf of one of them, each tree with half the bytes (as NCCL does)."""
    if workers == 1:
        return AffineCost(0.0, 0.0)
    return AffineCost(2 * _rounds(workers) * link.alpha, link.beta + link.gamma)


ALGORITHMS: dict[str, Callable[[int, Link], AffineCost]] = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "recursive_halving_doubling": recursive_halving_doubling,
    "binary_tree": binary_tree,
    "double_binary_trees": double_binary_trees,
}


def _rounds(workers: int) -> int:
    return (workers - 1).bit_length()


@dataclass(frozen=True)
class AlgorithmNetwork:
    """An algorithm of `ALGORITHMS` on equal links."""

    name: str
    link: Link

    def cost(self, workers: int) -> AffineCost:
        """Return the straight line of the algorithm."""
        return ALGORITHMS[self.name](workers, self.link)


@dataclass(frozen=True)
class FixedNetwork:
    """The same cost at any number of workers above one."""

    name: str
    fixed: AffineCost | AllReduceCost

    def cost(self, workers: int) -> AffineCost | AllReduceCost:
        """Return the cost."""
        return self.fixed if workers > 1 else AffineCost(0.0, 0.0)


@dataclass(frozen=True)
class MeasuredNetwork:
    """Curves that were measured among certain numbers of workers."""

    name: str
    curves: Mapping[int, AllReduceCost]

    def cost(self, workers: int) -> AffineCost | AllReduceCost:
        """Return the curve."""
        if workers == 1:
            return AffineCost(0.0, 0.0)
        if workers not in self.curves:
            known = ", ".join(map(str, sorted(self.curves)))
            raise CommError(
                f"{self.name} was measured with {known} workers, not with {workers}",
                hint="ask for one of these, or give an algorithm such as ring:alpha=45e-6,beta=1e-9",
                exit_code=EXIT_BAD_INPUT,
            )
        return self.curves[workers]


def parse_network(text: str) -> Network:
    """Read what a user wrote: `ALGORITHM:alpha=...,beta=...[,gamma=...]`, `affine:a=...,b=...`, or a file.

    Raises:
        UsageError: neither, or with numbers missing, unknown or below 0.
        DataError: a file that is no measurement.
    """
    name, colon, numbers = text.partition(":")
    algorithm = name.strip().lower().replace("-", "_").replace(" ", "_")
    if algorithm in ALGORITHMS:
        return AlgorithmNetwork(algorithm, Link(**_numbers(text, numbers, ("alpha", "beta"), ("gamma",))))
    if algorithm == "affine":
        return FixedNetwork(text, AffineCost(**_numbers(text, numbers, ("a", "b"), ())))
    path = Path(text)
    if path.is_file() or (not colon and path.suffix in (".json", ".csv")):
        return read_network(path)
    raise UsageError(f"unknown network '{name}'", hint=_suggest(algorithm))


def _numbers(text: str, numbers: str, needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, float]:
    """Read `alpha=1e-6,beta=2e-9`."""
    example = ",".join(f"{name}=..." for name in (*needed, *optional))
    values: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in numbers.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if name not in (*needed, *optional) or not equals:
            raise UsageError(f"network '{text}': '{part}' is not understood", hint=f"it takes {example}")
        if name in values:
            raise UsageError(f"network '{text}': {name} is given twice")
        try:
            values[name] = float(value)
        except ValueError:
            raise UsageError(f"network '{text}': {name} is '{value}', which is not a number") from None
        if not 0 <= values[name] <= MAX_SECONDS:
            raise UsageError(f"network '{text}': {name} is {value} and must be at least 0 and at most {MAX_SECONDS:g}")
    missing = [name for name in needed if name not in values]
    if missing:
        raise UsageError(f"network '{text}': {' and '.join(missing)} missing", hint=f"it takes {example}")
    return values


def _suggest(name: str) -> str:
    known = [*ALGORITHMS, "affine"]
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean '{near[0]}'? " if near else ""
    return f"{guess}networks are {', '.join(known)}, or a file (.json, .csv) of measured costs"


def read_network(path: Path) -> Network:
    """Read measured costs: a CSV with columns nodes, bytes and latency_us, a cost file, or the JSON of one cost.

    Of a cost file (`cost_file.py`) the background's curves are taken, of several for as many ranks the last one.
    Of a CSV, sizes below 1 KiB are left out: gradients are larger, and the steps there would spoil the fitted
    line.

    Raises:
        DataError: the file cannot be read, or is neither; located.
    """
    text = read_text(path, "measured costs")
    if path.suffix == ".csv":
        return MeasuredNetwork(str(path), _read_table(path, text))
    document = parse_json(text, str(path), "not the cost of an all-reduce")
    if is_cost_file(document):
        curves = {entry.key.ranks: entry.costs.polled for entry in parse_costs(document)}
        if not curves:
            document.fail("the list of them is empty")
        return MeasuredNetwork(str(path), curves)
    return FixedNetwork(str(path), read_cost(document))


_MIN_BYTES = 1024
_MAX_NODES = 10**9


def _read_table(path: Path, text: str) -> dict[int, AllReduceCost]:
    """Read rows of OSU's osu_allreduce, such as `8,1024,160.07` under `nodes,bytes,latency_us`."""
    points: dict[int, list[tuple[float, float]]] = {}
    for location, row in csv_rows(path, text, ("nodes", "bytes", "latency_us")):
        try:
            nodes, size, latency = int(row["nodes"]), float(row["bytes"]), float(row["latency_us"])
        except ValueError:
            raise DataError(f"{', '.join(row.values())} should be numbers", location=location) from None
        if not (1 <= nodes <= _MAX_NODES and 0 <= size <= MAX_BYTES and 0 < latency * 1e-6 <= MAX_SECONDS):
            raise DataError(
                f"an all-reduce of {row['bytes']} bytes among {row['nodes']} nodes in {row['latency_us']} us makes no"
                " sense",
                location=location,
            )
        if size >= _MIN_BYTES:
            points.setdefault(nodes, []).append((size, latency * 1e-6))
    if not points:
        raise DataError(f"no all-reduce of {_MIN_BYTES} bytes or more", location=Location(str(path)))
    return {nodes: AllReduceCost(rows) for nodes, rows in points.items()}
