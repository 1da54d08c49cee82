"""The page of `engine draw`: a net to look around in, as one HTML file that needs nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape

from mgcaffe.tools.drawing.kinds import KINDS, kind_of
from mgcaffe.tools.drawing.page_script import SCRIPT
from mgcaffe.tools.drawing.picture import Picture
from mgcaffe.tools.drawing.plates import Node, Plate
from mgcaffe.tools.drawing.texts import block_lines, box_lines

# Nothing is loaded from anywhere, whatever a name in the net may look like.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light dark;--page:#f3f4f6;--paper:#fff;--ink:#1f1f1f;--soft:#5a5a5a;--wire:#8794a0;--rule:#e2e5e8;
--frame:#f5f7f9;--edge:#aeb9c2;--block:#eef1f4;--pick:#0b62c4;--hover:#0b62c414}
@media (prefers-color-scheme:dark){:root{--page:#15181b;--paper:#1d2125;--ink:#ececec;--soft:#a9b0b6;--wire:#77838e;
--rule:#33393f;--frame:#23282d;--edge:#4d565f;--block:#2b3137;--pick:#6cb2ff;--hover:#6cb2ff1f}}
*{box-sizing:border-box}[hidden]{display:none!important}
body{margin:0;height:100vh;display:grid;grid-template-columns:minmax(230px,330px) 1fr;overflow:hidden;
font:13px/1.4 Helvetica,Arial,"Liberation Sans","DejaVu Sans",sans-serif;color:var(--ink);background:var(--page)}
aside{display:flex;flex-direction:column;min-height:0;background:var(--paper);border-right:1px solid var(--rule)}
header{padding:10px 12px 6px}h1{font-size:19px;margin:0 0 2px;overflow-wrap:anywhere}
p{margin:0;color:var(--soft);font-size:12px}
input{width:100%;font:inherit;padding:5px 8px;margin:8px 0 6px;border:1px solid var(--edge);border-radius:5px;
background:var(--page);color:inherit}
button{font:inherit;padding:2px 8px;border:1px solid var(--edge);border-radius:5px;background:var(--page);color:inherit;
cursor:pointer}button:hover{border-color:var(--pick)}
#layers{overflow:auto;flex:1;border-top:1px solid var(--rule);padding-bottom:20px}
.layer{display:flex;gap:6px;align-items:baseline;padding:1px 10px;cursor:pointer}.within{padding-left:22px}
.layer:hover,.head:hover{background:var(--hover)}.layer.chosen{background:var(--pick);color:var(--paper)}
.head{font-weight:600;padding:3px 10px 1px;cursor:pointer}
.n{flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.s{color:var(--soft);white-space:nowrap}
.chosen .s{color:inherit}
.layer i,.key i{flex:none;width:9px;height:9px;border-radius:2px;background:var(--s)}
.key{display:flex;flex-wrap:wrap;gap:1px 12px;margin:7px 0 2px}.key span{display:flex;gap:5px;align-items:center}
main{position:relative;min-width:0;overflow:hidden}
#net{width:100%;height:100%;display:block;cursor:grab;touch-action:none;user-select:none}
#net text{fill:var(--ink);font-family:inherit}.name{font-weight:600}.shape{font-size:11px}
#net .more{fill:var(--soft)}#net .title{font-size:11px;font-weight:600;fill:var(--soft)}
.wire{fill:none;stroke:var(--wire);stroke-width:1.4}.wire.chosen{stroke:var(--pick);stroke-width:2.6}
.label{fill:var(--page)}.open .label{fill:var(--frame)}
.box .body{fill:var(--f);stroke:var(--s)}.mark{fill:var(--s)}.block .body{fill:var(--block);stroke:var(--wire)}
.inner{fill:none;stroke:var(--edge)}.frame{fill:var(--frame);stroke:var(--edge)}
.box,.block,.fold,.row{cursor:pointer}.box:hover .body,.block:hover .body,.box:focus .body,.block:focus .body
{stroke:var(--pick);stroke-width:2}.fold:hover text{fill:var(--pick)!important}:focus{outline:none}
.box.chosen .body{stroke:var(--pick);stroke-width:3}.row:hover text{text-decoration:underline}
#about{position:absolute;right:12px;bottom:12px;max-width:min(460px,calc(100% - 24px));max-height:calc(100% - 24px);
overflow:auto;background:var(--paper);border:1px solid var(--edge);border-radius:8px;padding:10px 14px;
box-shadow:0 2px 10px #0003}
h2{font-size:15px;margin:0 24px 0 0;overflow-wrap:anywhere}.close{float:right}a{color:var(--pick)}
table{border-collapse:collapse;margin:6px 0}th{text-align:left;font-weight:400;color:var(--soft);padding:1px 12px 1px 0;
vertical-align:top;white-space:nowrap}td{padding:1px 0;white-space:pre-wrap;overflow-wrap:anywhere}
pre{margin:6px 0 0;padding:8px;background:var(--page);border-radius:5px;overflow:auto;max-height:260px;
font:11.5px/1.35 ui-monospace,"DejaVu Sans Mono",monospace}
@media (max-width:640px){body{grid-template:minmax(0,2fr) minmax(0,3fr)/100%}aside{border:0}}
"""


def page_of(picture: Picture, opened: Picture, title: str, facts: Sequence[str], target: Callable[[int], str]) -> str:
    """Return the page.

    Args:
        picture, opened: the net, laid out with its blocks folded, and with all of them open.
        title, facts: what stands at the top.
        target: gives for a line of the prototxt what a layer there links to, or an empty text.
    """
    data = json.dumps(_data(picture, opened, target), separators=(",", ":")).replace("<", "\\u003c")
    kinds = {kind_of(layer.type) for layer in picture.graph.layers}
    colours = "".join(f".k{number}{{--s:{kind.strong};--f:{kind.light}}}" for number, kind in enumerate(KINDS))
    dark = "".join(f".k{number}{{--f:{kind.dark}}}" for number, kind in enumerate(KINDS))
    key = "".join(
        f'<span><i class="k{number}"></i>{escape(kind.name)}</span>'
        for number, kind in enumerate(KINDS)
        if kind in kinds
    )
    sums = "".join(f"<p>{escape(fact)}</p>" for fact in facts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{_STYLE}{colours}@media (prefers-color-scheme:dark){{{dark}}}</style></head>
<body><aside><header><h1>{escape(title)}</h1>{sums}
<input id="search" type="search" placeholder="search layers, types, blobs, shapes ( / )" autocomplete="off">
<button id="in" title="zoom in (+)">+</button> <button id="out" title="zoom out (-)">&minus;</button>
<button id="fit" title="see the whole (0)">fit</button> <button id="fold">fold all</button>
<button id="open">open all</button> <span id="found"></span>
<div class="key">{key}</div></header><div id="layers"></div></aside>
<main><svg id="net" role="img" aria-label="{escape(title)}"><defs><marker id="head" viewBox="0 0 6 6" refX="6" refY="3"
markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z" fill="#8794a0"/>
</marker></defs></svg><div id="about" hidden></div></main>
<noscript>This page needs JavaScript; draw the net as .svg for a picture without.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{SCRIPT}</script></body></html>
"""


def _data(picture: Picture, opened: Picture, target: Callable[[int], str]) -> dict[str, object]:
    """Return everything that the script shows, as JSON."""
    graph = picture.graph
    block_of = {box: number for number, block in enumerate(picture.blocks) for box in block.boxes}
    box_of = {layer: number for number, box in enumerate(graph.boxes) for layer in box.layers}
    layers = []
    for number, layer in enumerate(graph.layers):
        box = graph.boxes[box_of[number]]
        layers.append(
            {
                "name": layer.name,
                "type": layer.type,
                "detail": layer.detail,
                "kind": KINDS.index(kind_of(layer.type)),
                "block": block_of.get(box_of[number], -1),
                "bottoms": list(zip(layer.bottoms, layer.bottom_shapes, strict=True)),
                "tops": list(zip(layer.tops, layer.top_shapes, strict=True)),
                "parameters": layer.parameters,
                "shared": layer.shared,
                "macs": layer.macs,
                "place": layer.location,
                "href": target(layer.line),
                "source": layer.source,
                "wires": [*box.inputs, *box.outputs],
            }
        )
    return {
        "dir": picture.direction,
        "layers": layers,
        "blocks": [{"title": block.title} for block in picture.blocks],
        "wires": [[wire.name, wire.shape, bool(wire.heads)] for wire in graph.wires],
        "plate": _plate(picture, picture.plate),
        "full": _plate(picture, opened.plate),
        "insides": [_plate(picture, plate) for plate in picture.insides],
    }


def _plate(picture: Picture, plate: Plate) -> dict[str, object]:
    lines = [
        [line.wire, *map(_short, (line.x, line.y, line.to_x, line.to_y)), int(line.bend), line.tail, line.head]
        for line in plate.lines
    ]
    nodes = [_node(picture, node) for node in plate.nodes]
    return {"w": _short(plate.width), "h": _short(plate.height), "nodes": nodes, "lines": lines}


def _node(picture: Picture, node: Node) -> dict[str, object]:
    graph = picture.graph
    lines = box_lines(graph, node.box) if node.box >= 0 else block_lines(graph, picture.blocks[node.block])
    kind = kind_of(graph.layers[graph.boxes[node.box].layers[0]].type) if node.box >= 0 else None
    return {
        "box": node.box,
        "block": node.block,
        "kind": KINDS.index(kind) if kind else -1,
        "r": [_short(value) for value in (node.rect.x, node.rect.y, node.rect.width, node.rect.height)],
        "b": [_short(value) for value in (node.body.x, node.body.y, node.body.width, node.body.height)],
        "lines": [
            [line.text, line.size, int(line.bold), KINDS.index(line.mark) if line.mark else -1, line.layer]
            for line in lines
        ],
        "labels": [
            [label.text, *map(_short, (label.rect.x, label.rect.y, label.rect.width, label.rect.height)), label.wire]
            for label in node.labels
        ],
        "ports": {str(wire): _short(offset) for wire, offset in node.ports.items()},
    }


def _short(value: float) -> float:
    return round(value, 1)
