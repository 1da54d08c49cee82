"""Small ONNX models, written in ONNX's text form, converted and compared with onnxruntime, every blob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_files import read_onnx
from mgcaffe.tools.convert.onnx_side import OnnxSide
from mgcaffe.tools.convert.proof import compare
from tests.support.torchkit import check_shapes

SHAPE = (3, 4, 6, 6)


def model(
    body: str, weights: Mapping[str, Any] | None = None, *, opset: int = 17, shape: Sequence[int] = SHAPE
) -> onnx.ModelProto:
    """A model that makes `y` of `x`.

    Args:
        body: its nodes, in the form of onnx.parser.
        weights: by name a shape as a tuple (random values from 0.5 to 1.5), a list of whole numbers, a number or an
            array.
        opset: the version of the operators.
        shape: of x.
    """
    sizes = ",".join(map(str, shape))
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{sizes}] x) => (y) {{ {body} }}'
    message = onnx.parser.parse_model(text)
    generator = np.random.default_rng(7)
    for name, given in (weights or {}).items():
        message.graph.initializer.append(numpy_helper.from_array(_values(given, generator), name))
    return message


def _values(given: Any, generator: np.random.Generator) -> np.ndarray:
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, tuple):
        return generator.uniform(0.5, 1.5, given).astype(np.float32)
    return np.array(given, np.int64 if isinstance(given, list) else np.float32)


def written(message: onnx.ModelProto, folder: Path) -> Path:
    """The file that holds a model."""
    path = folder / "net.onnx"
    path.write_bytes(message.SerializeToString())
    return path


def converted(message: onnx.ModelProto, folder: Path) -> Model:
    """What a model becomes, after every blob that is in both was compared, the outputs among them."""
    path = written(message, folder)
    found = read_onnx(path)
    net = found.build()
    check_shapes(found, net)
    ours, theirs, inputs = CaffeSide(net), OnnxSide(path), fitting_inputs(net)
    expected = theirs.run({found.names[blob]: values for blob, values in inputs.items()})
    worst = compare(ours.run(inputs), expected, found.names)
    assert worst[0].largest_relative < 1e-5, worst[0]
    assert set(theirs.outputs) <= {found.names[each.name] for each in worst}, "an output was not compared"
    return found
