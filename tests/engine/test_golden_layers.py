"""Every golden layer case, run through the net: what a real Caffe computed (tests/golden/layers)."""

import numpy as np
import pytest
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.net import TEST, TRAIN, Net
from mgcaffe.prototxt import read_net_source
from tests.support.golden import LAYERS, NAMES, fill, read_case


def check(what: str, found: torch.Tensor, expected: np.ndarray) -> None:
    values = found.detach().numpy()
    assert values.shape == expected.shape, f"{what} has shape {values.shape}, Caffe's has {expected.shape}"
    error = np.abs(values - expected) - (2e-5 + 2e-4 * np.abs(expected))
    assert error.max(initial=-1) <= 0, f"{what} differs by {np.abs(values - expected).max()}"


@pytest.mark.parametrize("name", NAMES)
def test_case_agrees_with_caffe(name):
    source = read_net_source(LAYERS / name / "net.prototxt")
    case, meta = read_case(name)
    net = Net(source.param, phase=TRAIN if meta["phase"] == "train" else TEST, sources=source, seed=1)
    fill(net, case)
    for _ in range(meta["forwards"]):
        net.forward()
    for blob in meta["outputs"]:
        check(f"output {blob}", net.blobs[blob].data, case[f"out/{blob}"])
    if not meta.get("forward_only"):
        check_backward(net, case, meta)


def check_backward(net: Net, case: dict[str, np.ndarray], meta: dict) -> None:
    for key, values in case.items():
        kind, _, blob = key.partition("/")
        if kind == "topdiff":
            net.blobs[blob].diff = torch.from_numpy(values.copy())
    for parameter in net.parameters:
        parameter.clear_diff()
    net.backward()
    by_name = {layer.name: layer for layer in net.layers if layer.parameters}
    for key, values in case.items():
        kind, _, name = key.partition("/")
        if kind == "indiff":
            check(f"gradient of {name}", net.blobs[name].diff, values)
        elif kind in ("paramdiff", "paramafter"):
            layer, index = name.rsplit("/", 1)
            parameter = by_name[layer].parameters[int(index)]
            check(key, parameter.diff if kind == "paramdiff" else parameter.data, values)


def test_the_cases_cover_the_layers_that_have_any():
    types = {layer.type for name in NAMES for layer in read_net_source(LAYERS / name / "net.prototxt").param.layer}
    assert types <= set(registry.layer_types())
    assert len(NAMES) >= 60
