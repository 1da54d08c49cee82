"""The flags of `engine simulate --sync`, and what they describe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgcaffe.errors import UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, positive_float, words_list
from mgcaffe.tools.flags.workers import worker_counts

if TYPE_CHECKING:
    from mgcaffe.comm.planning.networks import Network
    from mgcaffe.comm.planning.trace import Trace
    from mgcaffe.comm.replicas.workload import Exchange, Training
    from mgcaffe.tools.scaling.measured import MeasuredRun

SCALING_FLAGS = (
    "run", "trainers", "sync_every", "iteration_ms", "batch", "hogwild_threads", "parameter_bytes", "sync_ms",
    "sync_processor_ms", "bandwidth", "latency_us", "sync_servers", "sync_groups", "sync_interval_ms", "spread",
    "straggler_ms", "csv",
)  # fmt: skip
"""Those that mean something with `--sync` alone."""
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}


def add_scaling_flags(flags: FlagParser) -> None:
    """Add `--sync` and the flags that go with it."""
    flags.flag(
        "sync",
        "predict trainers whose replicas are kept together, instead of gradients averaged in step: names separated by "
        "commas of none, ma, bmuf, easgd, ds_sync, shadow_ma, shadow_bmuf and shadow_easgd; or all; see "
        "docs/shadowsync.md for the model. The flags that follow go with it",
        type=words_list,
        default=[],
        metavar="LIST",
    )
    flags.flag(
        "run", "JSON log of a run under --sync=ma: gives what is left out of time, batch, size and time of a "
        "synchronization (engine train --json_log)",
        metavar="FILE",
    )  # fmt: skip
    flags.flag(
        "trainers", "how many, written as --workers is; 5,10,20,...,500 goes on by 1, 2 and 5",
        type=worker_counts, default="5,10,20,...,500", metavar="LIST",
    )  # fmt: skip
    flags.flag(
        "sync_every", "iterations from one synchronization to the next in the foreground: numbers separated by commas",
        type=_numbers, default="1,5,30,100", metavar="LIST",
    )  # fmt: skip
    flags.flag(
        "iteration_ms", "time of a worker's iteration without synchronization; otherwise that of the trace or run",
        type=positive_float, metavar="MS",
    )  # fmt: skip
    flags.flag("batch", "examples in an iteration", type=number_from(1), metavar="N")
    flags.flag(
        "hogwild_threads", "workers of each trainer, each with a core of its own; otherwise those of the run, or one",
        type=number_from(1), metavar="N",
    )  # fmt: skip
    flags.flag(
        "parameter_bytes", "size of the parameters that are synchronized; otherwise that of the trace or run",
        type=number_from(1), metavar="N",
    )  # fmt: skip
    flags.flag(
        "sync_ms", "time of a synchronization as it was measured, taken to be the same with any number of trainers; "
        "instead of --network",
        type=positive_float, metavar="MS",
    )  # fmt: skip
    flags.flag(
        "sync_processor_ms",
        "processor time of it in each trainer, which the background takes from the workers; otherwise that of the run, "
        "or 0",
        type=_from_zero, metavar="MS",
    )  # fmt: skip
    flags.flag(
        "bandwidth", "speed of every host's link, as 25gbit or 100mbit; without --network and --sync_ms for a ring",
        type=bandwidth, metavar="RATE",
    )  # fmt: skip
    flags.flag(
        "latency_us", "time that a message takes besides, with --bandwidth",
        type=_from_zero, default=0.0, metavar="US",
    )  # fmt: skip
    flags.flag(
        "sync_servers", "synchronization servers that hold the centre of EASGD; without them the trainers hold it",
        type=number_from(0), default=0, metavar="N",
    )  # fmt: skip
    flags.flag(
        "sync_groups", "groups of ds_sync", choices=("factors", "grid", "hypercube"), default="factors"
    )  # fmt: skip
    flags.flag(
        "sync_interval_ms", "least time from the start of a background synchronization to the next",
        type=_from_zero, default=0.0, metavar="MS",
    )  # fmt: skip
    flags.flag(
        "spread", "standard deviation of the times of iterations, in parts of their mean, from 0 to 1",
        type=_share, default=0.0, metavar="X",
    )  # fmt: skip
    flags.flag(
        "straggler_ms", "time that each iteration of one of the trainers takes longer",
        type=_from_zero, default=0.0, metavar="MS",
    )  # fmt: skip
    flags.flag("csv", "write the results of --sync to this table", metavar="FILE")


def syncs(flags: Flags) -> list[str]:
    """Return the names that `--sync` gives, in lower case.

    Raises:
        UsageError: an unknown one, or `gradients`.
    """
    from mgcaffe.comm.replicas.workload import SYNCS

    names: list[str] = []
    for name in flags.sync:
        names += SYNCS if name.lower() == "all" else [name.lower()]
    names = list(dict.fromkeys(names))
    for name in names:
        if name == "gradients":
            raise UsageError("--sync=gradients is what a trace and --network alone simulate", hint="leave --sync out")
        if name not in SYNCS:
            raise UsageError(f"--sync: unknown '{name}'", hint=f"there are {', '.join(SYNCS)}, or all")
    return names


def refuse_unused(flags: Flags, given: Sequence[str], names: Sequence[str]) -> None:
    """Make sure that the prediction reads each flag that is given.

    Args:
        flags: their values.
        given: their names.
        names: the systems to predict, as `syncs` returns them.

    Raises:
        UsageError: one would be ignored.
    """
    from mgcaffe.comm.replicas.workload import BACKGROUND, FOREGROUND

    in_front, behind = any(name in FOREGROUND for name in names), any(name in BACKGROUND for name in names)
    has_easgd = any(name.endswith("easgd") for name in names)
    is_served = bool(flags.sync_servers) and has_easgd
    is_served_alone = is_served and all(name == "none" or name.endswith("easgd") for name in names)
    is_traced = bool(flags.trace) and not flags.iteration_ms
    another_time = "the time of an iteration is not that of a trace"
    no_all_reduce = "trainers exchange with servers alone, on links of --bandwidth"
    unused = {
        "network": (is_served_alone, no_all_reduce),
        "sync_ms": (is_served_alone, no_all_reduce),
        "bandwidth": (
            bool(flags.network or flags.sync_ms) and not is_served,
            "--network or --sync_ms says what a synchronization takes",
        ),
        "latency_us": (not flags.bandwidth, "it goes with --bandwidth"),
        "sync_servers": (bool(flags.sync_servers) and not has_easgd, "--sync names neither easgd nor shadow_easgd"),
        "sync_groups": ("ds_sync" not in names, "--sync does not name ds_sync"),
        "sync_every": (not in_front, "--sync names nothing in the foreground"),
        "sync_interval_ms": (not behind, "--sync names nothing in the background"),
        "forward_ratio": (not is_traced, another_time),
        "backward_scale": (not is_traced, another_time),
    }
    for name, (is_unused, why) in unused.items():
        if name in given and is_unused:
            raise UsageError(f"--{name} would not be used: {why}", hint="leave it out, or see docs/shadowsync.md")


def training_of(flags: Flags, trace: Trace | None, forward_s: float, run: MeasuredRun | None) -> Training:
    """Return how a trainer trains by itself, by the flags or else the trace or the run.

    Raises:
        UsageError: the time of an iteration or the batch is missing.
        CommError: values that make no sense together.
    """
    from mgcaffe.comm.replicas.workload import Training

    if flags.iteration_ms:
        iteration_s = flags.iteration_ms / 1e3
    elif trace is not None:
        iteration_s = forward_s + trace.backward_s
    elif run is not None:
        iteration_s = run.iteration_s
    else:
        raise UsageError("the time of an iteration is missing", hint="give --iteration_ms, a trace or a --run")
    batch = flags.batch or (run.batch if run is not None else None)
    if batch is None:
        raise UsageError("the number of examples in an iteration is missing", hint="give --batch")
    workers = flags.hogwild_threads or (run.workers if run is not None else 1)
    return Training(iteration_s, batch, workers, flags.spread, flags.straggler_ms / 1e3)


def exchange_of(flags: Flags, trace: Trace | None, run: MeasuredRun | None) -> Exchange:
    """Return what brings replicas together, by the flags or else the trace or the run.

    Raises:
        UsageError: what a synchronization takes, the size of the parameters or the servers' bandwidth is missing, or
            there are two.
        DataError: a file of measured costs that is none.
    """
    from mgcaffe.comm.replicas.workload import Exchange

    size = flags.parameter_bytes or (4 * trace.elements if trace is not None else 0)
    if not size and run is not None:
        size = run.parameter_bytes
    if not size:
        raise UsageError("the size of the parameters is missing", hint="give --parameter_bytes, a trace or a --run")
    if flags.sync_servers and not flags.bandwidth:
        raise UsageError("--sync_servers needs the speed of their links", hint="give --bandwidth, such as 25gbit")
    processor_s = run.processor_s if run is not None else 0.0
    if flags.sync_processor_ms is not None:
        processor_s = flags.sync_processor_ms / 1e3
    return Exchange(
        size,
        _network(flags, run, processor_s),
        processor_s=processor_s,
        servers=flags.sync_servers,
        bandwidth=flags.bandwidth,
        latency_s=flags.latency_us / 1e6,
        groups=flags.sync_groups,
    )


def _network(flags: Flags, run: MeasuredRun | None, processor_s: float) -> Network:
    from mgcaffe.comm.planning.cost import AffineCost
    from mgcaffe.comm.planning.networks import AlgorithmNetwork, FixedNetwork, Link, parse_network

    if flags.network and flags.sync_ms:
        raise UsageError("--network and --sync_ms both say what a synchronization takes", hint="give one of them")
    if flags.network:
        return parse_network(flags.network)
    if flags.sync_ms:
        return FixedNetwork(f"{flags.sync_ms:g} ms", AffineCost(flags.sync_ms / 1e3, 0.0))
    if not flags.bandwidth and run is not None:
        waiting_s = max(0.0, run.sync_s - processor_s)
        return FixedNetwork(f"{1e3 * waiting_s:.3g} ms as in the run", AffineCost(waiting_s, 0.0))
    if not flags.bandwidth:
        raise UsageError(
            "what a synchronization takes is missing",
            hint="give --network, such as ring:alpha=45e-6,beta=1e-9, or --bandwidth, --sync_ms or a --run",
        )
    return AlgorithmNetwork("ring", Link(flags.latency_us / 1e6, 1 / flags.bandwidth))


def bandwidth(text: str) -> float:
    """Read `25gbit`, in bits per second as `tc` does, and return bytes per second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]bit)", text.strip().lower())
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is not a speed such as 25gbit or 100mbit")
    return float(match[1]) * _UNITS[match[2]] / 8


def _numbers(text: str) -> list[int]:
    numbers = [number_from(1)(word) for word in words_list(text)]
    if not numbers:
        raise argparse.ArgumentTypeError("no number is given")
    return sorted(set(numbers))


def _from_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is below 0 or not finite")
    return number


def _share(text: str) -> float:
    number = _from_zero(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1")
    return number
