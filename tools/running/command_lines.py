"""What command line each rank was given, compared before the ranks do anything else together.

`mpirun -n 1 engine train S : -n 1 engine train S --dry_run` starts ranks that would make different collective calls:
they would wait for each other for ever, or take one message for another. So the first thing that ranks send is a
record of their command lines, by one all-gather that admits records of any length. A rank that ends without joining
the others (after --help, or by a mistake in its flags) sends one too (`Session.leave`).

Flags have to be the same on all ranks, but for those in `OF_EACH_RANK` and `OF_RANK_0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.comm.transport.communicator import Communicator, name_ranks
from mgcaffe.comm.transport.handshake import check_equal
from mgcaffe.errors import PeerFailure
from mgcaffe.tools.flags.parsing import FlagParser, Flags

OF_EACH_RANK = frozenset(
    {"solver", "gpu", "threads", "log_dir", "sigint_effect", "sighup_effect", "stall_timeout"}
)  # fmt: skip
"""What a rank uses for itself. The solver's file may lie in another place; what it says is compared later."""

OF_RANK_0 = frozenset({"json_log", "tensorboard", "progress", "stop_file", "requeue"})
"""What rank 0 alone uses; another rank's is reported as having no effect."""

_NOT_GIVEN = "(not given)"
_NO_FLAGS = ("words", "given", "files")


@dataclass(frozen=True)
class CommandLine:
    """A rank's command line.

    Attributes:
        words: all of it after `engine`, for messages.
        command: the subcommand.
        flags: the value of each flag, as text.
        ends: whether the rank ends without joining the others.
        failed: whether it then ends by an error.
    """

    words: str
    command: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False
    failed: bool = False


def parsed(words: Sequence[str], parser: FlagParser, flags: Flags) -> CommandLine:
    """Return the command line that a parser has read; a default that was spelled out counts as not given."""
    defaults = vars(parser.parse_args([]))
    given = {
        name: _NOT_GIVEN if value == defaults[name] else _text(value)
        for name, value in vars(flags).items()
        if name not in _NO_FLAGS
    }
    return CommandLine(" ".join(words), parser.command, given)


def compare(communicator: Communicator, mine: CommandLine) -> None:
    """Compare the command lines of all ranks; the first collective call that a rank makes.

    Raises:
        RankDisagreement: on every rank: they differ in what has to be the same.
        PeerFailure: another rank ends by an error of its own, which it reports.
    """
    # Plain dictionaries, which ranks of another version can read as well.
    lines = [CommandLine(**record) for record in communicator.allgather(asdict(mine))]
    if all(line.ends for line in lines):
        return
    failed = [rank for rank, line in enumerate(lines) if line.failed]
    if failed:
        if mine.failed:
            return
        raise PeerFailure(f"{name_ranks(failed)} ended before the ranks had compared their command lines")
    if any(line.ends or line.command != lines[0].command for line in lines):
        check_equal([{"command line": f"engine {line.words}"} for line in lines])
    check_equal([_shared(line.flags) for line in lines])
    if communicator.rank == 0:
        _warn_of_ignored_flags(lines)


def _shared(flags: Mapping[str, str]) -> dict[str, str]:
    return {f"--{name}": text for name, text in flags.items() if name not in OF_EACH_RANK | OF_RANK_0}


def _warn_of_ignored_flags(lines: Sequence[CommandLine]) -> None:
    for name in sorted(OF_RANK_0 & lines[0].flags.keys()):
        used = (lines[0].flags[name], _NOT_GIVEN)
        ignored = [rank for rank, line in enumerate(lines) if line.flags[name] not in used]
        if ignored:
            # Logging is not set up yet.
            say(f"warning: --{name} of {name_ranks(ignored)} has no effect: rank 0 alone uses it")


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
