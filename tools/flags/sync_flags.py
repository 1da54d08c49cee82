"""The flags of `engine train` that say how trainers with replicas of their own train together."""

from __future__ import annotations

import argparse

from mgcaffe.tools.flags.parsing import FlagParser, number_from, positive_float

SYNCS = ("gradients", "none", "ma", "easgd", "bmuf", "ds_sync", "shadow_ma", "shadow_easgd", "shadow_bmuf")


def add_sync_flags(parser: FlagParser) -> None:
    """Add one flag for each field of `comm_param` that is about replicas."""
    parser.flag(
        "sync",
        "how ranks train together: gradients averages them in step; the others give each rank a replica of its own, "
        "kept together every few iterations (ma, easgd, bmuf, ds_sync), in the background (shadow_...) or not at all "
        "(none) (default: gradients)",
        choices=SYNCS,
    )
    parser.flag(
        "sync_every", "iterations from one synchronization to the next in the foreground (default: 5, ds_sync: 1)",
        type=number_from(1), metavar="K",
    )  # fmt: skip
    parser.flag(
        "alpha",
        "rate at which replicas move towards what they share (default: 1; in the background 0.5; easgd: 0.2, or "
        "1 / trainers if less)",
        type=positive_float, metavar="A",
    )  # fmt: skip
    parser.flag(
        "merge", "what replicas move by: the mean's increment over their snapshot, or interpolation with the mean, "
        "which takes away from what was learned meanwhile (default: increment)",
        choices=("increment", "interpolate"),
    )  # fmt: skip
    parser.flag(
        "block_momentum", "momentum of the global model of bmuf (default: 1 - 1 / trainers)",
        type=_number_from_zero, metavar="MU",
    )  # fmt: skip
    parser.flag(
        "block_lr", "learning rate of the global model of bmuf (default: 1)", type=positive_float, metavar="ETA"
    )
    parser.setting("block_nesterov", "let the global model of bmuf look ahead by its momentum")
    parser.flag(
        "sync_interval_ms", "least time from one background synchronization to the next (default: 0)",
        type=_number_from_zero, metavar="MS",
    )  # fmt: skip
    parser.flag(
        "sync_groups",
        "the groups in which trainers average under ds_sync: one round for each prime factor of their number, the "
        "rows and columns of a square grid, or the pairs of a hypercube (default: factors)",
        choices=("factors", "grid", "hypercube"),
    )
    parser.flag(
        "embeddings", "how ranks look up rows of tables that are divided among them: in step, all ranks at once "
        "(alltoall), or each when it needs them (async) (default: alltoall where gradients are averaged in step, else "
        "async)",
        choices=("alltoall", "async"),
    )  # fmt: skip
    parser.flag(
        "embedding_loads", "assign tables to ranks by this file's loads: a CSV with the columns table (the layer) and "
        "rows (looked up in a pass); without it, by the ids that a batch has room for",
        metavar="FILE",
    )  # fmt: skip
    parser.flag(
        "snapshot_tables", "how a snapshot holds tables that are divided among ranks or on embedding servers: in a "
        "file of each rank or server (sharded, the default), or whole, in the caffemodel, through rank 0's memory",
        choices=("sharded", "whole"),
    )  # fmt: skip
    parser.setting("snapshot_replicas", "let each trainer write its replica at each snapshot, not trainer 0 alone")
    parser.flag(
        "embedding_servers", "so many of the last ranks hold the tables of EmbeddingBag layers (default: 0)",
        type=number_from(0), metavar="N",
    )  # fmt: skip
    parser.flag(
        "lookahead", "batches whose rows embedding servers or other trainers look up before they are needed; 0 is "
        "exact (default: 1)",
        type=number_from(0), metavar="N",
    )  # fmt: skip
    parser.flag(
        "sync_servers", "so many of the last ranks hold the centre of easgd and shadow_easgd (default: 0)",
        type=number_from(0), metavar="N",
    )  # fmt: skip
    parser.flag(
        "on_trainer_loss",
        "whether the others go on when a trainer dies: stop (the default), or continue, for jobs with synchronization "
        "servers, under an MPI that survives a rank's death (-np switches that on); see docs/roles.md",
        choices=("stop", "continue"),
    )
    parser.flag(
        "hogwild_threads",
        "worker threads of each rank, which update one replica without locks; each reads batches of its own, and "
        "iterations count for each. Several ranks need a --sync other than gradients (default: 1)",
        type=number_from(1), metavar="M",
    )  # fmt: skip
    parser.setting("hogwild_lock", "let these workers update one at a time, for comparison")


def _number_from_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return number
