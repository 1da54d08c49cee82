"""The golden layer cases: nets of a few layers, and what a real Caffe computed with them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.support.paths import GOLDEN

LAYERS = GOLDEN / "layers"
NAMES = sorted(path.name for path in LAYERS.iterdir())


def read_case(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the values of a case, by kind and blob as "in/data", and what is said of them (phase, outputs)."""
    values = dict(np.load(LAYERS / name / "case.npz"))
    return values, json.loads(str(values.pop("meta")))
