"""Reads an ONNX file into plain objects, and checks that it is a graph: names, order, types, versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mgcaffe.errors import DataError, describe_exception
from mgcaffe.tools.convert.onnx_in.tensors import FLOATS, MAX_AXES, WHOLE_NUMBERS, read_tensor, type_name
from mgcaffe.tools.convert.onnx_in.texts import check_texts
from mgcaffe.tools.convert.onnx_reading import read_model

if TYPE_CHECKING:
    import onnx

FIRST_OPSET = 9
"""The oldest version of ONNX's operators that is read."""
DOMAINS = ("", "ai.onnx")
"""The names of the domain of ONNX's own operators."""
# By the number of AttributeProto.AttributeType: the field of its value.
_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}
SCOPES = "pkg.torch.onnx.name_scopes"
"""Under which PyTorch's exporter says which module a node comes from."""


@dataclass(frozen=True)
class Node:
    """One node.

    Attributes:
        number: its place in the graph.
        operator: its type.
        domain: of the operator; empty for ONNX's own.
        name: may be empty.
        inputs: names of values; empty for one that is left out.
        outputs: the same.
        attributes: by name: float, int, bytes, torch.Tensor, or lists of the first three; None for types that no
            operator of the table has (graphs, sparse tensors).
        scopes: what PyTorch's exporter says of its module, or empty.
    """

    number: int
    operator: str
    domain: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    scopes: str = ""

    @property
    def kind(self) -> str:
        """The operator with its domain, unless that is ONNX's own."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    def __str__(self) -> str:
        """Return operator, name, number and values, as errors give them."""
        name = f" '{self.name}'" if self.name else ""
        makes = ", ".join(f"'{value}'" for value in self.outputs if value)
        return f"operator {self.kind}, node {self.number}{name}, which makes {makes or 'nothing'}"


@dataclass
class Graph:
    """A model.

    Attributes:
        path: its file.
        opset: the version of ONNX's operators that it asks for.
        producer: what wrote it.
        inputs: shapes of its inputs, by name; a name or None stands for a size that is open.
        whole_inputs: names of those that hold whole numbers.
        outputs: names of its outputs.
        tensors: its weights, by name.
        nodes: in an order in which each reads what those before it make.
    """

    path: Path
    opset: int
    producer: str
    inputs: Mapping[str, tuple[int | str | None, ...]]
    whole_inputs: Collection[str]
    outputs: Sequence[str]
    tensors: Mapping[str, torch.Tensor]
    nodes: Sequence[Node]
    readers: Mapping[str, Sequence[Node]] = field(init=False)
    """The nodes that read a value, by its name."""

    def __post_init__(self) -> None:
        """Find the readers."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(node)
        self.readers = readers


def graph_of(message: onnx.ModelProto, path: Path) -> Graph:
    """Return the graph of a file that was parsed.

    Raises:
        DataError: it is damaged, or a model of operators that are older or newer than those known.
    """
    try:
        opset = _opset(message, path)
        graph = _graph(message, path, opset)
    except (UnicodeDecodeError, AttributeError) as error:  # strings that are none, as protobuf's accessors say it
        raise DataError(f"{path} is damaged: {describe_exception(error)}") from None
    _check(graph)
    return graph


def parse_model(path: Path) -> onnx.ModelProto:
    """Read a file as a message; large arrays stay in the file.

    Raises:
        DataError: it cannot be read, or is no model.
    """
    message = read_model(path)
    if not message.HasField("graph") or not message.opset_import:
        raise DataError(f"{path} is no ONNX model: it has no graph or no version of its operators")
    try:
        check_texts(message, path)
    except UnicodeDecodeError as error:  # as some versions of protobuf say it
        raise DataError(f"{path} is damaged: {describe_exception(error)}") from None
    return message


def _opset(message: onnx.ModelProto, path: Path) -> int:
    from onnx import defs

    versions = [int(each.version) for each in message.opset_import if each.domain in DOMAINS]
    if len(set(versions)) != 1:
        raise DataError(f"{path} says {len(versions)} times which version of ONNX's operators it has, not once")
    if versions[0] < FIRST_OPSET:
        raise DataError(
            f"{path} is of opset {versions[0]}; {FIRST_OPSET} and later are read",
            hint="onnx.version_converter.convert_version brings it to a later one",
        )
    if versions[0] > defs.onnx_opset_version():
        raise DataError(
            f"{path} is of opset {versions[0]}; the installed onnx knows those up to {defs.onnx_opset_version()}",
            hint="pip install --upgrade onnx onnxruntime",
        )
    return versions[0]


def _graph(message: onnx.ModelProto, path: Path, opset: int) -> Graph:
    given = message.graph
    if given.sparse_initializer:
        raise DataError(f"{path} has sparse weights, which are not read")
    tensors: dict[str, torch.Tensor] = {}
    for tensor in given.initializer:
        if not tensor.name or tensor.name in tensors:
            raise DataError(f"{path} has two weights called '{tensor.name}', or one without a name")
        tensors[tensor.name] = read_tensor(tensor, path, f"weight '{tensor.name}'")
    inputs: dict[str, tuple[int | str | None, ...]] = {}
    for value in given.input:
        if value.name in inputs or not value.name:
            raise DataError(f"{path} has two inputs called '{value.name}', or one without a name")
        if value.name not in tensors:
            inputs[value.name] = _input_shape(value, path)
    whole = {value.name for value in given.input if value.type.tensor_type.elem_type in WHOLE_NUMBERS}
    outputs = [value.name for value in given.output]
    nodes = [_node(number, node, path) for number, node in enumerate(given.node)]
    return Graph(path, opset, message.producer_name, inputs, whole, outputs, tensors, nodes)


def _input_shape(value: onnx.ValueInfoProto, path: Path) -> tuple[int | str | None, ...]:
    kind = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or kind.elem_type not in FLOATS | WHOLE_NUMBERS:
        what = type_name(kind.elem_type) if value.type.WhichOneof("value") == "tensor_type" else "no tensor"
        raise DataError(f"{path}: input '{value.name}' is {what}; blobs hold floating-point numbers, int32 or int64")
    if not kind.HasField("shape"):
        raise DataError(f"{path}: input '{value.name}' has no shape, not even an open one")
    if len(kind.shape.dim) > MAX_AXES:
        raise DataError(f"{path}: input '{value.name}' has {len(kind.shape.dim)} axes; a blob has at most {MAX_AXES}")
    return tuple(
        int(size.dim_value) if size.HasField("dim_value") else (size.dim_param or None) for size in kind.shape.dim
    )


def _node(number: int, node: onnx.NodeProto, path: Path) -> Node:
    domain = "" if node.domain in DOMAINS else node.domain
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in attributes:
            raise DataError(f"{path}: node {number} ({node.op_type}) has two attributes '{attribute.name}'")
        attributes[attribute.name] = _attribute(attribute, path, f"node {number} ({node.op_type})")
    scopes = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "")
    return Node(
        number, node.op_type, domain, node.name, tuple(node.input), tuple(node.output), attributes, scopes
    )  # fmt: skip


def _attribute(attribute: onnx.AttributeProto, path: Path, where: str) -> Any:
    name = _FIELDS.get(attribute.type)
    if attribute.ref_attr_name or name is None:
        return None
    value = getattr(attribute, name)
    if name == "t":
        return read_tensor(value, path, f"attribute '{attribute.name}' of {where}")
    return value if name in ("f", "i", "s") else list(value)


def _check(graph: Graph) -> None:
    """Check that every name is made once, and before it is read."""
    made = {*graph.inputs, *graph.tensors}
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in made:
                raise DataError(f"{graph.path}: nothing before it makes '{name}' ({node})")
        for name in node.outputs:
            if name in made:
                raise DataError(f"{graph.path}: '{name}' is there already ({node})")
            if name:
                made.add(name)
    if not graph.outputs:
        raise DataError(f"{graph.path} has no outputs")
    for name in graph.outputs:
        if name not in made:
            raise DataError(f"{graph.path}: nothing makes the output '{name}'")
    if not graph.inputs:
        raise DataError(f"{graph.path} has no inputs but weights")
