"""Damaged databases: whatever is flipped or cut off, the end is a clear error or correct data, never a crash.

Each case reads every record of a copy of a database after one damage. With a sum file the outcome has to be an error
that names the database, or the right bytes. Without one, values may differ unnoticed (LMDB has no checksums), but keys,
sizes and the process have to survive. All of it runs in child processes, so that a signal would be seen.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.engine.data.lmdb.sums import FILE
from mgcaffe.engine.data.lmdb.writer import LmdbWriter
from mgcaffe.errors import DataError
from mgcaffe.prototxt import Datum
from tests.soak import Row

NAME = "data"
CASES = 400

_PER_CHILD = 200
_HEADS = 16

Record = tuple[bytes, bytes]
Damage = Callable[[bytearray, random.Random], None]


def flip_a_bit(content: bytearray, draw: random.Random) -> None:
    """One bit anywhere."""
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def flip_in_a_head(content: bytearray, draw: random.Random) -> None:
    """One bit in the head of a page, or in the table behind it."""
    page = draw.randrange(len(content) // 4096)
    content[page * 4096 + draw.randrange(4 * _HEADS)] ^= 1 << draw.randrange(8)


def flip_in_a_meta_page(content: bytearray, draw: random.Random) -> None:
    """One bit of what the two meta pages say."""
    content[4096 * draw.randrange(2) + draw.randrange(152)] ^= 1 << draw.randrange(8)


def overwrite_a_page(content: bytearray, draw: random.Random) -> None:
    """A page of noise, or of another place in the file."""
    page, other = (4096 * draw.randrange(len(content) // 4096) for _ in range(2))
    content[page : page + 4096] = draw.choice([draw.randbytes(4096), bytes(4096), content[other : other + 4096]])


def cut_off(content: bytearray, draw: random.Random) -> None:
    """The end is missing."""
    del content[draw.randrange(len(content)) :]


DAMAGES: tuple[Damage, ...] = (flip_a_bit, flip_in_a_head, flip_in_a_meta_page, overwrite_a_page, cut_off)


def run(full: bool) -> list[Row]:
    """Does each kind of damage so many times, a tenth as often if not in full, with a sum file and without."""
    times = CASES if full else CASES // 10
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "intact"
        records = _write(folder)
        for with_sums in (True, False):
            for damage in DAMAGES:
                sums = "with" if with_sums else "without"
                row = Row(f"LMDB, {damage.__name__.replace('_', ' ')}, {sums} sums", times)
                began = time.monotonic()
                outcomes = _repeat(damage, times, folder, records, with_sums, row.failures)
                row.note = ", ".join(f"{count} {what}" for what, count in sorted(Counter(outcomes).items()))
                row.seconds = time.monotonic() - began
                rows.append(row)
    return rows


def _write(folder: Path) -> list[Record]:
    """A database with small values, big ones and several levels of pages; its records."""
    draw = random.Random(1)
    records = []
    for number in range(400):
        height = draw.choice([1, 5, 60, 100])
        datum = Datum(channels=3, height=height, width=40, label=number, data=draw.randbytes(120 * height))
        records.append((b"%08d_%s" % (number, b"x" * draw.randrange(60)), datum.SerializeToString()))
    with LmdbWriter(folder) as writer:
        for key, value in records:
            writer.put(key, value)
    return records


def _repeat(
    damage: Damage, times: int, folder: Path, records: list[Record], with_sums: bool, failures: list[str]
) -> list[str]:
    """What came of each case; those that must not be are added to `failures`."""
    found: list[str] = []
    context = multiprocessing.get_context("spawn")
    for start in range(0, times, _PER_CHILD):
        seeds = range(start, min(times, start + _PER_CHILD))
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_read_damaged, args=(damage, seeds, folder, records, with_sums, sender))
        child.start()
        sender.close()
        outcomes: list[str] = []
        try:
            while len(outcomes) < len(seeds):
                outcomes.append(receiver.recv())
        except EOFError:
            child.join()
            failures.append(f"seed {seeds[len(outcomes)]}: the process ended with {child.exitcode}")
        child.join()
        receiver.close()
        failures += [f"seed {seed}: {text}" for seed, text in zip(seeds, outcomes, strict=False) if text[0] == "!"]
        found += outcomes
    return found


def _read_damaged(
    damage: Damage, seeds: range, folder: Path, records: list[Record], with_sums: bool, sender: Connection
) -> None:
    """Runs in a child: one outcome for each seed; those that must not be begin with '!'."""
    intact = (folder / "data.mdb").read_bytes()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "damaged"
            copy.mkdir()
            if with_sums:
                shutil.copy(folder / FILE, copy)
            content = bytearray(intact)
            damage(content, random.Random(seed))
            (copy / "data.mdb").write_bytes(content)
            sender.send(_outcome(str(copy), records, with_sums))


def _outcome(folder: str, records: list[Record], with_sums: bool) -> str:
    try:
        source = open_lmdb(folder)
        found, refused = [], 0
        for number in range(len(source)):
            try:
                found.append((source.key(number), source.value(number)))
            except DataError as error:
                refused += 1
                if folder not in error.message or f"record {number} (key " not in error.message:
                    return f"! unclear: {error.message}"
    except DataError as error:
        return "refused when opened" if folder in error.message else f"! unclear: {error.message}"
    if not with_sums:
        return "read, some records refused" if refused else "read"
    if any(record not in records for record in found):
        return "! wrong data"
    if refused:
        return "read, the damaged record refused"
    return "read, correct" if found == records else "! records are missing"
