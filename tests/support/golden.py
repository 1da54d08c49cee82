"""The golden layer cases: nets of a few layers, and what a real Caffe computed with them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import read_net_source
from tests.support.paths import GOLDEN

LAYERS = GOLDEN / "layers"
NAMES = sorted(path.name for path in LAYERS.iterdir())


def read_case(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the values of a case, by kind and blob as "in/data", and what is said of them (phase, outputs)."""
    values = dict(np.load(LAYERS / name / "case.npz"))
    return values, json.loads(str(values.pop("meta")))


def read_test_net(name: str) -> tuple[Net, dict[str, np.ndarray], list[str]]:
    """Return the net of a case in its TEST phase, with what the case's own phase means for BatchNorm.

    Returns:
        The net, whose values are not the case's yet; the case's values; the blobs that it recorded.
    """
    case, meta = read_case(name)
    source = read_net_source(LAYERS / name / "net.prototxt")
    for layer in source.param.layer:
        if layer.type == "BatchNorm" and meta["phase"] == "train" and not layer.batch_norm_param.use_global_stats:
            layer.batch_norm_param.use_global_stats = False
    return Net(source.param, phase=TEST, sources=source, seed=1), case, meta["outputs"]


def fill(net: Net, case: dict[str, np.ndarray]) -> None:
    """Put the inputs and the parameters of a case into its net."""
    for key, values in case.items():
        kind, _, name = key.partition("/")
        if kind == "in":
            net.blobs[name].data.copy_(torch.from_numpy(values))
        elif kind == "param":
            layer_name, index = name.rsplit("/", 1)
            layer = next(one for one in net.layers if one.name == layer_name and one.parameters)
            layer.parameters[int(index)].data.copy_(torch.from_numpy(values))


def check_case(name: str, device: torch.device | str = "cpu") -> None:
    """Compare what a net of ours computes in both directions with what Caffe computed."""
    source = read_net_source(LAYERS / name / "net.prototxt")
    case, meta = read_case(name)
    net = Net(source.param, phase=TRAIN if meta["phase"] == "train" else TEST, sources=source, seed=1, device=device)
    fill(net, case)
    for _ in range(meta["forwards"]):
        net.forward()
    for blob in meta["outputs"]:
        _check(f"output {blob}", net.blobs[blob].data, case[f"out/{blob}"])
    if not meta.get("forward_only"):
        _check_backward(net, case)


def _check_backward(net: Net, case: dict[str, np.ndarray]) -> None:
    for key, values in case.items():
        kind, _, blob = key.partition("/")
        if kind == "topdiff":
            net.blobs[blob].diff = torch.from_numpy(values.copy()).to(net.device)
    for parameter in net.parameters:
        parameter.clear_diff()
    net.backward()
    by_name = {layer.name: layer for layer in net.layers if layer.parameters}
    for key, values in case.items():
        kind, _, name = key.partition("/")
        if kind == "indiff":
            _check(f"gradient of {name}", net.blobs[name].diff, values)
        elif kind in ("paramdiff", "paramafter"):
            layer, index = name.rsplit("/", 1)
            parameter = by_name[layer].parameters[int(index)]
            _check(key, parameter.diff if kind == "paramdiff" else parameter.data, values)


def _check(what: str, found: torch.Tensor, expected: np.ndarray) -> None:
    values = found.detach().cpu().numpy()
    assert values.shape == expected.shape, f"{what} has shape {values.shape}, Caffe's has {expected.shape}"
    error = np.abs(values - expected) - (2e-5 + 2e-4 * np.abs(expected))
    assert error.max(initial=-1) <= 0, f"{what} differs by {np.abs(values - expected).max()}"
