"""Every golden layer case through caffe.Net, as a script would run it (tests/golden/layers)."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.engine import registry
from mgcaffe.prototxt import read_net
from tests.support import golden
from tests.support.golden import LAYERS, read_case

TYPES = set(registry.layer_types())
NAMES = [
    name for name in golden.NAMES if {layer.type for layer in read_net(LAYERS / name / "net.prototxt").layer} <= TYPES
]


def close(what, found, expected):
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, Caffe's has {expected.shape}"
    error = np.abs(found - expected) - (2e-5 + 2e-4 * np.abs(expected))
    assert error.max(initial=-1) <= 0, f"{what} differs by {np.abs(found - expected).max()}"


def parameter_blob(net, key):
    """Parameter `layer/index`; where layers share a name, of the first that has parameters."""
    name, index = key.rsplit("/", 1)
    layers = zip(net._layer_names, net.layers, strict=True)
    return next(layer for layer_name, layer in layers if layer_name == name and len(layer.blobs)).blobs[int(index)]


@pytest.mark.parametrize("name", NAMES)
def test_case_agrees_with_caffe(name):
    case, meta = read_case(name)
    phase = caffe.TRAIN if meta["phase"] == "train" else caffe.TEST
    net = caffe.Net(str(LAYERS / name / "net.prototxt"), phase)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, values in case.items():
        kind, _, blob = key.partition("/")
        parts.setdefault(kind, {})[blob] = values
    for blob, values in parts.get("in", {}).items():
        net.blobs[blob].data[...] = values
    for key, values in parts.get("param", {}).items():
        parameter_blob(net, key).data[...] = values
    for _ in range(meta["forwards"]):
        net.forward()
    for blob in meta["outputs"]:
        close(f"output {blob}", net.blobs[blob].data, parts["out"][blob])
    for key, values in parts.get("paramafter", {}).items():
        close(f"parameter {key}", parameter_blob(net, key).data, values)
    if meta.get("forward_only"):
        return
    for blob, values in parts.get("topdiff", {}).items():
        net.blobs[blob].diff[...] = values
    net.clear_param_diffs()
    net.backward()
    for blob, values in parts.get("indiff", {}).items():
        close(f"gradient of {blob}", net.blobs[blob].diff, values)
    for key, values in parts.get("paramdiff", {}).items():
        close(f"gradient of {key}", parameter_blob(net, key).diff, values)


def test_there_are_cases():
    assert len(NAMES) >= 60
