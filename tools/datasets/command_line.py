"""What the converters share: how many names they take, and that LMDB is what they write."""

from __future__ import annotations

from mgcaffe.errors import UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags


def add_backend_flag(parser: FlagParser) -> None:
    """Add `--backend`."""
    parser.flag(
        "backend",
        "the kind of database; leveldb is refused, as none are written here",
        choices=("lmdb", "leveldb"),
        default="lmdb",
    )


def check_backend(backend: str) -> None:
    """Make sure that LMDB is asked for.

    Raises:
        UsageError: it is not.
    """
    if backend == "leveldb":
        raise UsageError("LevelDB databases are not written here", hint="say lmdb")
    if backend != "lmdb":
        raise UsageError(f"'{backend}' is no kind of database", hint="say lmdb")


def take_names(flags: Flags, command: str, *names: str) -> list[str]:
    """Return the names on the command line.

    Args:
        flags: the command line.
        command: the subcommand.
        names: what each name is, for the message; one in brackets may be missing.

    Raises:
        UsageError: there are more or fewer.
    """
    least = sum(not name.startswith("[") for name in names)
    if not least <= len(flags.files) <= len(names):
        number = str(least) if least == len(names) else f"{least} to {len(names)}"
        raise UsageError(
            f"{command} takes {number} words, not {len(flags.files)}", hint=f"engine {command} {' '.join(names)}"
        )
    return list(flags.files)
