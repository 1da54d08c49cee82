"""What the three commands that write upgraded files share: their command line, and what they say.

Each is called as Caffe's of the same name, with the file to read and the file to write, which may be the same.
Whether IN is text or binary is found out from its content. A field that is not known is an error, since it would
be lost; so are comments, as with Caffe's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.errors import EXIT_OK, UsageError

Read = Callable[..., Any]
Write = Callable[[Any, str], None]


def upgrade_file(name: str, what: str, read: Read, write: Write, arguments: Sequence[str] | None) -> int:
    """Run one of the commands.

    Args:
        name: the command's.
        what: what it reads and writes, for the help.
        read: `read_net_source` or `read_solver_source`.
        write: writes the message, whole or not at all.
        arguments: the command line; None: this process's.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_guarded(lambda: _run(name, what, read, write, words), lambda: None)


def _run(name: str, what: str, read: Read, write: Write, words: list[str]) -> int:
    if words and words[0].lstrip("-") in ("h", "help"):
        print(f"usage: {name} IN OUT\n\nReads {what}.\nIN and OUT may be the same file.")
        return EXIT_OK
    if len(words) != 2:
        raise UsageError(f"{name} takes two files, not {len(words)}", hint=f"usage: {name} IN OUT")
    source, target = words
    found = read(source, strict=True)
    write(found.param, target)
    for upgrade in found.upgrades:
        _say(f"{source}: upgraded {upgrade}")
    _say(f"wrote {target}" if found.upgrades else f"{source} was in today's form already; wrote {target}")
    return EXIT_OK


def _say(line: str) -> None:
    """Inform the user on standard error: OUT may be standard output."""
    print(line, file=sys.stderr)
