"""`engine convert_criteo`: an LMDB of rows in Criteo's format, or the dictionary of their categorical values."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_OK, DataError, EngineError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

_MIN_COUNT = 1
_USAGE = "engine convert_criteo SOURCE... DB_NAME, or engine convert_criteo --dictionary=FILE SOURCE..."


def parser() -> FlagParser:
    """Return the flags of `engine convert_criteo`."""
    flags = FlagParser(
        "convert_criteo",
        "Write an LMDB of rows in Criteo's format, for a CriteoData layer: files of text, plain or packed by gzip,\n"
        "one after the other. Or, with --dictionary, a file that gives their categorical values contiguous ids.",
        files=("SOURCE...", "DB_NAME"),
        epilog=(
            "examples:\n"
            "  engine convert_criteo train.txt.gz train_lmdb\n"
            "  engine convert_criteo --dictionary=criteo.dictionary --min_count=10 train.txt.gz"
        ),
    )
    flags.flag("dictionary", "write the dictionary of the sources' values, and no database", metavar="FILE")
    flags.flag(
        "min_count", "how often a value has to come to be in the dictionary",
        type=number_from(1), default=_MIN_COUNT, metavar="N",
    )  # fmt: skip
    flags.flag(
        "bad_record_limit", "how many malformed rows are left out, each named, before the command stops",
        type=number_from(0), default=100, metavar="N",
    )  # fmt: skip
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the database or the dictionary."""
    session.refuse_ranks("convert_criteo")
    if len(flags.files) < (1 if flags.dictionary else 2):
        raise UsageError(f"convert_criteo takes more words than {len(flags.files)}", hint=_USAGE)
    if flags.min_count != _MIN_COUNT and not flags.dictionary:
        raise UsageError("--min_count has no effect without --dictionary", hint=_USAGE)
    start_logging(speaks=True)
    if flags.dictionary:
        _write_dictionary(flags.files, Path(flags.dictionary), flags.min_count, flags.bad_record_limit)
    else:
        _write_lmdb(flags.files[:-1], flags.files[-1], flags.bad_record_limit)
    return EXIT_OK


def _write_lmdb(sources: list[str], target: str, bad_limit: int) -> None:
    from mgcaffe.engine.data.criteo_data import open_rows
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter
    from mgcaffe.tools.datasets.criteo_rows import GoodRows, records

    with LmdbWriter(target) as writer:
        source = open_rows(sources)
        log_line(f"A total of {len(source)} rows.")
        good = GoodRows(source, bad_limit)
        written = 0
        for key, value, rows in records(good):
            writer.put(key, value)
            written += rows
        if not written:
            raise DataError("all rows are malformed, so there is nothing to write")
    log_line(f"Processed {written} rows in {writer.count} records{_left_out(good.bad)}.")


def _write_dictionary(sources: list[str], target: Path, least: int, bad_limit: int) -> None:
    from mgcaffe.engine.data.criteo.dictionary import write_dictionary
    from mgcaffe.engine.data.criteo_data import open_rows
    from mgcaffe.tools.datasets.criteo_rows import GoodRows, frequent_values

    source = open_rows(sources)
    if target.exists() and any(target.samefile(each) for each in sources):
        raise UsageError(f"--dictionary={target} is a source, which it would replace", hint=_USAGE)
    log_line(f"A total of {len(source)} rows.")
    good = GoodRows(source, bad_limit)
    values = frequent_values(good, least)
    try:
        write_dictionary(target, values)
    except OSError as error:
        raise EngineError(f"cannot write {target}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    log_line(f"Processed {len(source) - good.bad} rows{_left_out(good.bad)}.")
    log_line(f"Sizes of the tables, id 0 included: {' '.join(str(len(each) + 1) for each in values)}")


def _left_out(bad: int) -> str:
    return f"; {bad} malformed ones are left out" if bad else ""
