"""`engine plan`: what every schedule would take for a net, an all-reduce's cost and a number of workers.

The backward times come from a trace, or from running the net a few times on noise. A plan can be written to a
file, edited, and handed to `engine train --plan_file`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import EXIT_OK, DataError, Location, UsageError
from mgcaffe.errors.file_names import found_name
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.commands.simulate import add_model_of_time_flags, add_network_flag, check_schedules, trace_line
from mgcaffe.tools.flags.computing_flags import add_machine_flags, add_precision_flag
from mgcaffe.tools.flags.net_flags import add_model_flags, add_shape_flag
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, words_list
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.table import format_bytes, format_table

if TYPE_CHECKING:
    from mgcaffe.comm.planning.cost import Cost
    from mgcaffe.comm.planning.plan import Plan, Segment
    from mgcaffe.comm.planning.plan_file import PlanBasis
    from mgcaffe.comm.planning.simulator import Result
    from mgcaffe.comm.planning.trace import Trace

_SOLVER_FIELD = re.compile(r"^\s*(net|train_net|base_lr|lr_policy|max_iter)\s*:", re.MULTILINE)
_HEAD = 1 << 16
_NET_FIELD = re.compile(r"^\s*layers?\s*:?\s*\{", re.MULTILINE)


def parser() -> FlagParser:
    """Return the flags of `engine plan`."""
    flags = FlagParser(
        "plan",
        "Predict every schedule's iteration for a net (or the net of a solver), the cost of an all-reduce and a\n"
        "number of workers. Without --trace the net runs a few times; it needs no data where --input_shape says\n"
        "its shape.",
        subject="model",
        epilog=(
            "examples:\n"
            "  engine plan net.prototxt --input_shape 1,28,28 --network ring:alpha=45e-6,beta=1e-9 --workers 16\n"
            "  engine plan solver.prototxt --cost cost.json --workers 4 --schedule optimal --export plan.json\n"
            "  mpirun -n 4 engine train solver.prototxt --plan_file plan.json"
        ),
    )
    add_model_flags(flags)
    add_shape_flag(flags)
    flags.flag("trace", "backward times of the layers (CSV) instead of running the net", metavar="FILE")
    flags.flag(
        "cost",
        "measured costs of an all-reduce (.json, as `engine train --cost_file` writes it, or .csv with "
        "nodes,bytes,latency_us)",
        metavar="FILE",
    )
    flags.flag(
        "emulate_link", "the link that `engine train --emulate_link` emulates, as a=9.08e-4,b=7.40e-10", metavar="LINK"
    )
    add_network_flag(flags)
    flags.flag("workers", "how many workers train in step", type=number_from(1), metavar="N")
    flags.flag("schedule", "schedules to predict, separated by commas, or 'all'", type=words_list, default="all")
    add_model_of_time_flags(flags)
    flags.flag("iterations", "passes to take the backward times from", type=number_from(1), default=5, metavar="N")
    flags.flag("json", "write the predictions to this file", metavar="FILE")
    flags.flag("export", "write the schedule's plan to this file; of several, the one that ends first", metavar="FILE")
    add_machine_flags(flags)
    add_precision_flag(flags)
    return flags


def run(flags: Flags, session: Session) -> int:
    """Print the table, the groups of a single schedule, and write what was asked for."""
    session.refuse_ranks("plan")
    from mgcaffe.comm.planning.plan_file import PlanBasis
    from mgcaffe.comm.planning.schedules import SCHEDULES
    from mgcaffe.comm.planning.simulator import forward_seconds, predict
    from mgcaffe.tools.commands.summary import write_json

    schedules = list(SCHEDULES) if flags.schedule == ["all"] else flags.schedule
    check_schedules(schedules)
    if not (flags.model or flags.trace):
        raise UsageError(
            "the net is missing",
            hint="give a net's or solver's file, or --trace=FILE; besides --network or --cost, and --workers: "
            "engine plan net.prototxt --network=ring:alpha=45e-6,beta=1e-9 --workers=16",
        )
    cost = _cost(flags)
    trace, element_bytes, products = _trace(flags)
    segments, ready = trace.segments()
    basis = PlanBasis(segments, ready, cost, element_bytes)
    plans = [_plan(schedule, basis, trace, flags) for schedule in schedules]
    results = [predict(plan, flags.workers, forward_seconds(trace, flags.forward_ratio)) for plan in plans]
    if flags.precision:
        print(f"Backward passes are timed with products in {flags.precision}; gradients stay in float32.")
    print(trace_line(flags.model or flags.trace, trace, flags.forward_ratio))
    print(f"{_cost_line(cost, flags.workers)}\n\n{_table(plans, results)}")
    if products:
        print(f"\n{_products_line(products)}")
    if len(plans) == 1:
        print(f"\n{_groups_table(plans[0], segments)}")
    if flags.json:
        write_json(flags.json, [asdict(result) for result in results])
    if flags.export:
        _export(flags.export, min(plans, key=lambda plan: (plan.end, len(plan.groups))), basis)
    return EXIT_OK


def _cost(flags: Flags) -> Cost:
    """Return the cost of an all-reduce among the workers."""
    from mgcaffe.comm.exchange.emulation import parse_link
    from mgcaffe.comm.planning.networks import parse_network, read_network

    if sum(map(bool, (flags.cost, flags.network, flags.emulate_link))) != 1:
        raise UsageError(
            "give either --cost or --network (or --emulate_link)",
            hint="--cost=FILE was measured; --network=ring:alpha=45e-6,beta=1e-9 follows from an algorithm",
        )
    if flags.workers is None:
        raise UsageError("the number of workers is missing", hint="give --workers=N")
    if flags.emulate_link:
        return parse_link(flags.emulate_link)
    network = read_network(Path(flags.cost)) if flags.cost else parse_network(flags.network)
    return network.cost(flags.workers)


def _products_line(products: Mapping[str, tuple[int, int]]) -> str:
    """Return what training does otherwise with some gradients."""
    less, more = (sum(counts) for counts in zip(*products.values(), strict=True))
    return (
        "This is for the exchange of gradients. Without a plan file training may exchange those of the weights of\n"
        f"{', '.join(products)} as the matrices whose product they are: {less:,} values instead of {more:,}\n"
        "(docs/products.md)."
    )


def _trace(flags: Flags) -> tuple[Trace, int, Mapping[str, tuple[int, int]]]:
    """Return backward times, the bytes of an element, and the gradients that training exchanges as products.

    Times are from a trace, compared with the net if there is one.
    """
    from mgcaffe.comm.planning.trace import read_trace

    if flags.trace and flags.precision:
        raise UsageError(
            "--precision says how backward passes are timed, and --trace holds their times already",
            hint="leave one of them out; engine time --trace takes --precision",
        )
    if not flags.model:
        return read_trace(flags.trace), 4, {}
    with loading():
        from mgcaffe.solvers.update.kept_products import exchanged_as_products
        from mgcaffe.tools.model import build_net, build_outline
    from mgcaffe.tools.net_trace import measure_trace
    from mgcaffe.tools.running.process import dtype_named, pick_device, pick_precision, set_threads

    model = _net_of(flags)
    if flags.trace:
        net = build_outline(flags, model, "TRAIN")
    else:
        set_threads(flags.threads, 1)
        options: dict[str, Any] = {"dtype": dtype_named(flags.dtype), "device": pick_device(flags.gpu)}
        options["precision"] = pick_precision(flags.precision, **options)
        net = build_net(flags, model, "TRAIN", noise=True, keep_blobs=False, **options)
    try:
        if not net.arena.segments():
            raise UsageError(f"{model} has no layer that trains, so there is nothing to plan")
        products = exchanged_as_products(net, flags.workers) if flags.workers > 1 else {}
        if not flags.trace:
            return measure_trace(net, flags.iterations), net.arena.data.element_size(), products
        trace = read_trace(flags.trace)
        _compare(trace, [(name, count) for name, _, _, count in net.arena.segments()], flags.trace)
        return trace, 4, products
    finally:
        net.close()


def _net_of(flags: Flags) -> str:
    """Return the net's file; for a solver's the one that it trains, in the solver's state."""
    path = Path(flags.model)
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return str(path)  # whoever reads it next says what is wrong with it
    if "\0" in text[:_HEAD]:
        return str(path)  # a binary net
    if _NET_FIELD.search(text) or not _SOLVER_FIELD.search(text):
        return str(path)
    from mgcaffe.prototxt import read_solver_source

    solver = read_solver_source(path, strict=flags.strict).param
    net = solver.train_net or solver.net
    if not net:
        raise UsageError(f"{path} names no net", hint="give the net's own file")
    if not flags.trace and solver.HasField("precision"):
        flags.precision = flags.precision or solver.precision
    if flags.level is None and solver.train_state.HasField("level"):
        flags.level = solver.train_state.level
    flags.stage = flags.stage or list(solver.train_state.stage)
    return found_name(net)


def _compare(trace: Trace, layers: Sequence[tuple[str, int]], path: str) -> None:
    """Make sure that the trace is of this net.

    Raises:
        DataError: names the first difference.
    """
    traced = [(layer.name, layer.elements) for layer in trace.layers if layer.elements]
    for index, (theirs, ours) in enumerate(zip(traced, layers, strict=False)):
        if theirs != ours:
            raise DataError(
                f"the trace is of another net: layer {index} is '{theirs[0]}' with {theirs[1]} elements there, "
                f"'{ours[0]}' with {ours[1]} in the net",
                location=Location(path),
            )
    if len(traced) != len(layers):
        raise DataError(
            f"the trace is of another net: it has {len(traced)} layers with parameters, the net {len(layers)}",
            location=Location(path),
        )


def _plan(schedule: str, basis: PlanBasis, trace: Trace, flags: Flags) -> Plan:
    from mgcaffe.comm.planning.schedules import make_plan

    return make_plan(
        schedule,
        basis.segments,
        basis.ready,
        basis.cost,
        element_bytes=basis.element_bytes,
        bucket_bytes=flags.bucket_mb * 2**20,
        backward_end=trace.backward_s,
    )


def _cost_line(cost: Cost, workers: int) -> str:
    from mgcaffe.comm.planning.cost import AllReduceCost, line_error

    a, b, fit = cost.affine()
    kind = f"{a * 1e6:.4g} us + {b * 1e9:.4g} ns per byte"
    if isinstance(cost, AllReduceCost):
        mean, worst, where = line_error(cost)
        kind = (
            f"a measured curve, fitted by {kind} (R2 {fit:.3f}; the line is off by {100 * mean:.0f} % on average, "
            f"{100 * worst:.0f} % at {format_bytes(where)})"
        )
    return f"all-reduce among {workers} workers: {kind}"


def _table(plans: Sequence[Plan], results: Sequence[Result]) -> str:
    headers = ("schedule", "groups", "iteration", "communication", "hidden", "exposed", "speedup")
    rows = [
        (
            plan.schedule,
            str(len(plan.groups)),
            f"{1e3 * result.iteration_s:.2f} ms",
            f"{1e3 * plan.busy:.2f} ms",
            f"{1e3 * (plan.busy - plan.exposed):.2f} ms",
            f"{1e3 * plan.exposed:.2f} ms",
            f"{result.speedup:.2f}",
        )
        for plan, result in zip(plans, results, strict=True)
    ]
    return format_table(headers, rows, right=headers[1:])


def _groups_table(plan: Plan, segments: Sequence[Segment]) -> str:
    headers = ("group", "from", "down to", "layers", "size", "ready", "start", "end")
    rows = [
        (
            str(number),
            segments[group.last_segment].name,
            segments[group.first_segment].name,
            str(group.last_segment - group.first_segment + 1),
            format_bytes(group.bytes),
            *(f"{1e3 * when:.2f} ms" for when in (group.ready_at, group.start_at, group.end_at)),
        )
        for number, group in enumerate(plan.groups)
    ]
    return format_table(headers, rows, right=("group", "layers", "size", "ready", "start", "end"))


def _export(path: str, plan: Plan, basis: PlanBasis) -> None:
    from mgcaffe.comm.planning.plan_file import plan_text

    write_output(path, plan_text(plan, basis))
    print(f"\nPlan of schedule {plan.schedule} written to {path}")
