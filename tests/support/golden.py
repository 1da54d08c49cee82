"""The golden layer cases: nets of a few layers, and what a real Caffe computed with them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.net import Net
from tests.support.paths import GOLDEN

LAYERS = GOLDEN / "layers"
NAMES = sorted(path.name for path in LAYERS.iterdir())


def read_case(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the values of a case, by kind and blob as "in/data", and what is said of them (phase, outputs)."""
    values = dict(np.load(LAYERS / name / "case.npz"))
    return values, json.loads(str(values.pop("meta")))


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
