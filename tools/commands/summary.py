"""`engine summary`: a net's layers, blobs, shapes, parameters, arithmetic and memory plan, without running it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.net_flags import add_model_flags, add_shape_flag
from mgcaffe.tools.flags.parsing import FlagParser, Flags, require
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.table import format_bytes, format_shape, output_width, table_lines, wrap_text

if TYPE_CHECKING:
    from mgcaffe.engine.graph.node import Node
    from mgcaffe.engine.net import Net

_VALUE_BYTES = 4


def parser() -> FlagParser:
    """Return the flags of `engine summary`."""
    flags = FlagParser(
        "summary",
        "Show a net's layers, shapes, parameters, multiply-accumulates and memory, and when which layer needs how much "
        "of it. Needs no data.",
        subject="model",
        epilog="example:\n  engine summary models/alexnet/train_val.prototxt --input_shape 16,3,227,227",
    )
    add_model_flags(flags)
    add_shape_flag(flags)
    flags.flag("phase", "the phase to build the net for", choices=("TRAIN", "TEST"), default="TRAIN")
    flags.switch("all", "list the Split layers that a net gets by itself where a blob has several readers, too")
    flags.flag("json", "write the same figures to this file, those of all layers", metavar="FILE")
    return flags


@dataclass(frozen=True)
class LayerFigures:
    """One row: a layer, its blobs, and what it costs.

    Attributes:
        parameters: values that it owns and that training changes, or could (also those with lr_mult 0).
        statistics: values that it owns and that training only measures (BatchNorm's).
        shared: values that it uses and another layer owns.
        macs: multiply-accumulates of one forward pass of the whole batch.
        activation_bytes: size of the blobs that it makes (none where it works in place or on views).
    """

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    top_shapes: list[list[int]]
    parameter_shapes: list[list[int]]
    parameters: int
    statistics: int
    shared: int
    macs: int
    activation_bytes: int


@dataclass(frozen=True)
class Totals:
    """The sums over a net; memory in bytes, for float32. The tables of EmbeddingBag layers are among the parameters."""

    parameters: int
    statistics: int
    batch_size: int
    macs: int
    macs_per_image: int
    activation_bytes: int
    parameter_bytes: int
    table_bytes: int


def run(flags: Flags, session: Session) -> int:
    """Print the table and the totals, no line of them wider than standard output."""
    session.refuse_ranks("summary")
    with loading():
        from mgcaffe.engine.graph.memory_plan import plan_memory
        from mgcaffe.tools.memory_table import plan_figures, plan_lines, plan_total
        from mgcaffe.tools.model import build_outline

    model = require(flags, "model", "the net")
    net = build_outline(flags, model, flags.phase, keep_blobs=False)
    try:
        figures = layer_figures(net)
        totals = total(net, figures)
        plan = plan_memory(net.steps, _VALUE_BYTES)
    finally:
        net.close()
    width = output_width()
    shown = figures if flags.all else without_splits(figures)
    left_out = len(figures) - len(shown)
    notes = [f"{left_out} automatic Split layer{'s' * (left_out != 1)} left out (--all shows them)"] if left_out else []
    trained = _VALUE_BYTES * totals.parameters - totals.table_bytes
    lines = [
        f"{net.name or model} ({flags.phase})", "", *_table(shown, width), "", *notes, *_totals(totals), "",
        *plan_lines(net, plan, width, everything=flags.all), "",
        plan_total(net, plan, totals.parameter_bytes, trained),
    ]  # fmt: skip
    print("\n".join(part for line in lines for part in (wrap_text(line, width) if len(line) > width else [line])))
    if flags.json:
        rows = [asdict(row) for row in figures]
        found = {"net": net.name, "phase": flags.phase, "layers": rows, "totals": asdict(totals)}
        write_json(flags.json, found | {"memory_plan": plan_figures(net, plan)})
    return EXIT_OK


def layer_figures(net: Net) -> list[LayerFigures]:
    """Return one entry for each layer, in order."""
    return [_figures(node) for node in net.nodes]


def _figures(node: Node) -> LayerFigures:
    layer = node.layer
    owned = [parameter for parameter in layer.parameters if parameter.owner is None]
    count = sum(parameter.count for parameter in owned)
    statistics = sum(parameter.count for parameter in owned if parameter.measured)
    bottoms, tops = [blob.shape for blob in node.bottoms], [blob.shape for blob in node.tops]
    views = layer.tops_share_bottoms or layer.type == "Split"
    made = [] if views else [blob for blob in node.tops if blob not in node.bottoms]
    return LayerFigures(
        name=layer.name,
        type=layer.type,
        bottoms=[blob.name for blob in node.bottoms],
        tops=[blob.name for blob in node.tops],
        top_shapes=[list(shape) for shape in tops],
        parameter_shapes=[list(parameter.shape) for parameter in layer.parameters],
        parameters=count - statistics,
        statistics=statistics,
        shared=sum(parameter.count for parameter in layer.parameters if parameter.owner is not None),
        macs=layer.macs(bottoms, tops),
        activation_bytes=_VALUE_BYTES * sum(math.prod(blob.shape) for blob in made),
    )


def total(net: Net, figures: Sequence[LayerFigures]) -> Totals:
    """Add the layers up."""
    batch = next((shape[0] for row in figures for shape in row.top_shapes if shape), 1)
    parameters = sum(row.parameters for row in figures)
    statistics = sum(row.statistics for row in figures)
    macs = sum(row.macs for row in figures)
    return Totals(
        parameters=parameters,
        statistics=statistics,
        batch_size=batch,
        macs=macs,
        macs_per_image=round(macs / max(1, batch)),
        activation_bytes=sum(row.activation_bytes for row in figures),
        parameter_bytes=_VALUE_BYTES * (parameters + statistics),
        table_bytes=_VALUE_BYTES * sum(table.parameter.count for table in net.arena.tables),
    )


def without_splits(figures: Sequence[LayerFigures]) -> list[LayerFigures]:
    """Leave out the Split layers that were inserted, and name the blobs that they copy where copies are read."""
    originals: dict[str, str] = {}
    rows = []
    for row in figures:
        bottoms = [originals.get(name, name) for name in row.bottoms]
        if _is_automatic_split(row):
            originals.update((name, bottoms[0]) for name in row.tops)
        else:
            rows.append(replace(row, bottoms=bottoms, tops=[originals.get(name, name) for name in row.tops]))
    return rows


def _is_automatic_split(row: LayerFigures) -> bool:
    """Return whether a layer is named as Caffe names splits (insert_splits.cpp): BLOB_LAYER_0_split."""
    if row.type != "Split" or not row.name.startswith(f"{row.bottoms[0]}_") or not row.name.endswith("_split"):
        return False
    return row.tops == [f"{row.name}_{copy}" for copy in range(len(row.tops))]


def _table(rows: Sequence[LayerFigures], width: int) -> list[str]:
    """Return the table's lines: with the blobs' names beside or beneath each layer, or as a paragraph for each."""
    right = ("parameters", "MACs", "memory")
    beside = _joined(
        table_lines(
            ("layer", "type", "bottoms", "tops", "shapes", *right),
            [(row.name, row.type, ", ".join(row.bottoms), ", ".join(row.tops), _shapes(row), *_costs(row))
             for row in rows],
            right,
        )
    )  # fmt: skip
    if _widest(beside) <= width:
        return beside
    head, *blocks = table_lines(
        ("layer", "type", "shapes", *right),
        [(row.name, row.type, "\n".join(map(format_shape, row.top_shapes)), *_costs(row)) for row in rows],
        right,
    )
    names = [wrap_text(_blobs_text(row), width, indent="    ") for row in rows]
    if _widest(_joined([head, *blocks])) <= width:
        return _joined([head, *(block + name for block, name in zip(blocks, names, strict=True))])
    return _joined([_paragraph(row, name, width) for row, name in zip(rows, names, strict=True)])


def _paragraph(row: LayerFigures, names: list[str], width: int) -> list[str]:
    """Return a layer's lines for where no table fits: name and type, blobs, shapes and costs."""
    costs = zip(_costs(row), (" parameters", " MACs", ""), strict=True)
    figures = [_shapes(row), *(f"{text}{unit}" for text, unit in costs if text)]
    text = "; ".join(text for text in figures if text)
    return wrap_text(f"{row.name} ({row.type})", width) + names + wrap_text(text, width, indent="    ")


def _blobs_text(row: LayerFigures) -> str:
    """Return `a, b -> c`; a layer without bottoms or without tops has nothing on that side."""
    return f"{', '.join(row.bottoms)} -> {', '.join(row.tops)}".strip()


def _shapes(row: LayerFigures) -> str:
    return ", ".join(map(format_shape, row.top_shapes))


def _costs(row: LayerFigures) -> tuple[str, str, str]:
    """Return the texts of parameters, multiply-accumulates and memory; empty where there are none."""
    macs = f"{row.macs:,}" if row.macs else ""
    return _parameters_text(row), macs, format_bytes(row.activation_bytes) if row.activation_bytes else ""


def _joined(blocks: Sequence[Sequence[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _widest(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)


def _parameters_text(row: LayerFigures) -> str:
    if row.statistics:
        return f"({row.statistics:,})"
    if row.shared and not row.parameters:
        return f"[{row.shared:,}]"
    return f"{row.parameters:,}" if row.parameters else ""


def _totals(totals: Totals) -> list[str]:
    statistics = f" and ({totals.statistics:,}) statistics of BatchNorm" if totals.statistics else ""
    tables = f" ({format_bytes(totals.table_bytes)} of them tables of EmbeddingBag)" if totals.table_bytes else ""
    more = "training adds at most as much for gradients, and as much for each history"
    if tables:
        more += "; for tables only for AdaGrad's history"
    return [
        f"Parameters: {totals.parameters:,}{statistics}; [shared] ones are counted where they are owned",
        f"Multiply-accumulates, forward: {totals.macs:,} for {totals.batch_size} images, "
        f"{totals.macs_per_image / 1e6:,.2f} million per image",
        f"Memory in float32: {format_bytes(totals.activation_bytes)} of blobs, "
        f"{format_bytes(totals.parameter_bytes)} of parameters{tables} ({more})",
    ]


def write_json(path: str, value: object) -> None:
    """Write a value to a file, indented.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    write_output(path, json.dumps(value, indent=1) + "\n")
