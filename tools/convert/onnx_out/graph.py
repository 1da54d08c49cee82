"""An ONNX graph while it is being built: nodes, names that are used once, and arrays that are not copied.

Arrays stay where they are (a net's weights in its arena) until the file is written, so that a model of n bytes of
weights costs n bytes, not two or three times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

OPSET = 23
"""The version of ONNX's operators that models are written for: the newest that onnxruntime 1.23 knows, the last one for
Python 3.10."""
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
_TYPES = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64}


class Graph:
    """Nodes in order, with the arrays, inputs and outputs that they need.

    Attributes:
        name: of the net.
        nodes: in the order in which they run.
        arrays: the initializers by name, float32 or int64.
        opset: the version of the operators; a layer that needs an older one lowers it.
        metadata: what the file says of itself, by key.
        inputs, outputs, values: descriptions (name, type, shape) of the graph's ends and of the values between.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.opset = OPSET
        self.metadata: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.values: list[onnx.ValueInfoProto] = []
        self._names: set[str] = set()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def reserve(self, names: Sequence[str]) -> None:
        """Keep names for values that come later."""
        self._names.update(names)

    def new_name(self, wished: str) -> str:
        """Return a name that nothing has yet: the wished one, or that with a number."""
        name, number = wished, 2
        while name in self._names:
            name, number = f"{wished}#{number}", number + 1
        self._names.add(name)
        return name

    def array(self, values: np.ndarray, wished: str) -> str:
        """Add an array and return its name."""
        name = self.new_name(wished)
        self.arrays[name] = values
        return name

    def constant(self, values: np.ndarray, wished: str) -> str:
        """Add a small array and return its name; equal ones are there once."""
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._constants:
            self._constants[key] = self.array(values, wished)
        return self._constants[key]

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        """Add a node."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=name, **attributes))


def value_info(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    """Describe a value in float32; a size that varies is a text."""
    return helper.make_tensor_value_info(name, FLOAT, list(shape))


def array_type(values: np.ndarray) -> int:
    """Return ONNX's number for the type of an array."""
    return _TYPES[values.dtype]
