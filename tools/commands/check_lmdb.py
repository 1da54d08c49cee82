"""`engine check_lmdb`: reads all of an LMDB and says which records are bad; writes its sum file if asked to.

Checked are every page of the tree, that each record can be read and is a Datum whose image can be decoded, that the
images have one size, and each record's sum where there is a sum file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, EXIT_OK, DataError, EngineError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.record_images import read_image
from mgcaffe.tools.running.session import Session

_SHOWN = 20


def parser() -> FlagParser:
    """Return the flags of `engine check_lmdb`."""
    flags = FlagParser(
        "check_lmdb",
        "Check every page, record and sum of LMDB databases. Ends with code 65 if something is bad.",
        files=("FOLDER", "[FOLDER ...]"),
        epilog="example:\n  engine check_lmdb examples/digits/train_lmdb",
    )
    flags.switch("write_sums", "write the sum file of each database anew, from what it holds now, if all of it is good")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Check each database and print what was found."""
    session.refuse_ranks("check_lmdb")
    if not flags.files:
        raise UsageError("the database is missing", hint="engine check_lmdb FOLDER [FOLDER ...] [flags]")
    good = True
    for folder in flags.files:
        good = check(folder, write=flags.write_sums) and good
    return EXIT_OK if good else EXIT_BAD_INPUT


def check(folder: str, *, write: bool) -> bool:
    """Check one database; False if a record is bad.

    Raises:
        DataError: it cannot be opened at all.
        EngineError: (exit code 73) the sum file cannot be written.
    """
    from mgcaffe.engine.data.lmdb.source import open_lmdb
    from mgcaffe.engine.data.lmdb.sums import record_sum, write_sums

    source = open_lmdb(folder, without_sums=write)
    shapes: Counter[tuple[int, ...]] = Counter()
    sums, bad = [], 0
    for number in range(len(source)):
        try:
            image, value = read_image(source, number)
        except DataError as error:
            bad += 1
            if bad <= _SHOWN:
                print(error.message)
            continue
        shapes[image.shape] += 1
        sums.append(record_sum(source.key(number), value))
    if bad > _SHOWN:
        print(f"... and {bad - _SHOWN} more")
    sizes = ", ".join(f"{count} of {'x'.join(map(str, shape))}" for shape, count in shapes.most_common(5))
    with_sums = "checked against their sums" if source.has_sums else "without sums to check against"
    print(f"{folder}: {len(source)} records, {bad} bad, {with_sums}; images: {sizes or 'none'}")
    if write and not bad:
        try:
            path = write_sums(Path(folder), sums)
        except OSError as error:
            raise EngineError(
                f"cannot write the sum file of '{folder}': {error.strerror}", exit_code=EXIT_CANNOT_WRITE
            ) from None
        print(f"wrote {path}")
    return not bad
