"""The flags of `engine train` that make it start its ranks itself, and which of them the ranks are not to see."""

from __future__ import annotations

from mgcaffe.errors import UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from

OWN = ("np", "H", "mpirun_args", "max_restarts", "rescue", "requeue")


def add_launcher_flags(flags: FlagParser) -> None:
    """Add them."""
    flags.flag("np", "start so many ranks, with mpirun", type=number_from(1), metavar="N")
    flags.flag("H", "hosts for --np and how many ranks each takes, as a:2,b:2", metavar="HOSTS")
    flags.flag("mpirun_args", "more arguments for mpirun, in one word", default="", metavar="WORDS")
    flags.flag(
        "max_restarts", "start again, from the newest valid snapshot, up to N times if a rank dies or the run stalls",
        type=number_from(0), default=0, metavar="N",
    )  # fmt: skip
    flags.switch(
        "rescue", "let the ranks that outlive another one write a snapshot (mpirun --with-ft ulfm); needs --np"
    )
    flags.switch("requeue", "under Slurm: after SIGUSR1 or SIGTERM and the snapshot, requeue the job")


def is_launcher(flags: Flags) -> bool:
    """Return whether this process is to start the ranks instead of being one.

    Raises:
        UsageError: a flag that only the launcher understands, without ranks to start.
    """
    if flags.np or flags.H or flags.max_restarts:
        return True
    for name in ("mpirun_args", "rescue"):
        if getattr(flags, name):
            raise UsageError(f"--{name} is for mpirun, which --np starts", hint="say how many ranks: --np 4")
    return False


def words_for_ranks(words: list[str]) -> list[str]:
    """Return a command line, in one spelling, without the launcher's own flags."""
    own = {f"--{name}" for name in OWN}
    return [word for word in words if word.partition("=")[0] not in own]
