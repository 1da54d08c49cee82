"""Makes a trace of a net: its layers with gradients, and how long they took on this machine."""

from __future__ import annotations

import statistics

from mgcaffe.comm.planning.trace import Trace, TraceLayer, fold
from mgcaffe.engine.net import Net
from mgcaffe.solvers.monitor.stopwatch import Stopwatch


def measure_trace(net: Net, passes: int) -> Trace:
    """Run a net as training does (built with `keep_blobs=False`), and give the medians of what was measured.

    Args:
        net: the net; one pass more than asked for is run and not counted.
        passes: how many to take the medians of.
    """
    forward: list[float] = []
    backward: list[list[float]] = []
    order: list[int] = []
    stopwatch = Stopwatch(net.device)

    def layer_done(index: int) -> None:
        stopwatch.lap()
        order.append(index)

    for _ in range(passes + 1):
        net.clear_param_diffs()
        order.clear()
        stopwatch.start()
        net.forward()
        stopwatch.lap()
        net.backward(layer_done)
        seconds, *laps = stopwatch.laps()
        forward.append(seconds)
        backward.append(laps)
    elements = {index: count for _, index, _, count in net.arena.segments()}
    medians = [statistics.median(laps) for laps in zip(*backward[1:], strict=True)]
    layers = [
        TraceLayer(net.layers[index].name, elements.get(index, 0), seconds)
        for index, seconds in zip(order, medians, strict=True)
    ]
    return Trace(fold(reversed(layers)), statistics.median(forward[1:]))
