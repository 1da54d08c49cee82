"""Makes a net with weights of an ONNX graph, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from mgcaffe.errors import Location, NetError, UsageError
from mgcaffe.prototxt.files import net_source
from mgcaffe.tools.convert.importing.layers_made import LayersMade
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_in.folding import OF_SHAPES, Allowance, compute, is_computed, shape_values
from mgcaffe.tools.convert.onnx_in.graph import Graph, Node
from mgcaffe.tools.convert.onnx_in.idioms import find_idioms
from mgcaffe.tools.convert.onnx_in.names import layer_names
from mgcaffe.tools.convert.onnx_in.operation import Known, Operation, refuse, shape_of
from mgcaffe.tools.convert.onnx_in.operators import MOVING, OPERATORS
from mgcaffe.tools.convert.onnx_in.tensors import MAX_VALUES
from mgcaffe.tools.convert.onnx_reading import open_shape

_SAME_WEIGHT = ("Identity", "Cast", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
_MASKING = -1e4
"""No weight is so low: such a number is added to scores to mask them."""
OURS = "mgcaffe"
"""What our own exporter calls itself."""


def import_graph(graph: Graph, *, name: str, input_shapes: Mapping[str, Shape] | None = None) -> Model:
    """Return the net that computes what a graph does.

    Layers are called after nodes (see names.py), blobs after the layers. Data comes from Input layers, `data` if there
    is one.

    Args:
        graph: the model.
        name: the net's.
        input_shapes: shapes of inputs that the file leaves open, by name; the name '' means the first input.

    Raises:
        UsageError: a shape is open and not given, or given and not the file's.
        NetError: an operator is not in the table, or is used in a way that no layer has.
        DataError: constants do not fit together.
    """
    return _Import(graph, name, input_shapes or {}).run()


class _Import:
    def __init__(self, graph: Graph, name: str, input_shapes: Mapping[str, Shape]) -> None:
        self.graph = graph
        self.made = LayersMade(name)
        self.known: dict[str, Known] = {}
        self.inputs: set[str] = set()
        self.done: set[int] = set()
        self.values: dict[str, str] = {}
        """By blob, as it is called before layers work in place, the graph's value."""
        self.shapes = _input_shapes(graph, input_shapes)
        self.allowance = Allowance(graph)

    def run(self) -> Model:
        self.known.update((name, _weight(name, tensor)) for name, tensor in self.graph.tensors.items())
        needed = self._needed()
        for node in needed:
            self._compute(node)
        left = [node for node in needed if node.number not in self.done]
        constants = {name: value for name, value in self.known.items() if isinstance(value, Constant)}
        idioms = find_idioms(self.graph, constants)
        inside = {number for idiom in idioms.values() for number in idiom.nodes}
        self._refuse_unknown([node for node in left if node.number not in inside])
        names = layer_names(self.graph, left)
        self._add_inputs()
        for node in left:
            if node.number in idioms:
                idiom = idioms[node.number]
                operation = Operation(self.graph, node, [self.known[idiom.source]], names[node.number], self.made)
                self._know(node, [idiom.make(operation, operation.blob())])
            elif node.number not in inside and node.number not in self.done and not self._compute(node):
                self._add(node, names[node.number])
        return self._model()

    def _model(self) -> Model:
        outputs = self._outputs()
        self.made.drop_unread(outputs)
        self.made.silence(outputs)
        self.made.share_parameters()
        renamed = self.made.work_in_place(outputs)
        names = {renamed[blob]: value for blob, value in self.values.items() if blob in renamed}
        source = net_source(self.made.net, file=str(self.graph.path))
        return Model(source, self.made.weights(), names, shapes=self.made.shapes, all_items=self.made.all_items)

    def _needed(self) -> list[Node]:
        """Return the nodes that outputs depend on."""
        wanted = set(self.graph.outputs)
        found = []
        for node in reversed(self.graph.nodes):
            if wanted & set(node.outputs):
                wanted |= set(node.inputs)
                found.append(node)
        return found[::-1]

    def _compute(self, node: Node) -> bool:
        """Compute a node if its inputs are constants, or only their shapes count; return whether it was."""
        if not is_computed(node):
            return False
        inputs = [self.known.get(name) if name else None for name in node.inputs]
        if node.operator in OF_SHAPES:
            if not inputs or inputs[0] is None:
                return False
            self._know(node, [Constant(shape_values(node, shape_of(inputs[0]), self.graph.opset))])
            return True
        if any(name and not isinstance(value, Constant) for name, value in zip(node.inputs, inputs, strict=True)):
            return False
        if self._goes_on_learning(node, inputs):
            return False
        tensors = [value.tensor if isinstance(value, Constant) else None for value in inputs]
        first = inputs[0] if inputs else None
        # A weight in another form is still one. Exporters that store equal weights once give each a name by Identity.
        trained = isinstance(first, Constant) and first.trained and node.operator in _SAME_WEIGHT
        self._know(node, [
            None if tensor is None else Constant(tensor, name if trained else "", trained)
            for name, tensor in zip(node.outputs, compute(self.graph, node, tensors, self.allowance), strict=False)
        ])  # fmt: skip
        return True

    def _goes_on_learning(self, node: Node, inputs: Sequence[Known | None]) -> bool:
        """Return whether a node takes rows of a weight, or repeats one that is joined to what is computed of items."""
        first = inputs[0] if inputs else None
        if not isinstance(first, Constant) or not first.trained:
            return False
        if node.kind == "Gather":
            return first.tensor.dim() == 2
        readers = self.graph.readers.get(node.outputs[0], ())
        return node.kind == "Expand" and bool(readers) and all(each.kind == "Concat" for each in readers)

    def _know(self, node: Node, results: Sequence[Known | None]) -> None:
        """Remember what the outputs of a node have become."""
        self.done.add(node.number)
        for name, result in zip(node.outputs, results, strict=False):
            if name and result is not None:
                self.known[name] = result
                if isinstance(result, Value) and not result.pad and result.blob not in self.inputs:
                    taken = result.blob in self.values and name not in self.graph.outputs
                    self.values[result.blob] = self.values[result.blob] if taken else name

    def _refuse_unknown(self, nodes: Sequence[Node]) -> None:
        """Refuse the first operator that the table lacks, and count all of them."""
        constant = set(self.known)
        unknown = []
        for node in nodes:
            of_constants = is_computed(node) and (node.operator in OF_SHAPES or constant >= set(node.inputs) - {""})
            if of_constants:
                constant |= set(node.outputs)
            elif node.kind not in OPERATORS:
                unknown.append(node)
        if not unknown:
            return
        counts = Counter(node.kind for node in unknown)
        rest = ", ".join(f"{kind} ({count})" for kind, count in counts.items() if kind != unknown[0].kind)
        refuse(
            self.graph,
            unknown[0],
            "no layer computes this operator",
            f"the model needs these as well, which no layer computes: {rest}" if rest else None,
        )

    def _add_inputs(self) -> None:
        for name, shape in self.shapes.items():
            only = len(self.shapes) == 1 and self.graph.producer != OURS
            blob = self.made.add_input("data" if only else name, shape)
            self.known[name] = replace(blob, whole=name in self.graph.whole_inputs)
            self.values[blob.blob] = name
            self.inputs.add(blob.blob)

    def _add(self, node: Node, name: str) -> None:
        """Add the layers of a node."""
        inputs: list[Known | None] = []
        for each in node.inputs:
            if each and each not in self.known:
                refuse(self.graph, node, f"it reads '{each}', which no layer makes")
            inputs.append(self.known[each] if each else None)
        moves_whole = node.kind in MOVING and isinstance(inputs[0], Value) and inputs[0].whole
        if moves_whole:
            if any(isinstance(each, Value) and not each.whole for each in inputs):
                refuse(self.graph, node, "it joins whole numbers, which rows of tables are looked up by, with others")
            inputs = [replace(each, whole=False) if isinstance(each, Value) else each for each in inputs]
        operation = Operation(self.graph, node, inputs, name, self.made)
        operation.lookup = self.known.get
        results = OPERATORS[node.kind](operation)
        if moves_whole:
            several = [results] if isinstance(results, (Value, Constant)) else results
            results = [replace(each, whole=True) if isinstance(each, Value) else each for each in several]
        last = node
        for last in operation.absorbed:
            self.done.add(last.number)
        self._know(last, [results] if isinstance(results, (Value, Constant)) else results)
        self.done.add(node.number)

    def _outputs(self) -> list[str]:
        blobs = []
        for name in self.graph.outputs:
            value = self.known.get(name)
            if isinstance(value, Value) and value.whole and value.blob not in self.inputs:
                raise NetError(
                    f"output '{name}' holds whole numbers, which only Embed and EmbeddingBag read",
                    location=Location(str(self.graph.path)),
                )
            if not isinstance(value, Value) or value.pad or value.blob in self.inputs:
                raise NetError(
                    f"output '{name}' is not computed from the input by any layer",
                    location=Location(str(self.graph.path)),
                )
            blobs.append(value.blob)
        return blobs


def _weight(name: str, tensor: torch.Tensor) -> Constant:
    """Return what a tensor of the file becomes: one that is trained, if its numbers may be a weight's."""
    masks = tensor.is_floating_point() and bool((tensor.detach() <= _MASKING).any())
    return Constant(tensor, name, trained=tensor.is_floating_point() and not masks)


def _input_shapes(graph: Graph, given: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shape of each input, as the file or the user gives it."""
    names = list(graph.inputs)
    wanted = {name or names[0]: shape for name, shape in given.items()}
    for name in wanted:
        if name not in graph.inputs:
            raise UsageError(f"{graph.path} has no input '{name}'", hint=f"it has {', '.join(names)}")
    return {name: _input_shape(graph, name, wanted.get(name)) for name in names}


def _input_shape(graph: Graph, name: str, given: Shape | None) -> Shape:
    stored = graph.inputs[name]
    written = ", ".join("?" if size is None else str(size) for size in stored)
    if given is None:
        if not all(isinstance(size, int) and size > 0 for size in stored):
            raise open_shape(graph.path, name, stored)
        given = tuple(size for size in stored if isinstance(size, int))
    pairs = zip(stored, given, strict=False)
    if len(given) != len(stored) or any(isinstance(one, int) and one > 0 and one != two for one, two in pairs):
        raise UsageError(f"{graph.path}: input '{name}' has the shape ({written}), not {given}")
    count = 1
    for size in given:
        count *= size
    if not given or count > MAX_VALUES:
        raise NetError(f"input '{name}' has shape {given}, which no blob can have", location=Location(str(graph.path)))
    return given
