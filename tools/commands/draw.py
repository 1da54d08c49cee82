"""`engine draw`: a picture of a net, as a page to look around in, as SVG or as PNG."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, UsageError
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.net_flags import add_model_flags, add_shape_flag
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, require
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.net import Net
    from mgcaffe.tools.drawing.graph import DrawnLayer

_SUFFIXES = (".html", ".svg", ".png")
_DIRECTIONS = ("TB", "LR", "BT", "RL")


def parser() -> FlagParser:
    """Return the flags of `engine draw`."""
    flags = FlagParser(
        "draw",
        "Draw a net: its layers with their parameters and multiply-accumulates, and the shapes of its blobs.\n"
        "Needs no data and no Graphviz. The page folds repeated blocks, searches and zooms.",
        subject="model",
        epilog=(
            "examples:\n"
            "  engine draw models/googlenet/train_val.prototxt --input_shape 3,256,256 -o googlenet.html\n"
            "  engine draw models/lenet/deploy.prototxt -o lenet.svg --rankdir LR"
        ),
    )
    add_model_flags(flags)
    add_shape_flag(flags)
    flags.flag("phase", "the phase to build the net for", choices=("TRAIN", "TEST"), default="TRAIN")
    flags.flag("output", "the picture: .html, .svg or .png (default: the net's name with .html)", short="o",
               metavar="FILE")  # fmt: skip
    flags.flag("rankdir", "the direction from inputs to outputs: TB is down, LR to the right", choices=_DIRECTIONS,
               default="TB")  # fmt: skip
    flags.flag(
        "columns", "how many columns (rows, for LR and RL) a long net is broken into; 0 chooses",
        type=number_from(0), default=0, metavar="N",
    )  # fmt: skip
    flags.switch("fold", "fold repeated blocks in an .svg or .png too; a page begins so, and opens them by a click")
    flags.flag(
        "link",
        "what a layer links to, with {file}, {path} (absolute) and {line} filled in, as vscode://file{path}:{line}; "
        "by default the file itself",
        type=_link,
        metavar="TEXT",
    )
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the picture and say what it shows."""
    session.refuse_ranks("draw")
    model = require(flags, "model", "the net")
    output = _output(flags, model)
    with loading():
        from mgcaffe.tools.commands.summary import layer_figures, total
        from mgcaffe.tools.drawing.blocks import find_blocks
        from mgcaffe.tools.drawing.files import About, encoded
        from mgcaffe.tools.drawing.graph import build_graph
        from mgcaffe.tools.model import build_outline

    net = build_outline(flags, model, flags.phase)
    try:
        figures = layer_figures(net)
        totals = total(net, figures)
        layers = drawn_layers(net)
    finally:
        net.close()
    graph = build_graph(layers)
    blocks = find_blocks(graph)
    about = About(
        title=net.name or Path(model).name,
        facts=(
            f"{flags.phase}, {len(layers)} layers",
            f"{totals.parameters:,} parameters"
            + (f" and {totals.statistics:,} statistics of BatchNorm" if totals.statistics else ""),
            f"{totals.macs:,} multiply-accumulates forward for "
            f"{totals.batch_size} image{'s' * (totals.batch_size != 1)} "
            f"({totals.macs_per_image / 1e6:,.2f} million per image)",
        ),
        file=os.path.relpath(model, output.parent).replace(os.sep, "/"),
        path=str(Path(model).absolute()),
        link=flags.link,
    )
    kind = output.suffix.removeprefix(".")
    content = encoded(
        kind, graph, blocks, about, direction=flags.rankdir, folded=flags.fold, columns=flags.columns
    )  # fmt: skip
    write_output(output, content)
    folded = f", {len(blocks)} repeated blocks" if blocks else ""
    print(f"{output}: {len(layers)} layers, {len(graph.wires)} blobs{folded}")
    return EXIT_OK


def _link(text: str) -> str:
    """Check that a link names no part that is not known."""
    unknown = [part for part in re.findall(r"\{.*?\}", text) if part not in ("{file}", "{path}", "{line}")]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {{file}}, {{path}} and {{line}}")
    return text


def _output(flags: Flags, model: str) -> Path:
    output = Path(flags.output or Path(model).with_suffix(".html").name)
    if output.suffix not in _SUFFIXES:
        raise UsageError(
            f"'{output}' is no kind of picture that can be drawn", hint=f"let it end in one of {', '.join(_SUFFIXES)}"
        )
    return output


def drawn_layers(net: Net) -> list[DrawnLayer]:
    """Return the layers of a net that was built, without the Splits that it was given."""
    from mgcaffe.tools.commands.summary import layer_figures, without_splits
    from mgcaffe.tools.drawing.reading import built_layer

    rows = iter(without_splits(layer_figures(net)))
    row = next(rows, None)
    layers = []
    for node in net.nodes:
        if row is not None and node.layer.name == row.name:
            layers.append(built_layer(node, row.bottoms, row.tops))
            row = next(rows, None)
    return layers
