"""Nets for the tests of pictures, written layer by layer."""

from __future__ import annotations

from mgcaffe.prototxt import parse_net
from mgcaffe.tools.drawing.graph import NetGraph, build_graph
from mgcaffe.tools.drawing.reading import layers_of_message


def graph_of(text: str) -> NetGraph:
    """Return what is drawn of a net that is not built."""
    return build_graph(layers_of_message(parse_net(text).param.layer))


def layer(name: str, layer_type: str, bottoms: str = "", tops: str = "") -> str:
    """Return a layer's prototxt; blobs are separated by spaces, and the top is called as the layer by default."""
    blobs = "".join(f' bottom: "{blob}"' for blob in bottoms.split())
    blobs += "".join(f' top: "{blob}"' for blob in (tops or name).split())
    return f'layer {{ name: "{name}" type: "{layer_type}"{blobs} }}\n'
