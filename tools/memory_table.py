"""The memory plan of a net (`engine/graph/memory_plan.py`) as text and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mgcaffe.tools.table import format_bytes, table_lines, wrap_text

if TYPE_CHECKING:
    from mgcaffe.engine.graph.memory_plan import MemoryPlan, StepMemory
    from mgcaffe.engine.net import Net

_HEADERS = ("layer", "makes", "freed after", "gradients", "needed forward", "backward")
_RIGHT = ("makes", "gradients", "needed forward", "backward")


def plan_lines(net: Net, plan: MemoryPlan, width: int, *, everything: bool) -> list[str]:
    """Return the plan's table, no line wider than `width`, or a paragraph for each layer where no table fits.

    Args:
        net: whose plan it is.
        plan: the plan.
        width: the greatest length of a line.
        everything: show layers that make nothing, too: those that work in place or on views.
    """
    steps = [step for step in plan.steps if everything or step.made or step.gradients]
    rows = [_row(net, step) for step in steps]
    lines = [line for block in table_lines(_HEADERS, rows, _RIGHT) for line in block]
    if max(map(len, lines)) <= width:
        return lines
    return [line for row in rows for line in _paragraph(row, width)]


def _row(net: Net, step: StepMemory) -> Sequence[str]:
    amounts = (step.made, step.gradients, step.forward, step.backward)
    made, gradients, forward, backward = (format_bytes(amount) if amount else "" for amount in amounts)
    return net.layers[step.layers[0]].name, made, _freed(net, step), gradients, forward, backward


def _freed(net: Net, step: StepMemory) -> str:
    if not step.made:
        return ""
    if step.freed_after is None:
        return "(stays)"
    name = net.layers[step.freed_after].name
    return f"{name}, backward" if step.freed_in_backward else name


def _paragraph(row: Sequence[str], width: int) -> list[str]:
    name, made, freed, gradients, forward, backward = row
    parts = [
        f"makes {made}, freed after {freed}" if made else "",
        f"gradients {gradients}" if gradients else "",
        f"needed forward {forward}",
        f"backward {backward}" if backward else "",
    ]
    return wrap_text(f"{name}: {'; '.join(part for part in parts if part)}", width)


def plan_total(net: Net, plan: MemoryPlan, parameter_bytes: int, trained_bytes: int) -> str:
    """Return the line that says what the plan comes to.

    Args:
        net, plan: as for `plan_lines`.
        parameter_bytes: of all parameters.
        trained_bytes: of those that have gradients and a history.
    """
    if not plan.steps:
        return "Memory plan: there are no layers"
    peak = format_bytes(plan.peak)
    where = f"layer '{net.layers[plan.peak_layer].name}'"
    if not any(step.backward for step in plan.steps):
        return f"Memory plan of a pass: {peak} of values at most, in {where}"
    direction = "backward" if plan.peak_in_backward else "forward"
    whole = format_bytes(plan.peak + parameter_bytes + 2 * trained_bytes)
    return (
        f"Memory plan of training: {peak} of values and gradients at most, in the {direction} pass of {where}; with "
        f"parameters, their gradients and one history {whole}, without what operators need while they run"
    )


def plan_figures(net: Net, plan: MemoryPlan) -> dict[str, Any]:
    """Return the plan for JSON, with the names of layers; sizes in bytes."""

    def named(step: StepMemory) -> dict[str, Any]:
        freed = None if step.freed_after is None or not step.made else net.layers[step.freed_after].name
        return asdict(step) | {"layers": [net.layers[number].name for number in step.layers], "freed_after": freed}

    peak = {
        "bytes": plan.peak,
        "layer": net.layers[plan.peak_layer].name if plan.steps else None,
        "pass": "backward" if plan.peak_in_backward else "forward",
    }
    return {"peak": peak, "steps": [named(step) for step in plan.steps]}
