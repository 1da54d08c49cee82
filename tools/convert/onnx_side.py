"""An ONNX model as one side of a proof: onnxruntime runs it, with every value between its nodes as an output."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcaffe.errors import DataError, UsageError
from mgcaffe.tools.convert.onnx_reading import first_line, open_shape

if TYPE_CHECKING:
    import onnx

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}

_NO_KERNEL = "NOT_IMPLEMENTED"
"""What onnxruntime calls an operator that it has not for a type, such as double."""


def need_onnx(*modules: str) -> None:
    """Make sure that ONNX's packages are installed.

    Args:
        modules: "onnx", "onnxruntime".

    Raises:
        UsageError: one is not; names the command that installs it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(f"{' and '.join(missing)} {verb} not installed", hint="pip install 'mgcaffe[onnx]'")


class OnnxSide:
    """A model file; see `proof.Side`.

    Args:
        path: the file.
        shapes: shapes of inputs that the file leaves open, by name; the name '' means the first input.

    Raises:
        UsageError: onnxruntime is not installed, or the size of an input is open and not given.
        DataError: the file is no ONNX model that onnxruntime can run.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        need_onnx("onnx", "onnxruntime")
        self._path = path
        from mgcaffe.tools.convert.onnx_in.graph import parse_model

        model = parse_model(path)
        self._values = _value_names(model)
        self._outputs = [value.name for value in model.graph.output]
        self._session = _session(path, model, [name for name in self._values if name not in self._outputs])
        self._types = {each.name: _TYPES.get(each.type, np.float32) for each in self._session.get_inputs()}
        given = dict(shapes or {})
        self._inputs = {
            each.name: self._shape(each, given.get(each.name) or (given.get("") if number == 0 else None))
            for number, each in enumerate(self._session.get_inputs())
        }

    def _shape(self, value: Any, given: tuple[int, ...] | None) -> tuple[int, ...]:
        if given is not None:
            return given
        if not all(isinstance(size, int) and size >= 0 for size in value.shape):
            raise open_shape(self._path, value.name, value.shape)
        return tuple(value.shape)

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The model's inputs, weights aside."""
        return self._inputs

    @property
    def outputs(self) -> Sequence[str]:
        """The model's outputs."""
        return self._outputs

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once.

        Raises:
            DataError: onnxruntime cannot compute it.
        """
        names = [output.name for output in self._session.get_outputs()]
        fed: dict[str, np.ndarray] = {name: np.asarray(inputs[name]).astype(kind) for name, kind in self._types.items()}
        try:
            values = self._session.run(names, fed)
        except Exception as error:  # onnxruntime has a class for each of its codes, none of them public
            raise DataError(f"{self._path}: onnxruntime cannot run it: {first_line(error)}") from None
        return {
            name: value
            for name, value in zip(names, values, strict=True)
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
        }


def _value_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of all that the nodes make, those inside their subgraphs aside."""
    return [name for node in model.graph.node for name in node.output if name]


def _session(path: Path, model: onnx.ModelProto, more: Sequence[str]) -> Any:
    """Return a session of the model with `more` values as outputs, and none of onnxruntime's rearrangements."""
    import onnxruntime

    for name in more:
        model.graph.output.add(name=name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # The weights stay in the file, which is mapped into memory: no copy of them in another order either.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.resolve().parent))
    options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:
        message = first_line(error)
        hint = "--no_check converts without the comparison" if _NO_KERNEL in message else None
        raise DataError(f"{path}: onnxruntime does not take it: {message}", hint=hint) from None
