"""`engine train`: trains a net as its solver says, on one rank or under mpirun or torchrun (Caffe: `caffe train`)."""

from __future__ import annotations

from argparse import SUPPRESS

from mgcaffe.tools.flags.comm_flags import add_comm_flags
from mgcaffe.tools.flags.computing_flags import (
    add_autotune_flag,
    add_machine_flags,
    add_precision_flag,
    add_recompute_flag,
    add_winograd_flag,
)
from mgcaffe.tools.flags.data_flags import add_data_flags
from mgcaffe.tools.flags.parsing import MAX_INT32, FlagParser, Flags, number_from, require, seconds, words_list
from mgcaffe.tools.flags.snapshot_flags import add_snapshot_flags
from mgcaffe.tools.flags.sync_flags import add_sync_flags
from mgcaffe.tools.flags.timeline_flags import add_timeline_flags
from mgcaffe.tools.launcher.flags import add_launcher_flags, is_launcher
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.rank_watch import RankWatch
from mgcaffe.tools.running.requeueing import check_requeue
from mgcaffe.tools.running.session import Session

_EFFECTS = ("stop", "snapshot", "none")
NAN_EFFECTS = ("stop", "skip", "snapshot")


def parser() -> FlagParser:
    """Return the flags of `engine train`."""
    flags = FlagParser(
        "train",
        "Train a net, or go on training it. Under mpirun or torchrun each rank reads its share of every batch.",
        subject="solver",
        epilog=(
            "examples:\n"
            "  engine train solver.prototxt\n"
            "  engine train solver.prototxt --snapshot=lenet_iter_5000.solverstate\n"
            "  engine train solver.prototxt --snapshot=auto --snapshot_keep=3 --best=accuracy\n"
            "  engine train -np 4 solver.prototxt --max_restarts=3\n"
            "  mpirun -n 4 --bind-to none engine train solver.prototxt --schedule=mgwfbp --json_log=run.json\n"
            "  torchrun --nproc_per_node=4 --no-python engine train solver.prototxt"
        ),
    )
    flags.flag("solver", "the solver (prototxt)", metavar="FILE")
    add_snapshot_flags(flags)
    flags.flag("weights", "start from these weights, files separated by commas", type=words_list, metavar="FILES")
    flags.flag("max_iter", "train to this iteration instead of the solver's", type=number_from(0), metavar="N")
    flags.flag("level", "level of the training net's state", type=number_from(-MAX_INT32 - 1), metavar="N")
    flags.flag("stage", "stages of the training net's state, separated by commas", type=words_list, default=[])
    add_machine_flags(flags)
    add_precision_flag(flags)
    add_autotune_flag(flags)
    add_winograd_flag(flags)
    add_recompute_flag(flags)
    add_comm_flags(flags)
    add_sync_flags(flags)
    flags.flag("sigint_effect", "what SIGINT (Ctrl-C) does", choices=_EFFECTS, default="stop")
    flags.flag("sighup_effect", "what SIGHUP does", choices=_EFFECTS, default="snapshot")
    flags.flag(
        "stop_file", "stop, after a snapshot, as soon as this file appears (default: <snapshot_prefix>.stop)",
        metavar="FILE",
    )  # fmt: skip
    flags.flag(
        "stall_timeout", "end a run in which nothing has moved for so long, after a warning at half of it; 0: never",
        type=seconds, default=600.0, metavar="SECONDS",
    )  # fmt: skip
    flags.flag(
        "nan_effect", "what to do about a loss or gradient that is not finite (default: stop)",
        choices=NAN_EFFECTS,
    )  # fmt: skip
    flags.switch(
        "decoupled_weight_decay", "take weight decay off the weights, not into the gradients (AdamW, SGDW)",
        default=None,
    )  # fmt: skip
    flags.switch(
        "row_wise_adagrad", "with solver type AdaGrad, keep one history a row of EmbeddingBag's tables", default=None,
    )  # fmt: skip
    add_launcher_flags(flags)
    flags.flag(
        # Given by the launcher: go on from the newest snapshot written since then, if there is one.
        "restarted", SUPPRESS, type=seconds, metavar="TIME",
    )  # fmt: skip
    flags.flag("json_log", "append one JSON object a line for each iteration, test and snapshot", metavar="FILE")
    add_timeline_flags(flags)
    flags.flag("tensorboard", "write TensorBoard events into this folder (needs tensorboardX)", metavar="DIR")
    flags.flag("log_dir", "write each rank's log into a file of its own in this folder too", metavar="DIR")
    add_data_flags(flags)
    flags.switch("dry_run", "try it out: build, one test batch, one step, one snapshot; leaves nothing behind")
    flags.switch("progress", "show a progress line also in a pipe or under a launcher", default=None)
    flags.switch("no_progress", "log Caffe's lines also on a terminal", action="store_false", dest="progress")
    flags.switch("strict", "refuse unknown fields in prototxt files instead of warning")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Train, and return 75 if a signal stopped it."""
    path = require(flags, "solver", "the solver")
    if flags.requeue:
        check_requeue(flags.snapshot)
    if is_launcher(flags):
        from mgcaffe.tools.launcher.launcher import launch

        return launch(flags)
    session.watch = watch = RankWatch(flags)
    try:
        communicator = session.connect()
        if flags.dry_run:
            with loading():
                from mgcaffe.tools.running.dry_run import dry_run

            return dry_run(flags, path, communicator, watch)
        with loading():
            from mgcaffe.tools.running.training_run import train

        return train(flags, path, communicator, watch)
    finally:
        watch.requests.end()
