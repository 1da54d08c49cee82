"""`engine time`: how long each layer takes, forward and backward (Caffe: `caffe time`, in its lines).

Layer by layer, so that each can be timed: the blobs have training's memory format, but training fuses neighbours
and frees what is dead, and is somewhat faster. Where `--input_shape` gives the shape of a data source the net is fed
noise instead, so no data is needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import EXIT_OK, UsageError
from mgcaffe.tools.flags.computing_flags import add_autotune_flag, add_machine_flags, add_precision_flag
from mgcaffe.tools.flags.net_flags import add_model_flags, add_shape_flag
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, require
from mgcaffe.tools.layer_times import LayerTimes, costliest_line, measure_layers
from mgcaffe.tools.listeners.glog import log_line, number
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.net import Net
    from mgcaffe.solvers.setup.autotune import Tuning

_log = logging.getLogger(__name__)


def parser() -> FlagParser:
    """Return the flags of `engine time`."""
    flags = FlagParser(
        "time",
        "Time each layer of a net, forward and backward. Needs no data where --input_shape says its shape.",
        subject="model",
        epilog="example:\n  engine time models/lenet/train_val.prototxt --input_shape 1,28,28",
    )
    add_model_flags(flags)
    add_shape_flag(flags)
    add_machine_flags(flags)
    add_precision_flag(flags)
    add_autotune_flag(flags)
    flags.flag("phase", "the phase to build the net for", choices=("TRAIN", "TEST"), default="TRAIN")
    flags.flag("iterations", "passes to take the mean of", type=number_from(1), default=50, metavar="N")
    flags.flag("json", "write the figures to this file", metavar="FILE")
    flags.flag(
        "trace",
        "time the net as training runs it as well, and write it to this file for `engine simulate`",
        metavar="FILE",
    )
    flags.flag(
        "loads",
        "count the rows that passes look up in each table as well, and write them to this file for `engine train "
        "--embedding_loads`",
        metavar="FILE",
    )
    return flags


def run(flags: Flags, session: Session) -> int:
    """Time the net and print Caffe's lines."""
    session.refuse_ranks("time")
    with loading():
        from mgcaffe.solvers.tables.loads import count_loads, write_loads
        from mgcaffe.tools.commands.summary import write_json
        from mgcaffe.tools.data_times import measure_data
        from mgcaffe.tools.listeners.glog import start_logging
        from mgcaffe.tools.model import build_net
        from mgcaffe.tools.running.process import dtype_named, pick_device, pick_precision, set_threads, speed_up_memory

    model = require(flags, "model", "the net")
    start_logging(speaks=True)
    speed_up_memory()
    threads = set_threads(flags.threads, 1)
    device = pick_device(flags.gpu)
    log_line("Use CPU." if device.type == "cpu" else f"Use GPU with device ID {device.index}", "caffe.cpp:339")
    options: dict[str, Any] = {"dtype": dtype_named(flags.dtype), "device": device}
    options["precision"] = pick_precision(flags.precision, **options)
    if flags.precision:
        log_line(f"Products are computed in {flags.precision}.")
    net = build_net(flags, model, flags.phase, noise=True, preferred_format=True, **options)
    try:
        if flags.loads and not net.arena.tables:
            raise UsageError(
                "--loads counts the rows that are looked up in tables, and the net has no layer of type EmbeddingBag",
                hint="leave --loads out",
            )
        tuning = _tune(net, flags.autotune)
        layers, totals = measure_layers(net, flags.iterations)
        loads = count_loads(net, flags.iterations) if flags.loads else []
        data = measure_data(net, flags.iterations)
    finally:
        net.close()
    _report(layers, totals)
    for times in data:
        for line in times.lines(_without(layers, times.name)):
            log_line(line)
    if tuning is not None:
        _report_candidates(tuning)
    for load in loads:
        log_line(f"Table '{load.table}': a pass looks up {number(load.rows)} rows, {number(load.distinct)} different")
    if flags.loads:
        write_loads(flags.loads, loads, [f"{net.name or model}: means of {flags.iterations} passes"])
    if flags.trace:
        _write_trace(flags, model, options)
    if flags.json:
        found = figures(net.name, layers, totals, threads, tuning, options["precision"].name)
        write_json(flags.json, found | {"data": [times.figures() for times in data]})
    return EXIT_OK


def _tune(net: Net, setting: str | None) -> Tuning | None:
    """Have the net compute as is fastest here, and return what was found; None where it follows the rules."""
    from mgcaffe.engine.kernels.choice.choices import Recorded
    from mgcaffe.engine.tuning import let_cudnn_measure
    from mgcaffe.solvers.setup.autotune import OFF, tune_net

    if setting in (None, "", OFF):
        return None
    let_cudnn_measure(net.device, True)
    tuning = tune_net(net, setting, _log.warning)
    log_line(tuning.summary)
    net.context.choices = Recorded(tuning.records)
    return tuning


def _report_candidates(tuning: Tuning) -> None:
    """Show each layer's candidates with their times, the chosen one first."""
    log_line("Candidates of each layer, the chosen one first: ")
    for layer in tuning.layers:
        for text in layer.operations:
            measured = tuning.records[text]
            order = sorted(measured.seconds, key=lambda name: (name != measured.chosen, measured.seconds[name]))
            times = (
                f"{name}{' (by rule)' if name == measured.rule else ''} {number(1e3 * measured.seconds[name])} ms"
                for name in order
            )
            log_line(f"{layer.name:>10}\t{text.partition(':')[0]}: {', '.join(times)}")


def _write_trace(flags: Flags, model: str, options: dict[str, Any]) -> None:
    """Time the net once more, as training runs it, so that `engine simulate` predicts training."""
    from mgcaffe.comm.planning.trace import write_trace
    from mgcaffe.tools.model import build_net
    from mgcaffe.tools.net_trace import measure_trace

    net = build_net(flags, model, flags.phase, noise=True, keep_blobs=False, **options)
    try:
        trace = measure_trace(net, flags.iterations)
    finally:
        net.close()
    write_trace(flags.trace, trace, [f"{net.name or model} on {net.device}: medians of {flags.iterations} passes"])


def _report(layers: list[LayerTimes], totals: list[float]) -> None:
    log_line("Average time per layer: ", "caffe.cpp:398")
    for layer in layers:
        log_line(f"{layer.name:>10}\tforward: {number(layer.forward_ms)} ms.", "caffe.cpp:401")
        log_line(f"{layer.name:>10}\tbackward: {number(layer.backward_ms)} ms.", "caffe.cpp:404")
    forward = sum(layer.forward_ms for layer in layers)
    backward = sum(layer.backward_ms for layer in layers)
    log_line(f"Average Forward pass: {number(forward)} ms.", "caffe.cpp:409")
    log_line(f"Average Backward pass: {number(backward)} ms.", "caffe.cpp:411")
    log_line(f"Average Forward-Backward: {number(1e3 * sum(totals) / len(totals))} ms.", "caffe.cpp:413")
    log_line(f"Total Time: {number(1e3 * sum(totals))} ms.", "caffe.cpp:415")
    log_line("*** Benchmark ends ***", "caffe.cpp:416")
    log_line(costliest_line(layers))


def _without(layers: list[LayerTimes], name: str) -> float:
    """Return the seconds that all layers but one take, forward and backward."""
    return sum(layer.forward_ms + layer.backward_ms for layer in layers if layer.name != name) / 1e3


def figures(
    name: str,
    layers: list[LayerTimes],
    totals: list[float],
    threads: int,
    tuning: Tuning | None = None,
    precision: str = "float32",
) -> dict[str, object]:
    """Return the figures for machines; milliseconds, means and minima over the iterations."""
    candidates = {} if tuning is None else {"candidates": _candidates(tuning)}
    return candidates | {
        "net": name,
        "iterations": len(totals),
        "threads": threads,
        "precision": precision,
        "forward_ms": sum(layer.forward_ms for layer in layers),
        "backward_ms": sum(layer.backward_ms for layer in layers),
        "forward_backward_ms": 1e3 * sum(totals) / len(totals),
        "forward_backward_min_ms": 1e3 * min(totals),
        "layers": [
            {
                "name": layer.name,
                "type": layer.type,
                "forward_ms": layer.forward_ms,
                "backward_ms": layer.backward_ms,
                "forward_min_ms": 1e3 * min(layer.forward),
                "backward_min_ms": 1e3 * min(layer.backward),
            }
            for layer in layers
        ],
    }


def _candidates(tuning: Tuning) -> list[dict[str, object]]:
    return [
        {
            "layer": layer.name,
            "operation": text,
            "chosen": tuning.records[text].chosen,
            "rule": tuning.records[text].rule,
            "ms": {name: 1e3 * seconds for name, seconds in tuning.records[text].seconds.items()},
        }
        for layer in tuning.layers
        for text in layer.operations
    ]
