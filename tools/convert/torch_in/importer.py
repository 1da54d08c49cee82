"""Makes a net with weights of an exported program, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from mgcaffe.errors import NetError
from mgcaffe.prototxt.files import net_source
from mgcaffe.tools.convert.importing.layers_made import LayersMade
from mgcaffe.tools.convert.importing.operation import COMPUTES_WITH_WHOLE
from mgcaffe.tools.convert.importing.shapes import shuffled
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.torch_in.constants import constant_values, constants_of
from mgcaffe.tools.convert.torch_in.counting import COUNTING, moved
from mgcaffe.tools.convert.torch_in.idioms import Idiom, find_idioms
from mgcaffe.tools.convert.torch_in.interactions import find_interactions
from mgcaffe.tools.convert.torch_in.look_ups import LOOKING_UP, MOVING
from mgcaffe.tools.convert.torch_in.operation import (
    CHECKS,
    Operation,
    holds_whole_numbers,
    is_counted,
    memory_of,
    operator_name,
    refuse,
    shape_of,
    works_in_place,
)
from mgcaffe.tools.convert.torch_in.operators import OPERATORS
from mgcaffe.tools.convert.torch_in.shapes import shuffle_of
from mgcaffe.tools.convert.torch_in.zeroed import find_zeroed


@dataclass
class TorchModel(Model):
    """A net made of a program.

    Attributes:
        parameters: by layer and number of the blob, the parameter that is trained; its name is that in `state_dict`.
        roundings: by the name of a graph's value, what the net multiplies it by because a factor that the graph does
            not have is float32 in a file (1 / 3 where the graph divides by 3).
        matrices: by the name of a graph's value, the weights by which its pixels are sums of pixels, along each spatial
            axis, as float32 in a file rounds them.
        replaced: by the name of a graph's value, the parameter that the net trains in place of those that the value is
            computed of.
        outputs: the blobs that the program returns, in its order.
    """

    parameters: Mapping[tuple[str, int], Constant] = field(default_factory=dict)
    roundings: Mapping[str, torch.Tensor] = field(default_factory=dict)
    matrices: Mapping[str, Sequence[torch.Tensor]] = field(default_factory=dict)
    replaced: Mapping[str, Constant] = field(default_factory=dict)
    outputs: Sequence[str] = ()


def import_program(program: ExportedProgram, *, name: str, file: str) -> TorchModel:
    """Return the net that computes what an exported program does in evaluation mode.

    Layers are called after the modules that they come from, blobs after the layers. Data comes from Input layers,
    `data` if there is one.

    Args:
        program: made by torch.export, without decompositions.
        name: the net's.
        file: what it was made from, for messages.

    Raises:
        NetError: an operator is not in the table, or is used in a way that no layer has; says where in the user's
            Python.
    """
    return _Import(program, name).run(file)


class _Import:
    def __init__(self, program: ExportedProgram, name: str) -> None:
        self.program = program
        self.nodes = list(program.graph.nodes)
        self.made = LayersMade(name)
        self.known: dict[Node, Result] = {}
        self.done: set[Node] = set()
        self.idioms: dict[Node, Idiom] = {}
        self.inputs: set[str] = set()
        self.roundings: dict[str, torch.Tensor] = {}
        self.matrices: dict[str, Sequence[torch.Tensor]] = {}
        self.replaced: dict[str, Constant] = {}
        self.values: dict[str, str] = {}
        """By blob, as it is called before layers work in place, the graph's value."""

    def run(self, file: str) -> TorchModel:
        self._add_inputs(file)
        self._compute_constants()
        self._find_idioms()
        self._refuse_unknown()
        for place, node in enumerate(self.nodes):
            if node.op == "call_function" and node not in self.done and operator_name(node) not in CHECKS:
                self._add(place, node)
        outputs = self._outputs(file)
        self.made.drop_unread(outputs)
        self.made.silence(outputs)
        self.made.share_parameters()
        renamed = self.made.work_in_place(outputs)
        names = {renamed[blob]: value for blob, value in self.values.items() if blob in renamed}
        source = net_source(self.made.net, file=file)
        return TorchModel(
            source,
            self.made.weights(),
            names,
            parameters=self.made.parameters(),
            roundings=self.roundings,
            matrices=self.matrices,
            replaced=self.replaced,
            outputs=[renamed[blob] for blob in outputs],
            shapes=self.made.shapes,
            all_items=self.made.all_items,
        )

    def _compute_constants(self) -> None:
        """Compute what depends on no input and on no parameter that is trained, with PyTorch."""
        given = {
            node: value.tensor.detach()
            for node, value in self.known.items()
            if isinstance(value, Constant) and not value.trained
        }
        for node, value in constant_values(self.nodes, given).items():
            if node in given:
                continue
            self.done.add(node)
            if isinstance(value, torch.Tensor):
                self.known[node] = Constant(value)

    def _find_idioms(self) -> None:
        """Find nodes that are one layer together; but for the last one they need none of their own."""
        left = [node for node in self.nodes if node not in self.done]
        constants = {node: each.tensor for node, each in self.known.items() if isinstance(each, Constant)}
        self.idioms = {
            **find_idioms(left),
            **find_interactions(left, constants),
            **find_zeroed(left, constants),
        }
        for last, idiom in self.idioms.items():
            self.done |= idiom.nodes - {last}

    def _refuse_unknown(self) -> None:
        """Refuse the first operator that the table lacks, and count all of them."""
        known = {*OPERATORS, *CHECKS}
        seen = self.done | self.idioms.keys()
        others = [node for node in self.nodes if node.op not in ("placeholder", "output") and node not in seen]
        unknown = [node for node in others if node.op != "call_function" or operator_name(node) not in known]
        if not unknown:
            return
        counts = Counter(str(node.target) for node in unknown)
        rest = ", ".join(f"{name} ({count})" for name, count in counts.items() if name != str(unknown[0].target))
        refuse(
            unknown[0],
            "no layer computes this operator",
            f"the model needs these as well, which no layer computes: {rest}" if rest else None,
        )

    def _add_inputs(self, file: str) -> None:
        constants = constants_of(self.program)
        names = list(self.program.graph_signature.user_inputs)
        for node in self.nodes:
            if node.op != "placeholder":
                continue
            if node.name in constants:
                self.known[node] = constants[node.name]
            elif node.name in names:
                value = node.meta.get("val")
                if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or holds_whole_numbers(node)):
                    kind = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "no tensor"
                    raise NetError(
                        f"{file}: input '{node.name}' is {kind}; blobs hold floating-point numbers, int32 or int64"
                    )
                if any(not isinstance(size, int) for size in value.shape):
                    raise NetError(
                        f"{file}: input '{node.name}' has a size that is not fixed",
                        hint="export without dynamic_shapes; Caffe's shapes can be changed after the conversion",
                    )
                blob = self.made.add_input("data" if len(names) == 1 else node.name, shape_of(node))
                self.known[node], self.values[blob.blob] = blob, node.name
                self.inputs.add(blob.blob)

    def _add(self, place: int, node: Node) -> None:
        """Add the layers of a node, and let a result that was written in place be that of the nodes before."""
        if not node.users and not works_in_place(node):
            return
        if works_in_place(node) and not isinstance(self.known[node.args[0]], Value):  # type: ignore[index]
            refuse(node, "it changes a parameter or buffer, which only training does")
        self._check_whole_numbers(node)
        shuffle, idiom = shuffle_of(node), self.idioms.get(node)
        operation = Operation(node, self.known, self.made)
        result: Result
        if idiom is not None:
            operation.name = idiom.name
            result = idiom.make(operation, operation.as_blob(self.known[idiom.source]))
        elif shuffle is not None:
            last, groups = shuffle
            operation.name = "channel_shuffle"
            result = shuffled(operation, operation.blob(), groups)
            while node is not last:
                self.done.add(node)
                node = next(iter(node.users))
            self.done.add(last)
        else:
            result = OPERATORS[operator_name(node)](operation)
            if operator_name(node) in MOVING:
                result = moved(operation, result)
        if operation.rounding is not None:
            self.roundings[node.name] = operation.rounding
        if operation.replaced is not None:
            self.replaced[node.name] = operation.replaced
        if operation.matrices is not None:
            self.matrices[node.name] = operation.matrices
        if works_in_place(node):
            self._replace(place, node, result)
        self.known[node] = result
        if (idiom is not None and idiom.changes) or (isinstance(result, Value) and result.stands_in):
            return
        if isinstance(result, Value) and not result.pad and result.blob not in self.inputs:
            if result.blob not in self.values or node.name in self.program.graph_signature.user_outputs:
                self.values[result.blob] = node.name
        elif not isinstance(result, (Value, Constant)):
            for user in node.users:
                number = user.args[1]
                if operator_name(user) == "getitem" and isinstance(number, int) and number < len(result):
                    self.values.setdefault(result[number].blob, user.name)

    def _check_whole_numbers(self, node: Node) -> None:
        """Refuse to compute with whole numbers that are not known, or to join them with others."""
        whole = [each for each in node.all_input_nodes if is_counted(each)]
        name, value = operator_name(node), node.meta.get("val")
        moves = name in MOVING and not (isinstance(value, torch.Tensor) and value.is_floating_point())
        allowed = moves or name in LOOKING_UP or name in COUNTING
        if not allowed and any(isinstance(self.known[each], Value) for each in whole):
            refuse(node, COMPUTES_WITH_WHOLE, "cast an input that is also read as numbers in forward: ids.long()")

    def _replace(self, place: int, node: Node, result: Result) -> None:
        """Let everything that was the value that `node` writes over be the result."""
        old = self.known[node.args[0]]  # type: ignore[index]
        assert isinstance(old, Value)
        later = set(self.nodes[place + 1 :])
        others = self.made.views_of_the_same(old)
        for other, value in list(self.known.items()):
            if value == old and memory_of(other) is memory_of(node):
                self.known[other] = result
            elif isinstance(value, Value) and value.blob in others and later & set(other.users):
                refuse(node, "it writes over a part or view of a value that is read afterwards", "write a copy instead")

    def _outputs(self, file: str) -> list[str]:
        names = list(self.program.graph_signature.user_outputs)
        by_name = {node.name: node for node in self.known}
        blobs = []
        for name in names:
            node = by_name.get(str(name))
            if node is not None and is_counted(node) and node.op != "placeholder":
                refuse(node, "it makes whole numbers for an output, and only Embed and EmbeddingBag read such")
            value = None if node is None else self.known[node]
            if not isinstance(value, Value) or value.pad or value.blob in self.inputs:
                raise NetError(f"{file}: output '{name}' is not computed from the input by any layer")
            blobs.append(value.blob)
        return blobs
