"""`engine convert_leveldb`: an LMDB of the records of a LevelDB, with the same keys.

A Data layer reads either. An LMDB opens faster, since its values need not be read to find its keys, and has sums.
"""

from __future__ import annotations

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

_TELL_EVERY = 10000


def parser() -> FlagParser:
    """Return the flags of `engine convert_leveldb`."""
    return FlagParser(
        "convert_leveldb",
        "Write an LMDB of the records of a LevelDB. Needs rocksdict: pip install 'mgcaffe[leveldb]'.",
        files=("SOURCE", "TARGET"),
        epilog="example:\n  engine convert_leveldb examples/mnist/mnist_train_leveldb examples/mnist/mnist_train_lmdb",
    )


def run(flags: Flags, session: Session) -> int:
    """Copy the records, in the order of their keys."""
    session.refuse_ranks("convert_leveldb")
    if len(flags.files) != 2:
        raise UsageError(
            f"convert_leveldb takes two folders, not {len(flags.files)}", hint="engine convert_leveldb SOURCE TARGET"
        )
    start_logging(speaks=True)
    count = copy_records(*flags.files)
    log_line(f"{flags.files[1]}: {count} records")
    return EXIT_OK


def copy_records(source: str, target: str) -> int:
    """Copy a LevelDB's records into a new LMDB and return their number.

    Raises:
        DataError: the source is no LevelDB, is damaged or empty, or has a key that LMDB cannot take.
        EngineError: the target exists or cannot be written.
    """
    from mgcaffe.engine.data.leveldb import LevelDb
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    database = LevelDb(source)
    with LmdbWriter(target) as writer:
        for key, value in database.records():
            writer.put(key, value)
            if writer.count % _TELL_EVERY == 0:
                log_line(f"Copied {writer.count} records.")
        if not writer.count:
            raise DataError(f"'{source}' holds no records")
        return writer.count
