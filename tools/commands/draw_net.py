"""`draw_net NET PICTURE`: draws a net from its prototxt alone (Caffe: python/draw_net.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mgcaffe.errors import EXIT_OK
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.scripts import run_script


def parser() -> FlagParser:
    """Return the flags of `draw_net`."""
    flags = FlagParser(
        "draw_net",
        "Draw a net from its prototxt alone: .png, .svg, .html or .dot, with Graphviz installed also its formats.\n"
        "'engine draw' builds the net and shows shapes and costs as well.",
        files=("NET", "PICTURE"),
        alone=True,
    )
    flags.flag(
        "rankdir",
        "the direction from inputs to outputs: TB is down, LR to the right",
        choices=("LR", "TB", "BT", "RL"),
        default="LR",
    )
    flags.flag("phase", "draw only the layers of this phase", choices=("TRAIN", "TEST", "ALL"), default="ALL")
    flags.switch("display_lrm", "show the learning rates' multipliers, too")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    return run_script(parser(), _run, arguments, least=2)


def _run(flags: Flags) -> int:
    from mgcaffe.prototxt import TEST, TRAIN, read_net
    from mgcaffe.tools.drawing.graphviz import picture_of

    net, picture = flags.files
    phase = {"TRAIN": TRAIN, "TEST": TEST, "ALL": None}[flags.phase]
    content = picture_of(
        read_net(net), flags.rankdir, Path(picture).suffix.lstrip(".") or "png", phase, flags.display_lrm
    )
    print(f"Drawing net to {picture}")
    write_output(picture, content)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
