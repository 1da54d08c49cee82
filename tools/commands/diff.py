"""`engine diff`: in what two nets, or two files of weights, differ. The exit code says whether they do."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import EXIT_FAILED, EXIT_OK, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.table import format_shape, format_table

if TYPE_CHECKING:
    from mgcaffe.prototxt import NetParameter
    from mgcaffe.tools.surgery.net_diff import NetDiff
    from mgcaffe.tools.surgery.weights_diff import WeightsDiff


def parser() -> FlagParser:
    """Return the flags of `engine diff`."""
    flags = FlagParser(
        "diff",
        "Compare two nets (prototxt) field by field, or two files of weights (caffemodel, HDF5) blob by blob.\n"
        "The exit code is 0 if they are equal and 1 if they differ; 2 and 65 are mistakes, as everywhere.",
        files=("A", "B"),
        epilog=(
            "examples:\n"
            "  engine diff train_val.prototxt deploy.prototxt\n"
            "  engine diff net_iter_500.caffemodel net_iter_1000.caffemodel.h5"
        ),
    )
    flags.switch("all", "list the blobs that are equal, too")
    flags.switch("strict", "refuse unknown fields in prototxt files instead of warning")
    flags.flag("json", "write the differences to FILE as well", metavar="FILE")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Print the tables."""
    session.refuse_ranks("diff")
    if len(flags.files) != 2:
        raise UsageError(f"diff takes two files, not {len(flags.files)}", hint="engine diff A B")
    from mgcaffe.tools.commands.summary import write_json
    from mgcaffe.tools.surgery.net_diff import diff_nets
    from mgcaffe.tools.surgery.weights_diff import diff_weights

    a, b = (_read(path, flags.strict) for path in flags.files)
    kinds = [any(layer.blobs for layer in net.layer) for net in (a, b)]
    if kinds[0] != kinds[1]:
        names = [
            f"{path} holds {'weights' if kind else 'a net alone'}"
            for path, kind in zip(flags.files, kinds, strict=True)
        ]
        raise UsageError(", ".join(names), hint="give two nets or two files of weights")
    diff: NetDiff | WeightsDiff
    if kinds[0]:
        weights = diff = diff_weights(a, b)
        text, document = _weights_text(weights, flags), _weights_json(weights)
    else:
        nets = diff = diff_nets(a, b)
        text, document = _nets_text(nets, flags), _nets_json(nets)
    print(text)
    if flags.json:
        write_json(flags.json, {"equal": diff.equal, **document})
    return EXIT_OK if diff.equal else EXIT_FAILED


def _read(path: str, strict: bool) -> NetParameter:
    from mgcaffe.engine.weights.files import fill_from_shards
    from mgcaffe.engine.weights.hdf5 import is_hdf5, read_message
    from mgcaffe.prototxt import read_net

    if is_hdf5(path):
        return read_message(path)
    net = read_net(Path(path), strict=strict)
    fill_from_shards(net, path)
    return net


def _only(diff: NetDiff | WeightsDiff, flags: Flags) -> list[str]:
    """Return a table of the layers that one file alone has, if there are any."""
    rows = [(flags.files[0], name) for name in diff.only_in_a] + [(flags.files[1], name) for name in diff.only_in_b]
    return [format_table(("only in", "layer"), rows)] if rows else []


def _nets_text(diff: NetDiff, flags: Flags) -> str:
    parts = _only(diff, flags)
    if diff.fields:
        rows = [(row.layer or "(the net)", row.field, row.a, row.b) for row in diff.fields]
        parts.append(format_table(("layer", "field", *flags.files), rows))
    if diff.moved:
        parts.append("the layers of both stand in another order")
    return "\n\n".join(parts) or "the nets are equal"


def _weights_text(diff: WeightsDiff, flags: Flags) -> str:
    parts = _only(diff, flags)
    shown = [row for row in diff.blobs if flags.all or not row.equal]
    if shown:
        names = ("absolute", "relative")
        rows = [
            (row.layer, str(row.blob), _shape(row.shape_a), _shape(row.shape_b), *map(_figure, _figures(row)))
            for row in shown
        ]
        parts.append(format_table(("layer", "blob", *flags.files, *names), rows, right=("blob", *names)))
    equal = sum(row.equal for row in diff.blobs)
    if diff.equal:
        parts.append(f"the weights are equal: {equal} blobs")
    else:
        both = sum(row.shape_a is not None and row.shape_b is not None for row in diff.blobs)
        parts.append(f"{equal} of {both} blobs that both files have are equal")
    return "\n\n".join(parts)


def _figures(row: Any) -> tuple[float | None, float | None]:
    return row.largest_absolute, row.largest_relative


def _shape(shape: tuple[int, ...] | None) -> str:
    return "-" if shape is None else format_shape(shape)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _nets_json(diff: NetDiff) -> dict[str, Any]:
    return {"kind": "net", **asdict(diff)}


def _weights_json(diff: WeightsDiff) -> dict[str, Any]:
    """Return the figures; what is not finite becomes null, as JSON has no other way."""
    document = {"kind": "weights", **asdict(diff)}
    for row in document["blobs"]:
        for name in ("largest_absolute", "largest_relative"):
            if row[name] is not None and not math.isfinite(row[name]):
                row[name] = None
    return document
