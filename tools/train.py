"""`engine train`: trains a net as its solver says, on one rank or under mpirun (Caffe: `caffe train`)."""

from __future__ import annotations

from mgcaffe.errors import UsageError
from mgcaffe.tools.flags import (
    FlagParser,
    Flags,
    add_comm_flags,
    add_machine_flags,
    number_from,
    require,
    words_list,
)
from mgcaffe.tools.session import Session

_EFFECTS = ("stop", "snapshot", "none")


def parser() -> FlagParser:
    """The flags of `engine train`."""
    flags = FlagParser(
        "train",
        "Train a net, or go on training it. Under mpirun each rank reads its share of every batch.",
        subject="solver",
        epilog=(
            "examples:\n"
            "  engine train solver.prototxt\n"
            "  engine train solver.prototxt --snapshot=lenet_iter_5000.solverstate\n"
            "  mpirun -n 4 --bind-to none engine train solver.prototxt --schedule=mgwfbp --json_log=run.json"
        ),
    )
    flags.flag("solver", "the solver (prototxt)", metavar="FILE")
    flags.flag("snapshot", "go on from this solverstate", metavar="FILE")
    flags.flag("weights", "start from these weights, files separated by commas", type=words_list, metavar="FILES")
    flags.flag("max_iter", "train to this iteration instead of the solver's", type=number_from(0), metavar="N")
    flags.flag("level", "level of the training net's state", type=int, metavar="N")
    flags.flag("stage", "stages of the training net's state, separated by commas", type=words_list, default=[])
    add_machine_flags(flags)
    add_comm_flags(flags)
    flags.flag("sigint_effect", "what SIGINT (Ctrl-C) does", choices=_EFFECTS, default="stop")
    flags.flag("sighup_effect", "what SIGHUP does", choices=_EFFECTS, default="snapshot")
    flags.flag("json_log", "append one JSON object a line for each iteration, test and snapshot", metavar="FILE")
    flags.switch("progress", "show a progress line also in a pipe or under a launcher", default=None)
    flags.switch("no_progress", "log Caffe's lines also on a terminal", action="store_false", dest="progress")
    flags.switch("strict", "refuse unknown fields in prototxt files instead of warning")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Trains, and returns 75 if a signal stopped it."""
    path = require(flags, "solver", "the solver")
    if flags.snapshot and flags.weights:
        raise UsageError(
            "--snapshot and --weights exclude each other",
            hint="--snapshot goes on where it stopped, --weights starts anew from given weights",
        )
    communicator = session.connect()
    from mgcaffe.tools.training import train

    return train(flags, path, communicator)
