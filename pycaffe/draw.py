"""Draws nets (Caffe: draw.py).

draw_net_to_file(net, "net.dot")       # Graphviz's language
draw_net_to_file(net, "net.png")       # by Graphviz's program `dot` where it is installed, else as `engine draw` does
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from mgcaffe.errors import UsageError
from mgcaffe.errors.whole_files import overwrite
from mgcaffe.prototxt import NetParameter, Phase
from mgcaffe.tools.drawing.graphviz import get_dot, picture_of

__all__ = ["draw_net", "draw_net_to_file", "get_dot", "get_pydot_graph"]


def get_pydot_graph(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> Any:
    """Return a net as a pydot graph. Arguments as for `get_dot`.

    Raises:
        UsageError: pydot is not installed.
    """
    try:
        pydot = importlib.import_module("pydot")
    except ModuleNotFoundError:
        raise UsageError("get_pydot_graph needs pydot", hint="pip install pydot, or use get_dot") from None
    return pydot.graph_from_dot_data(get_dot(caffe_net, rankdir, label_edges, phase, display_lrm))[0]


def draw_net(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    ext: str = "png",
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> bytes:
    """Return a picture of a net.

    Args:
        caffe_net, rankdir, phase, display_lrm: as for `get_dot`.
        ext: the picture's format: `png`, `svg`, `html`, with Graphviz also `pdf` and others; `dot`: the text.

    Raises:
        UsageError: the format needs Graphviz, which is not installed, or Graphviz does not know it.
    """
    return picture_of(caffe_net, rankdir, ext, phase, display_lrm)


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net into a file, in the format of the file's ending. Arguments and errors as for `draw_net`."""
    ext = Path(filename).suffix.lstrip(".") or "png"
    overwrite(filename, [draw_net(caffe_net, rankdir, ext, phase, display_lrm)])
