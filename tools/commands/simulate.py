"""`engine simulate`: replays a trace on any number of workers and compares the schedules; or replicas kept together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_OK, CommError, UsageError
from mgcaffe.tools.flags.comm_flags import SCHEDULES
from mgcaffe.tools.flags.parsing import FlagParser, Flags, positive_float, require, words_list
from mgcaffe.tools.flags.workers import worker_counts
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.scaling.flags import SCALING_FLAGS, add_scaling_flags, exchange_of, refuse_unused, syncs, training_of
from mgcaffe.tools.table import format_table

if TYPE_CHECKING:
    from mgcaffe.comm.planning.networks import Network
    from mgcaffe.comm.planning.simulator import Result
    from mgcaffe.comm.planning.trace import Trace

_PLANNED = tuple(name for name in SCHEDULES if name != "auto")
_DEFAULT_SCHEDULES = ["wfbp", "single", "threshold", "mgwfbp", "optimal"]
# What means nothing with --sync.
_SCHEDULE_FLAGS = ("workers", "schedules", "bucket_mb")


def parser() -> FlagParser:
    """Return the flags of `engine simulate`."""
    flags = FlagParser(
        "simulate",
        "Predict speedups on any number of workers from one worker's trace and the cost of an all-reduce;\n"
        "with --sync, examples per second of trainers whose replicas are kept together.",
        subject="trace",
        epilog=(
            "example:\n"
            "  engine time net.prototxt --input_shape 1,28,28 --trace net.csv\n"
            "  engine simulate net.csv --network ring:alpha=45.25e-6,beta=9.93e-10,gamma=2.5e-9 --plot net.png\n"
            "  engine simulate --sync=all --iteration_ms 20 --batch 200 --parameter_bytes 1900000 --bandwidth 25gbit"
        ),
    )
    flags.flag("trace", "layers, elements and backward times (CSV; `engine time --trace` writes it)", metavar="FILE")
    add_network_flag(flags)
    flags.flag(
        "workers",
        "how many: 8 or 4,8,...,2048 or 4:2048:2x or 16:64:16 (plus 16)",
        type=worker_counts,
        default="4,8,...,2048",
        metavar="LIST",
    )
    flags.flag(
        "schedules",
        f"which, separated by commas, of {', '.join(_PLANNED)}",
        type=words_list,
        default=",".join(_DEFAULT_SCHEDULES),
        metavar="LIST",
    )
    add_model_of_time_flags(flags)
    flags.flag(
        "backward_scale", "the machine takes so many times as long as the trace says (0.1: it is ten times as fast)",
        type=positive_float, default=1.0, metavar="X",
    )  # fmt: skip
    flags.flag("json", "write the results to this file", metavar="FILE")
    flags.flag("plot", "draw the results into this file (.png, .svg or .pdf)", metavar="FILE")
    add_scaling_flags(flags)
    return flags


def add_network_flag(flags: FlagParser) -> None:
    """Add `--network`."""
    flags.flag(
        "network",
        "the cost of an all-reduce: ring:alpha=SECONDS,beta=S_PER_BYTE,gamma=S_PER_BYTE, likewise recursive_doubling, "
        "recursive_halving_doubling, binary_tree and double_binary_trees; affine:a=S,b=S_PER_BYTE at any number of "
        "workers; or a file of measured costs (.json, or .csv with nodes,bytes,latency_us)",
        metavar="NETWORK",
    )


def add_model_of_time_flags(flags: FlagParser) -> None:
    """Add what the prediction of an iteration depends on beside trace and network."""
    flags.flag(
        "forward_ratio",
        "forward time over backward time; otherwise the forward time that the trace tells, or 0.5",
        type=positive_float,
        metavar="X",
    )
    flags.flag(
        "bucket_mb", "size of a group of the schedule threshold, in MiB",
        type=positive_float, default=25.0, metavar="MB",
    )  # fmt: skip


def run(flags: Flags, session: Session) -> int:
    """Print the table, and write and draw what was asked for."""
    session.refuse_ranks("simulate")
    given = [word.partition("=")[0].lstrip("-") for word in flags.words]
    if flags.sync:
        _refuse(given, _SCHEDULE_FLAGS, "goes with schedules of gradients, and --sync predicts none")
        names = syncs(flags)
        refuse_unused(flags, given, names)
        return _run_scaling(flags, names)
    _refuse(given, SCALING_FLAGS, "goes with --sync")
    path = require(flags, "trace", "the trace")
    check_schedules(flags.schedules)
    from mgcaffe.comm.planning.networks import parse_network
    from mgcaffe.comm.planning.simulator import simulate
    from mgcaffe.comm.planning.trace import read_trace
    from mgcaffe.tools.commands.summary import write_json
    from mgcaffe.tools.speedup_plot import plot_speedups, require_matplotlib

    if not flags.network:
        raise UsageError("the network is missing", hint="give --network, such as ring:alpha=45e-6,beta=1e-9")
    network = parse_network(flags.network)
    if flags.plot:
        require_matplotlib()
    trace = read_trace(path).scaled(flags.backward_scale)
    results = simulate(
        trace,
        network,
        flags.workers,
        flags.schedules,
        forward_ratio=flags.forward_ratio,
        bucket_bytes=flags.bucket_mb * 2**20,
    )
    print(f"{trace_line(path, trace, flags.forward_ratio)}\n{_network_line(network)}\n\n{_table(results)}")
    if flags.json:
        write_json(flags.json, [asdict(result) for result in results])
    if flags.plot:
        scale = f" (times x {flags.backward_scale:g})" if flags.backward_scale != 1 else ""
        plot_speedups(flags.plot, results, f"{Path(path).name}{scale}, {flags.network}")
    return EXIT_OK


def _refuse(given: Sequence[str], names: Sequence[str], why: str) -> None:
    for name in given:
        if name in names:
            raise UsageError(f"--{name} {why}", hint="see 'engine simulate --help' for the flags")


def _run_scaling(flags: Flags, names: Sequence[str]) -> int:
    """Do as `run` where replicas are kept together, by the systems of these names."""
    from mgcaffe.comm.planning.simulator import forward_seconds
    from mgcaffe.comm.planning.trace import read_trace
    from mgcaffe.comm.replicas.scaling import scale
    from mgcaffe.tools.commands.summary import write_json
    from mgcaffe.tools.scaling.measured import read_measured
    from mgcaffe.tools.scaling.output import heading, tables, write_csv
    from mgcaffe.tools.scaling.plot import plot_scaling
    from mgcaffe.tools.speedup_plot import require_matplotlib

    if flags.plot:
        require_matplotlib()
    trace = read_trace(flags.trace).scaled(flags.backward_scale) if flags.trace else None
    run = read_measured(flags.run) if flags.run else None
    training = training_of(flags, trace, forward_seconds(trace, flags.forward_ratio) if trace else 0.0, run)
    exchange = exchange_of(flags, trace, run)
    try:
        results = scale(
            names, flags.sync_every, flags.trainers, training, exchange, interval_s=flags.sync_interval_ms / 1e3
        )
    except CommError as error:
        if error.exit_code == EXIT_BAD_INPUT:  # of a file of measured costs
            raise
        raise UsageError(error.message, hint=error.hint) from None
    print(f"{heading(training, exchange)}\n\n{tables(results)}")
    if flags.json:
        write_json(flags.json, [asdict(result) for result in results])
    if flags.csv:
        write_csv(flags.csv, results)
    if flags.plot:
        plot_scaling(flags.plot, results, heading(training, exchange))
    return EXIT_OK


def check_schedules(names: Sequence[str]) -> None:
    """Make sure that these schedules can be predicted.

    Raises:
        UsageError: none, an unknown one, or `auto`, which has to try its candidates in training.
    """
    for name in names:
        if name == "auto":
            raise UsageError("schedule 'auto' tries real iterations and cannot be predicted", hint="take 'optimal'")
        if name not in _PLANNED:
            raise UsageError(f"unknown schedule '{name}'", hint=f"schedules are {', '.join(_PLANNED)}")
    if not names:
        raise UsageError("no schedule is given", hint=f"schedules are {', '.join(_PLANNED)}")


def trace_line(path: str, trace: Trace, forward_ratio: float | None) -> str:
    """Return the trace to be replayed."""
    from mgcaffe.comm.planning.simulator import forward_seconds

    layers = sum(layer.elements > 0 for layer in trace.layers)
    return (
        f"{path}: {layers} layers with {trace.elements:,} parameters ({trace.elements * 4 / 2**20:.2f} MiB); "
        f"forward {1e3 * forward_seconds(trace, forward_ratio):.2f} ms, backward {1e3 * trace.backward_s:.2f} ms"
    )


def _network_line(network: Network) -> str:
    from mgcaffe.comm.planning.networks import FixedNetwork

    fixed = ", the same at any number of workers" if isinstance(network, FixedNetwork) else ""
    return f"network {network.name}{fixed}"


def _table(results: Sequence[Result]) -> str:
    headers = ("workers", "schedule", "groups", "iteration", "exposed", "speedup", "efficiency")
    rows = [
        (
            str(result.workers),
            result.schedule,
            str(result.groups),
            f"{1e3 * result.iteration_s:.2f} ms",
            f"{1e3 * result.exposed_s:.2f} ms",
            f"{result.speedup:.2f}",
            f"{100 * result.speedup / result.workers:.1f} %",
        )
        for result in results
    ]
    return format_table(headers, rows, right=[name for name in headers if name != "schedule"])
