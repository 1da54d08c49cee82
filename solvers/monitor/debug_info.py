"""What `debug_info: true` shows of a displayed iteration: how large values and gradients are (Caffe: net.cpp).

After each layer's forward pass the mean absolute value of its tops and parameters, after its backward pass those of
its bottoms' and parameters' gradients, after the whole backward pass the norms over all parameters, and at the update
each parameter's size and step. With several ranks, the figures are rank 0's, before the gradients are averaged. The
training net keeps all of its blobs for this, so it takes more memory, and no layers are fused.

The test nets show the forward part of every batch that rank 0 tests, and keep their blobs for it. A net's own
`debug_info` field has no effect, since the solver's takes its place, as in Caffe (solver.cpp: InitTestNets).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from mgcaffe.engine import Net
from mgcaffe.engine.graph.node import AUTOMATIC, Node
from mgcaffe.engine.parameter import Parameter
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit
from mgcaffe.solvers.events.statistics import BlobStatistics, NetStatistics
from mgcaffe.solvers.loss_scale import LossScale


class DebugInfo:
    """Emits statistics of a net that keeps its blobs.

    Args:
        net: the training net.
        param: the SolverParameter message; without debug_info nothing is shown.
        rank: this rank's number; rank 0 alone emits.
        emit: takes the events.
        loss_scale: the factor on the loss, by which all gradients are divided before they are shown.
    """

    def __init__(self, net: Net, param: SolverParameter, rank: int, emit: Emit, loss_scale: LossScale) -> None:
        self._net, self._emit, self._loss_scale = net, emit, loss_scale
        self._is_wanted = bool(param.debug_info) and rank == 0
        self._is_showing = False
        self._before: dict[int, torch.Tensor] | None = None
        self._diff_l1 = self._diff_squares = 0.0
        # Caffe names a parameter by its `name`, or by its number in its layer.
        self._names = {
            id(parameter): (layer.name, parameter.name or str(number))
            for layer in reversed(net.layers)
            for number, parameter in enumerate(layer.parameters)
        }
        if self._is_wanted:
            net.after_forward.append(self._forward_done)
            net.after_backward.append(self._backward_done)

    def begin(self, displayed: bool) -> None:
        """Start an iteration, which is shown if it is displayed."""
        self._is_showing = self._is_wanted and displayed

    def before_update(self) -> None:
        """Remember the weights; the gradients are averaged, the weights not yet changed."""
        if self._is_showing:
            arena = self._net.arena
            flat = arena.data.clone()
            self._before = {id(piece.parameter): arena.view(flat, piece.parameter) for piece in arena.slices}
            self._before.update((id(table.parameter), table.parameter.data.clone()) for table in arena.tables)

    def after_update(self) -> None:
        """Show the steps that the weights have made, the last that is shown of the iteration."""
        if self._before is None:
            return
        for layer in self._net.layers:
            for number, parameter in enumerate(layer.parameters):
                self._updated(layer.name, parameter.name or str(number), parameter)
        self._before = None
        self._is_showing = False

    def _forward_done(self, index: int) -> None:
        if not self._is_showing:
            return
        for statistics in _forward_statistics(self._net.nodes[index]):
            self._emit(statistics)

    def _backward_done(self, index: int) -> None:
        if not self._is_showing:
            return
        node = self._net.nodes[index]
        for statistics in _backward_statistics(node, self._loss_scale.value):
            self._emit(statistics)
        # Now, since the ranks begin to average these gradients as soon as this returns.
        for parameter in node.owned:
            if parameter.wanted:
                gradient = parameter.gradient_values()
                self._diff_l1 += float(gradient.abs().sum())
                self._diff_squares += float(gradient.square().sum())
        if index == 0:
            self._show_norms()

    def _show_norms(self) -> None:
        values = [parameter.data for parameter in self._net.parameters]
        squares = sum(float(value.square().sum()) for value in values)
        self._emit(
            NetStatistics(
                data_l1=sum(float(value.abs().sum()) for value in values),
                diff_l1=self._diff_l1 / self._loss_scale.value,
                data_l2=math.sqrt(squares),
                diff_l2=math.sqrt(self._diff_squares) / self._loss_scale.value,
            )
        )
        self._diff_l1 = self._diff_squares = 0.0

    def _updated(self, layer: str, name: str, parameter: Parameter) -> None:
        owner = parameter.owner if parameter.owner is not None else parameter
        before = self._before.get(id(owner)) if self._before is not None else None
        if before is None:
            return
        step = _mean(before - owner.data)
        owners = self._names.get(id(owner)) if owner is not parameter else None
        self._emit(BlobStatistics("Update", layer, "param", name, data=_mean(before), diff=step, owner=owners))


def watch_tests(nets: Sequence[Net], param: SolverParameter, rank: int, emit: Emit) -> None:
    """Register hooks on the test nets, which keep their blobs, that show their forward passes.

    Args:
        nets: the test nets.
        param: the SolverParameter message; without debug_info nothing is shown.
        rank: this rank's number; rank 0 alone shows.
        emit: takes the events.
    """
    if not param.debug_info or rank:
        return
    for net in nets:
        net.after_forward.append(_shower(net, emit))


def _shower(net: Net, emit: Emit) -> Callable[[int], None]:
    def show(index: int) -> None:
        for statistics in _forward_statistics(net.nodes[index]):
            emit(statistics)

    return show


def _forward_statistics(node: Node) -> Iterator[BlobStatistics]:
    """Yield what is shown of a layer that has run forward in a net that keeps its blobs."""
    for index, blob in enumerate(node.tops):
        if blob.data is not None:
            name = blob.name if index < len(node.layer.param.top) else AUTOMATIC
            yield BlobStatistics("Forward", node.layer.name, "top blob", name, data=_mean(blob.data))
    for number, parameter in enumerate(node.layer.parameters):
        name = parameter.name or str(number)
        yield BlobStatistics("Forward", node.layer.name, "param blob", name, data=_mean(parameter.data))


def _backward_statistics(node: Node, loss_scale: float) -> Iterator[BlobStatistics]:
    """Yield what is shown of a layer that has run backward in a net that keeps its blobs."""
    if not node.needs_backward:
        return
    for blob, wanted in zip(node.bottoms, node.wants, strict=True):
        if wanted and blob.diff is not None:
            yield BlobStatistics(
                "Backward", node.layer.name, "bottom blob", blob.name, diff=_mean(blob.diff) / loss_scale
            )
    for number, parameter in enumerate(node.layer.parameters):
        if parameter.wanted:
            yield BlobStatistics(
                "Backward", node.layer.name, "param blob", str(number), diff=_mean(parameter.dense_diff()) / loss_scale
            )


def _mean(values: torch.Tensor) -> float:
    """Return the mean absolute value, or 0 where there are no values."""
    return float(values.abs().mean()) if values.numel() else 0.0
