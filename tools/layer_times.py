"""How long each layer of a net takes, forward and backward, in the lines of `caffe time`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mgcaffe.tools.listeners.glog import log_line, number

if TYPE_CHECKING:
    from mgcaffe.engine.net import Net

_COSTLIEST = 3


@dataclass
class LayerTimes:
    """What was measured of one layer, in seconds, one entry for each iteration."""

    name: str
    type: str
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)

    @property
    def forward_ms(self) -> float:
        """Mean of the forward passes in ms."""
        return 1e3 * sum(self.forward) / len(self.forward)

    @property
    def backward_ms(self) -> float:
        """Mean of the backward passes in ms."""
        return 1e3 * sum(self.backward) / len(self.backward)


def measure_layers(net: Net, iterations: int) -> tuple[list[LayerTimes], list[float]]:
    """Time each layer of `iterations` passes, after one that is not counted.

    Returns:
        The layers in order, and the seconds of each iteration.
    """
    log_line("Performing Forward", "caffe.cpp:352")
    log_line(f"Initial loss: {number(net.forward())}", "caffe.cpp:357")
    log_line("Performing Backward", "caffe.cpp:358")
    net.backward()
    log_line("*** Benchmark begins ***", "caffe.cpp:366")
    log_line(f"Testing for {iterations} iterations.", "caffe.cpp:367")
    layers = [LayerTimes(layer.name, layer.type) for layer in net.layers]
    totals = []
    synchronize = _synchronizer(net)
    synchronize()  # or the first layer's time would hold the passes before
    for iteration in range(iterations):
        net.clear_param_diffs()
        started = time.perf_counter()
        for index, layer in enumerate(layers):
            layer.forward.append(_seconds(partial(net.forward, index, index + 1), synchronize))
        for index in reversed(range(len(layers))):
            seconds = _seconds(partial(net.backward, start=index, end=index), synchronize)
            layers[index].backward.append(seconds)
        totals.append(time.perf_counter() - started)
        log_line(
            f"Iteration: {iteration + 1} forward-backward time: {number(1e3 * totals[-1])} ms.",
            "caffe.cpp:395",
        )
    return layers, totals


def _synchronizer(net: Net) -> Callable[[], object]:
    """Return what has to be called before the clock is read: a GPU runs behind the program."""
    if net.device.type == "cpu":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(net.device)


def _seconds(step: Callable[[], object], synchronize: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - started


def costliest_line(layers: list[LayerTimes]) -> str:
    """Name the layers where the time goes."""
    total = sum(layer.forward_ms + layer.backward_ms for layer in layers) or 1.0
    costliest = sorted(layers, key=lambda layer: layer.forward_ms + layer.backward_ms, reverse=True)
    shares = (
        f"{layer.name} ({layer.type}) {100 * (layer.forward_ms + layer.backward_ms) / total:.1f} %"
        for layer in costliest[:_COSTLIEST]
    )
    return f"Costliest layers: {', '.join(shares)}"
