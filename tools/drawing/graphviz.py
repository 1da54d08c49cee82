"""Draws a net from its message alone, as Caffe's draw.py does: in Graphviz's language, by Graphviz, or without it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from mgcaffe.engine.graph import rules
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import ConvolutionParameter, LayerParameter, NetParameter, Phase, PoolingParameter, has_field
from mgcaffe.tools.drawing.blocks import find_blocks
from mgcaffe.tools.drawing.files import About, encoded
from mgcaffe.tools.drawing.graph import build_graph
from mgcaffe.tools.drawing.picture import DIRECTIONS
from mgcaffe.tools.drawing.reading import layers_of_message

_BLOB = 'shape=octagon, fillcolor="#E0E0E0", style=filled'
_COLOURS = {"Convolution": "#FF5050", "Deconvolution": "#FF5050", "Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
_TEXT_ENDINGS = ("dot", "gv", "raw")
_OWN_ENDINGS = ("png", "svg", "html")


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
    for number, layer in enumerate(layers_of_phase(caffe_net, phase)):
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


def picture_of(
    net: NetParameter,
    rankdir: str = "LR",
    ext: str = "png",
    phase: Phase | None = None,
    display_lrm: bool = False,
) -> bytes:
    """Return a picture of a net: by Graphviz where its program `dot` is installed, else as `engine draw` draws it.

    Args:
        net: the NetParameter.
        rankdir: where wires lead: LR, TB, BT or RL.
        ext: the picture's format: `png`, `svg`, with Graphviz further ones; `html`, which Graphviz does not know;
            `dot` or `gv` for the text itself.
        phase: draws only the layers of this phase; None draws all.
        display_lrm: whether layers tell their learning rates' multipliers.

    Raises:
        UsageError: the format needs Graphviz, which is not installed, or Graphviz does not know it.
    """
    kind = ext.lower()
    if kind in _TEXT_ENDINGS:
        return get_dot(net, rankdir, phase=phase, display_lrm=display_lrm).encode()
    program = shutil.which("dot")
    if kind == "html" or (kind in _OWN_ENDINGS and program is None):
        return _own_picture(net, rankdir, kind, phase, display_lrm)
    if program is None:
        raise UsageError(
            f"drawing '{ext}' needs Graphviz's program 'dot', which is not on the PATH",
            hint="install Graphviz, or draw to a file that ends in .png, .svg, .html or .dot",
        )
    text = get_dot(net, rankdir, phase=phase, display_lrm=display_lrm).encode()
    result = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True, check=False)
    if result.returncode:
        raise UsageError(f"dot cannot draw '{ext}': {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def _own_picture(net: NetParameter, rankdir: str, kind: str, phase: Phase | None, display_lrm: bool) -> bytes:
    if rankdir not in DIRECTIONS:
        raise UsageError(f"rankdir '{rankdir}' is unknown", hint=f"it should be one of {', '.join(DIRECTIONS)}")
    layers = [
        replace(
            layer,
            detail=" ".join([layer.detail, *_multipliers(message, display_lrm)]).strip(),
            top_shapes=[_edge_label(message)] * len(layer.tops),
        )
        for message in layers_of_phase(net, phase)
        for layer in layers_of_message([message])
    ]
    graph = build_graph(layers)
    about = About(net.name or "Net", [f"{len(layers)} layers{'' if phase is None else f' of {Phase.Name(phase)}'}"])
    return encoded(kind, graph, find_blocks(graph), about, direction=rankdir)


def layers_of_phase(net: NetParameter, phase: Phase | None) -> Sequence[LayerParameter]:
    """Return all layers, or those of a phase whatever level and stages the rules ask for."""
    if phase is None:
        return list(net.layer)
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
    parts += _multipliers(layer, display_lrm)
    # nodes stand upright where the net runs down
    return (" " if rankdir in ("TB", "BT") else "\n").join(parts)


def _multipliers(layer: LayerParameter, display_lrm: bool) -> list[str]:
    return [f"lr mult: {spec.lr_mult:g}" for spec in layer.param] if display_lrm else []


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
