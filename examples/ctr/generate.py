"""Generates click-through-rate data in Criteo's format: it is not Criteo's data, and every file says so by its name.

    python examples/ctr/generate.py FOLDER [--rows 100000] [--test_rows 20000] [--files 1] [--seed 0] [--gzip]

writes FOLDER/generated_train.tsv (or, with --files N, generated_train_0.tsv and so on) and FOLDER/generated_test.tsv:
rows of a label, 13 integers and 26 categorical values of 8 hexadecimal digits between tabs, some of them missing.

How a row comes about. A categorical feature has from 4 to --values different values, drawn by Zipf's law: value k with
a probability proportional to 1 / k^zipf. The integers are log-normal numbers without their fractions, the second one
less 3. A planted teacher knows a number and a vector of every value: its logit is the sum of the values' numbers, of a
linear function of the integers' logarithms, and of the dot products of all pairs of vectors, brought to a fixed spread
and base rate. The label is drawn with the logit's probability, so that nobody can do better than the teacher, whose own
normalized entropy and AUC are printed.

The same arguments give the same rows; the rows for training and testing have the same teacher.
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

INTEGERS, CATEGORIES, VECTOR = 13, 26, 4
CHUNK = 1 << 12
BASE_RATE = 0.256
"""About that of Criteo's Kaggle data."""
LOGIT_SPREAD = 2.0
"""The standard deviation of the teacher's logits."""
PAIRS_SHARE = 0.3
"""How much of that comes from pairs of values, which no linear model learns."""
PILOT_ROWS = 20_000
TRAIN, TEST, PILOT = range(3)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """What a chunk of rows is made of.

    Attributes:
        integers: (N, 13), int64.
        known: where they are not missing.
        values: the number of each categorical value, (N, 26); the number of values where missing.
    """

    integers: NDArray[np.int64]
    known: NDArray[np.bool_]
    values: NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """A categorical feature with V values; entry V of each array stands for a missing one.

    Attributes:
        digits: what is written, (V + 1,).
        cumulative: the probability of value k or one before it, (V,).
        weights: the teacher's number of each value, (V + 1,).
        vectors: the teacher's vector of each value, (V + 1, 4).
    """

    digits: NDArray[np.bytes_]
    cumulative: Floats
    weights: Floats
    vectors: Floats

    @classmethod
    def make(cls, count: int, zipf: float, random: np.random.Generator) -> Feature:
        """Return a feature with `count` values."""
        numbers = np.unique(random.integers(1 << 32, size=2 * count + 16, dtype=np.uint64))
        digits = [b"%08x" % int(number) for number in random.permutation(numbers)[:count]]
        probabilities = np.arange(1, count + 1, dtype=np.float64) ** -zipf
        return cls(
            np.array([*digits, b""]),
            np.cumsum(probabilities / probabilities.sum()),
            random.standard_normal(count + 1),
            random.standard_normal((count + 1, VECTOR)),
        )


class Generator:
    """Makes rows.

    Args:
        values: the number of values of the largest categorical feature.
        zipf: the exponent.
        seed: of everything.
    """

    def __init__(self, values: int, zipf: float, seed: int) -> None:
        self._seed = seed
        random = np.random.default_rng(seed)
        counts = np.geomspace(4, max(values, 4), CATEGORIES).round().astype(int)
        self.features = [Feature.make(int(count), zipf, random) for count in random.permutation(counts)]
        self._means, self._spreads = random.uniform(0.5, 5, INTEGERS), random.uniform(0.5, 1.5, INTEGERS)
        self._missing = random.uniform(0, 0.3, INTEGERS + CATEGORIES)
        self._missing[random.random(INTEGERS + CATEGORIES) < 0.4] = 0
        self._weights = random.standard_normal(INTEGERS)
        self._linear, self._pairs, self._offset = (0.0, 1.0), (0.0, 1.0), 0.0
        self._calibrate()

    def chunks(self, part: int, rows: int) -> Iterator[tuple[Draw, Floats, NDArray[np.bool_]]]:
        """Return rows, the teacher's logits and the labels, a chunk at a time."""
        for number, start in enumerate(range(0, rows, CHUNK)):
            random = np.random.default_rng([self._seed, part, number])
            draw = self._draw(CHUNK, random)
            logits = self.logits(draw)
            labels = random.random(CHUNK) < sigmoid(logits)
            count = min(CHUNK, rows - start)
            yield Draw(draw.integers[:count], draw.known[:count], draw.values[:count]), logits[:count], labels[:count]

    def text(self, draw: Draw, labels: NDArray[np.bool_]) -> bytes:
        """Return rows as they are written."""
        columns: list[list[bytes]] = [[b"1" if label else b"0" for label in labels.tolist()]]
        for values, known in zip(draw.integers.T.tolist(), draw.known.T.tolist(), strict=True):
            columns.append([b"%d" % value if there else b"" for value, there in zip(values, known, strict=True)])
        for feature, values in zip(self.features, draw.values.T, strict=True):
            columns.append(feature.digits[values].tolist())
        return b"".join(b"\t".join(row) + b"\n" for row in zip(*columns, strict=True))

    def logits(self, draw: Draw) -> Floats:
        """Return the teacher's logits."""
        (mean, spread), (pairs_mean, pairs_spread) = self._linear, self._pairs
        linear, pairs = self._parts(draw)
        mixed = math.sqrt(1 - PAIRS_SHARE) * (linear - mean) / spread
        mixed += math.sqrt(PAIRS_SHARE) * (pairs - pairs_mean) / pairs_spread
        return LOGIT_SPREAD * mixed + self._offset

    def _draw(self, count: int, random: np.random.Generator) -> Draw:
        normal = random.standard_normal((count, INTEGERS))
        integers = np.exp(self._means + self._spreads * normal).astype(np.int64)
        integers[:, 1] -= 3  # Criteo's second one has negative values, too
        missing = random.random((count, INTEGERS + CATEGORIES)) < self._missing
        values = np.empty((count, CATEGORIES), np.int64)
        for number, feature in enumerate(self.features):
            last = len(feature.cumulative) - 1
            drawn = np.searchsorted(feature.cumulative, random.random(count), side="right")
            values[:, number] = np.where(missing[:, INTEGERS + number], last + 1, np.minimum(drawn, last))
        return Draw(integers, ~missing[:, :INTEGERS], values)

    def _parts(self, draw: Draw) -> tuple[Floats, Floats]:
        """Return what single values and integers add to the logits, and what pairs of values do; not yet scaled."""
        logarithms = np.log(np.maximum(np.where(draw.known, draw.integers, 0), 0) + 1.0)
        linear = ((logarithms - self._means) / self._spreads) @ self._weights
        total = np.zeros((len(linear), VECTOR))
        squares = np.zeros(len(linear))
        for feature, values in zip(self.features, draw.values.T, strict=True):
            linear += feature.weights[values]
            vectors = feature.vectors[values]
            total += vectors
            squares += (vectors**2).sum(axis=1)
        return linear, ((total**2).sum(axis=1) - squares) / 2

    def _calibrate(self) -> None:
        """Find means and spreads from pilot rows, and the offset that gives the base rate."""
        draw = self._draw(PILOT_ROWS, np.random.default_rng([self._seed, PILOT]))
        linear, pairs = self._parts(draw)
        self._linear = float(linear.mean()), float(linear.std())
        self._pairs = float(pairs.mean()), float(pairs.std())
        logits = self.logits(draw)
        low, high = -20.0, 20.0
        for _ in range(50):
            self._offset = (low + high) / 2
            above = sigmoid(logits + self._offset).mean() > BASE_RATE
            low, high = (low, self._offset) if above else (self._offset, high)


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def scores(logits: Floats, labels: NDArray[np.bool_]) -> tuple[float, float]:
    """Return normalized entropy and AUC of logits, which have no ties."""
    losses = np.logaddexp(0, logits) - logits * labels
    rate = labels.mean()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    ranks = np.empty(len(logits))
    ranks[np.argsort(logits)] = np.arange(1, len(logits) + 1)
    positives = int(labels.sum())
    above = ranks[labels].sum() - positives * (positives + 1) / 2
    return float(losses.mean() / entropy), float(above / (positives * (len(labels) - positives)))


def open_file(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file to be written; one that ends in .gz is packed, and holds no time, so that it is always the same."""
    return gzip.GzipFile(path, "wb", 6, mtime=0) if path.suffix == ".gz" else path.open("wb")


def write(generator: Generator, part: int, rows: int, paths: Sequence[Path]) -> str:
    """Write rows to files of equal length; return what to say of them."""
    logits, labels = [], []
    ends = [rows * (number + 1) // len(paths) for number in range(len(paths))]
    files = [open_file(path) for path in paths]
    done = 0
    for draw, chunk_logits, chunk_labels in generator.chunks(part, rows):
        lines = generator.text(draw, chunk_labels).splitlines(keepends=True)
        for number, end in enumerate(ends):
            begin = ends[number - 1] if number else 0
            first, last = max(begin - done, 0), max(end - done, 0)
            files[number].write(b"".join(lines[first:last]))
        done += len(lines)
        logits.append(chunk_logits)
        labels.append(chunk_labels)
    for file in files:
        file.close()
    every = np.concatenate(labels)
    names = ", ".join(str(path) for path in paths)
    said = f"{rows} generated rows in {names}"
    if not 0 < every.sum() < rows:
        return said
    entropy, area = scores(np.concatenate(logits), every)
    teacher = f"the teacher itself: normalized entropy {entropy:.4f}, AUC {area:.4f}"
    return f"{said}: {every.mean():.1%} positive; {teacher}"


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--rows", type=int, default=100_000, help="rows for training (100000)")
    parser.add_argument("--test_rows", type=int, default=20_000, help="rows for testing (20000)")
    parser.add_argument("--files", type=int, default=1, help="files that the rows for training are shared out over (1)")
    parser.add_argument("--values", type=int, default=1000, help="values of the largest categorical feature (1000)")
    parser.add_argument("--zipf", type=float, default=1.1, help="the exponent of Zipf's law (1.1)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--gzip", action="store_true", help="pack the files")
    options = parser.parse_args(words)
    if options.rows < 1 or options.test_rows < 0 or options.files < 1 or options.values < 4 or options.seed < 0:
        parser.error("--rows and --files have to be at least 1, --values at least 4, --test_rows and --seed at least 0")
    if not math.isfinite(options.zipf):
        parser.error("--zipf has to be a number")
    ending = ".tsv.gz" if options.gzip else ".tsv"
    train = ["generated_train"] if options.files == 1 else [f"generated_train_{n}" for n in range(options.files)]
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        generator = Generator(options.values, options.zipf, options.seed)
        print(write(generator, TRAIN, options.rows, [options.folder / (name + ending) for name in train]))
        if options.test_rows:
            print(write(generator, TEST, options.test_rows, [options.folder / f"generated_test{ending}"]))
    except OSError as error:
        parser.exit(73, f"error: '{error.filename}' cannot be written: {error.strerror}\n")


if __name__ == "__main__":
    main()
