"""Draws nets with Graphviz (Caffe: draw.py).

draw_net_to_file(net, "net.dot")       # the text, which needs nothing installed
draw_net_to_file(net, "net.png")       # drawn by Graphviz's program `dot`
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mgcaffe.engine.graph import rules
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import ConvolutionParameter, LayerParameter, NetParameter, Phase, PoolingParameter, has_field

_BLOB = 'shape=octagon, fillcolor="#E0E0E0", style=filled'
_COLOURS = {"Convolution": "#FF5050", "Deconvolution": "#FF5050", "Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
_TEXT_ENDINGS = ("dot", "gv", "raw")


def get_dot(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> str:
    """Return a net in Graphviz's language.

    Args:
        caffe_net: the NetParameter.
        rankdir: the direction: LR, TB, BT or RL.
        label_edges: whether arrows into blobs tell their sizes.
        phase: draws only the layers of this phase; None draws all.
        display_lrm: whether layers tell their learning rates' multipliers.
    """
    lines = [f"digraph {_quoted(caffe_net.name or 'Net')} {{", f"  rankdir={rankdir};"]
    for number, layer in enumerate(_layers(caffe_net, phase)):
        node = f"layer{number}"
        in_place = list(layer.bottom) == list(layer.top)
        colour = "#90EE90" if in_place else _COLOURS.get(layer.type, "#6495ED")
        style = f'shape=box, fillcolor="{colour}", style=filled'
        lines.append(f"  {node} [label={_quoted(_layer_label(layer, rankdir, display_lrm))}, {style}];")
        edge = _edge_label(layer) if label_edges else ""
        for blob in dict.fromkeys([*layer.bottom, *layer.top]):
            lines.append(f"  {_quoted(f'blob {blob}')} [label={_quoted(blob)}, {_BLOB}];")
        lines += [f"  {_quoted(f'blob {blob}')} -> {node};" for blob in layer.bottom]
        lines += [
            f"  {node} -> {_quoted(f'blob {blob}')}" + (f" [label={_quoted(edge)}]" if edge else "") + ";"
            for blob in layer.top
        ]
    return "\n".join([*lines, "}", ""])


def get_pydot_graph(
    caffe_net: NetParameter,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> Any:
    """Return the same as a pydot graph.

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
        ext: the picture's format (`png`, `svg`, `pdf`); `dot` or `gv` gives the text itself.

    Raises:
        UsageError: Graphviz is not installed, or knows no such format.
    """
    text = get_dot(caffe_net, rankdir, phase=phase, display_lrm=display_lrm).encode()
    if ext.lower() in _TEXT_ENDINGS:
        return text
    program = shutil.which("dot")
    if program is None:
        raise UsageError(
            f"drawing '{ext}' needs Graphviz's program 'dot', which is not on the PATH",
            hint="install Graphviz, or draw to a file that ends in .dot and convert that elsewhere",
        )
    result = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True, check=False)
    if result.returncode:
        raise UsageError(f"dot cannot draw '{ext}': {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net into a file, in the format of the file's ending. Arguments and errors as for `draw_net`."""
    path = Path(filename)
    path.write_bytes(draw_net(caffe_net, rankdir, path.suffix.lstrip(".") or "png", phase, display_lrm))


def _layers(net: NetParameter, phase: Phase | None) -> Iterable[LayerParameter]:
    """Return all layers, or those of a phase whatever level and stages the rules ask for."""
    if phase is None:
        return net.layer
    return [layer for layer in net.layer if _is_in_phase(layer, phase)]


def _is_in_phase(layer: LayerParameter, phase: Phase) -> bool:
    state = rules.make_state(phase)
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == phase for rule in layer.include)
    return not any(rules.meets_rule(state, rule) for rule in layer.exclude)


def _layer_label(layer: LayerParameter, rankdir: str, display_lrm: bool) -> str:
    parts = [layer.name, f"({layer.type})"]
    if layer.type in ("Convolution", "Deconvolution"):
        param = layer.convolution_param
        parts += [
            f"kernel size: {_sizes(param, 'kernel_size', 'kernel_h', 'kernel_w', '?')}",
            f"stride: {_sizes(param, 'stride', 'stride_h', 'stride_w', '1')}",
            f"pad: {_sizes(param, 'pad', 'pad_h', 'pad_w', '0')}",
        ]
    elif layer.type == "Pooling":
        pool = layer.pooling_param
        method = PoolingParameter.PoolMethod.Name(pool.pool)
        parts += [f"({method})", f"kernel size: {pool.kernel_size}", f"stride: {pool.stride}", f"pad: {pool.pad}"]
    if display_lrm:
        parts += [f"lr mult: {spec.lr_mult:g}" for spec in layer.param]
    # nodes stand upright where the net runs down
    return (" " if rankdir in ("TB", "BT") else "\n").join(parts)


def _edge_label(layer: LayerParameter) -> str:
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    return f"Batch {layer.data_param.batch_size}" if layer.type == "Data" else ""


def _sizes(param: ConvolutionParameter, both: str, height: str, width: str, default: str) -> str:
    if has_field(param, height):
        return f"{getattr(param, height)}x{getattr(param, width)}"
    return "x".join(str(size) for size in getattr(param, both)) or default


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
