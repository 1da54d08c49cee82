"""Plan files: a plan with all that it was made from, written so that people can read and edit it.

    {
     "schedule": "optimal",
     "blocking": false,
     "overlap_forward": false,
     "hash": "1f0c...",
     "element_bytes": 4,
     "cost": {"kind": "affine", "a": 0.0009, "b": 7.4e-10},
     "backward_s": 0.0123,
     "layers": [
      {"name": "conv1", "elements": 520, "ready_s": 0.0123},
      ...
     ],
     "groups": [
      {"from": "ip2", "down_to": "ip1", "elements": 405510, ...},
      {"from": "conv2", "down_to": "conv1", "elements": 25570, ...}
     ]
    }

Layers stand in forward order, groups in the order of their all-reduces, from the highest layers down. Only the
layers, each group's "from" and "down_to", "blocking" (whether MPI's blocking call is used) and "overlap_forward"
(whether the next forward pass begins before the last groups have come) decide: to merge two groups, delete one and
let the other reach over both. What else stands in a group is there to be read; predictions are made anew. Where the
groups overlap the forward pass, "order" says which is sent when, by their numbers from 0; left out, it is made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgcaffe.comm.planning.cost import Cost, read_cost
from mgcaffe.comm.planning.csv_rows import read_text
from mgcaffe.comm.planning.forward_overlap import overlapping
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.comm.planning.schedules import predict_groups
from mgcaffe.errors import EXIT_BAD_INPUT, CommError, DataError
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.file_names import shown_name


@dataclass(frozen=True)
class PlanBasis:
    """What a plan was made from.

    Attributes:
        segments: every layer's place in the flat gradient buffer, by layer.
        ready: when each layer's gradient is ready, in seconds from the start of the backward pass.
        cost: what an all-reduce of so many bytes costs.
        element_bytes: the size of a gradient.
    """

    segments: Sequence[Segment]
    ready: Sequence[float]
    cost: Cost
    element_bytes: int = 4


def plan_text(plan: Plan, basis: PlanBasis) -> str:
    """Return a plan as the text of a plan file."""
    layers = [
        {"name": segment.name, "elements": segment.count, "ready_s": _rounded(ready)}
        for segment, ready in zip(basis.segments, basis.ready, strict=True)
    ]
    groups = [
        {
            "from": _label(basis.segments, group.last_segment),
            "down_to": _label(basis.segments, group.first_segment),
            "elements": group.count,
            "ready_s": _rounded(group.ready_at),
            "start_s": _rounded(group.start_at),
            "end_s": _rounded(group.end_at),
        }
        for group in plan.groups
    ]
    head = {
        "schedule": plan.schedule,
        "blocking": plan.blocking,
        "overlap_forward": plan.overlaps_forward,
        **({"order": list(plan.order)} if plan.overlaps_forward else {}),
        "hash": plan.hash,
        "element_bytes": basis.element_bytes,
        "cost": basis.cost.to_json(),
        "backward_s": _rounded(plan.backward_end),
        "exposed_s": _rounded(plan.exposed),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines += [f" {json.dumps(name)}: {_rows(rows)}" for name, rows in (("layers", layers), ("groups", groups))]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Give every row a line of its own."""
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]" if rows else "[]"


def _rounded(seconds: float) -> float:
    """Round to nanoseconds, which is finer than any measurement."""
    return round(seconds, 9)


def _label(segments: Sequence[Segment], number: int) -> str | int:
    """Return a layer's name, or its number where several have that name."""
    name = segments[number].name
    return name if sum(segment.name == name for segment in segments) == 1 else number


def read_plan(path: str | Path, segments: Sequence[Segment], element_bytes: int) -> Plan:
    """Read a plan file for a net whose layers lie in its gradient buffer as `segments` say.

    The plan's schedule is that of the file, with " (edited)" where its groups are no longer those that the
    file's hash was computed from.

    Raises:
        DataError: the file cannot be read.
        CommError: it is no plan, or doesn't fit the net; the first difference is named.
    """
    text = read_text(path, "a plan")
    hint = "'engine plan NET --export=FILE' writes one for a net"
    try:
        return _read(parse_json(text, str(path), "this is no plan"), segments, element_bytes)
    except DataError as error:
        raise CommError(
            f"plan file: {error.message}", location=error.location, hint=hint, exit_code=EXIT_BAD_INPUT
        ) from None
    except CommError as error:
        raise CommError(
            f"plan file {path}: {error.message}", hint=error.hint or hint, exit_code=EXIT_BAD_INPUT
        ) from None


def _read(record: Json, segments: Sequence[Segment], element_bytes: int) -> Plan:
    rows = record["layers"].elements()
    layers = [(row["name"].text(), row["elements"].integer(least=0)) for row in rows]
    ready = [row["ready_s"].number() for row in rows]
    named = [(_layer(group["from"]), _layer(group["down_to"])) for group in record["groups"].elements()]
    backward_end, schedule = record["backward_s"].number(), record["schedule"].text()
    blocking, overlaps = (_flag(record, name) for name in ("blocking", "overlap_forward"))
    order = record.get("order") if overlaps else None
    sending = tuple(number.integer() for number in order.elements()) if order is not None else ()
    cost = read_cost(record["cost"])
    _compare_layers(layers, segments)
    ranges = list(_ranges(named, segments))
    groups = predict_groups(ranges, segments, ready, cost, element_bytes)
    plan = Plan(schedule, len(segments), groups, backward_end, blocking, sending=sending)
    plan.check(segments)
    if overlaps:
        plan = replace(plan, overlaps_forward=True) if sending else overlapping(plan)
    stated = record.get("hash")
    if (stated is not None and stated.value == plan.hash) or schedule.endswith(" (edited)"):
        return plan
    return replace(plan, schedule=f"{schedule} (edited)")


def _layer(value: Json) -> str | int:
    """Return a layer's name, or its number."""
    return value.text() if isinstance(value.value, str) else value.integer(least=0)


def _flag(record: Json, name: str) -> bool:
    value = record.get(name)
    return value is not None and value.flag()


def _compare_layers(layers: Sequence[tuple[str, int]], segments: Sequence[Segment]) -> None:
    """Make sure that a plan was made for a net with these layers.

    Raises:
        CommError: it was not; names the first difference.
    """
    for index, ((name, elements), segment) in enumerate(zip(layers, segments, strict=False)):
        if (name, elements) != (segment.name, segment.count):
            raise CommError(
                f"layer {index} is '{shown_name(name)}' with {elements} elements there, "
                f"'{segment.name}' with {segment.count} in the net"
            )
    if len(layers) > len(segments):
        name = shown_name(layers[len(segments)][0])
        raise CommError(f"layer {len(segments)} is '{name}' there, but the net ends before it")
    if len(layers) < len(segments):
        raise CommError(f"there is no layer {len(layers)}, which is '{segments[len(layers)].name}' in the net")


def _ranges(named: Sequence[tuple[str | int, str | int]], segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Turn (from, down to) into (first, last), checking that the groups cover all layers, each once."""
    next_layer = len(segments) - 1
    for number, (above, below) in enumerate(named):
        last, first = (_find(layer, segments, number) for layer in (above, below))
        if last != next_layer:
            due = f"'{segments[next_layer].name}'" if next_layer >= 0 else "no further group"
            raise CommError(f"group {number} begins with layer '{above}', but {due} comes next going down")
        if first > last:
            raise CommError(f"group {number} goes from '{above}' up to '{below}': groups go downwards")
        next_layer = first - 1
        yield first, last
    if next_layer >= 0:
        raise CommError(f"layer '{segments[next_layer].name}' is in no group")


def _find(layer: str | int, segments: Sequence[Segment], number: int) -> int:
    """Return a layer's index, given its name or that index."""
    if isinstance(layer, int) and 0 <= layer < len(segments):
        return layer
    found = [index for index, segment in enumerate(segments) if segment.name == layer]
    if len(found) > 1:
        raise CommError(f"group {number}: {len(found)} layers are called '{layer}'; give their numbers")
    if not found:
        raise CommError(f"group {number}: there is no layer '{shown_name(str(layer))}'")
    return found[0]
