"""`engine convert_leveldb`: an LMDB of the records of a LevelDB, with the same keys, which is what the engine reads.

It reads with plyvel, an extra. LevelDB's library tidies up a database when it opens it, so the folder has to be
writable and used by no other program.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

_TELL_EVERY = 10000


def parser() -> FlagParser:
    """Return the flags of `engine convert_leveldb`."""
    return FlagParser(
        "convert_leveldb",
        "Write an LMDB of the records of a LevelDB. Needs plyvel: pip install 'mgcaffe[leveldb]'.",
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
    if importlib.util.find_spec("plyvel") is None:
        raise UsageError("convert_leveldb needs plyvel, which is not installed", hint="pip install 'mgcaffe[leveldb]'")
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
    import plyvel

    from mgcaffe.engine.data.lmdb.source import is_leveldb
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    if not is_leveldb(Path(source)):
        raise DataError(f"'{source}' is not the folder of a LevelDB database")
    try:
        with plyvel.DB(source, create_if_missing=False, paranoid_checks=True) as database, LmdbWriter(target) as writer:
            for key, value in database.iterator(verify_checksums=True):
                writer.put(key, value)
                if writer.count % _TELL_EVERY == 0:
                    log_line(f"Copied {writer.count} records.")
            if not writer.count:
                raise DataError(f"'{source}' holds no records")
            return writer.count
    except plyvel.Error as error:
        # plyvel hands on LevelDB's own words as bytes.
        said = error.args[0] if error.args else error
        text = said.decode(errors="backslashreplace") if isinstance(said, bytes) else said
        raise DataError(f"LevelDB '{source}' cannot be read: {text}") from error
