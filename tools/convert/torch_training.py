"""The training step of an exported program, to be compared with that of a net."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from mgcaffe.engine.layers.softmax_with_loss import TINY
from mgcaffe.tools.convert.importing.resizing import weighted_sums
from mgcaffe.tools.convert.importing.values import Constant
from mgcaffe.tools.convert.torch_in.activations import SELU_ALPHA, SELU_FACTOR
from mgcaffe.tools.convert.torch_in.constants import constant_values, constants_of
from mgcaffe.tools.convert.torch_in.importer import TorchModel
from mgcaffe.tools.convert.torch_in.operation import CHECKS, arguments_of, is_cast, operator_name, works_in_place
from mgcaffe.tools.convert.torch_in.products import scale_of
from mgcaffe.tools.convert.torch_in.weighted import RMS_EPS
from mgcaffe.tools.convert.torch_side import OneType, values_of_input
from mgcaffe.tools.convert.training_step import CannotTrain, Take


class TorchTraining:
    """A program of torch.export, made in evaluation mode; see `training_step.TrainingSide`.

    Args:
        program: the program.
        model: the net that was made of it.
    """

    def __init__(self, program: ExportedProgram, model: TorchModel) -> None:
        self._program = program
        self._names = model.names
        self._model = model
        # A parameter that layers share belongs to the first of them.
        self._places = {each.name: (place, each) for place, each in reversed(list(model.parameters.items()))}
        self._sums = _sums(model.parameters.values())

    def step(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray, output: str, take: Take) -> float:
        """Compute the step in float64, with every number as a prototxt or caffemodel holds it: float32.

        Raises:
            CannotTrain: PyTorch cannot compute the gradients, because a value that they need is written over.
        """
        program = self._program
        placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        fed = {
            self._names[name]: values_of_input(program, self._names[name], values, torch.float64)
            for name, values in inputs.items()
        }
        fixed: dict[Node, torch.Tensor] = {}
        for name, constant in constants_of(program).items():
            tensor = self._sums.get(constant.name, constant.tensor).detach()
            if not constant.trained:
                fixed[placeholders[name]] = tensor
                continue
            fed[name] = self._leaf(constant.name, tensor, take)
        leaves = {each.name: self._leaf(each.name, each.tensor, take) for each in self._model.replaced.values()}
        computed = constant_values(program.graph.nodes, fixed)
        held = {node: _held(value) for node, value in computed.items() if isinstance(value, torch.Tensor)}
        replaced = self._model.replaced
        held.update((node, leaves[replaced[node.name].name]) for node in program.graph.nodes if node.name in replaced)
        interpreter = _Trained(program.graph_module, held, self._model, self._names[output])
        arguments = [fed.get(name, held.get(node)) for name, node in placeholders.items()]
        del fed
        try:
            interpreter.run(*arguments)
            assert interpreter.scores is not None
            return backward_of_loss(interpreter.scores, labels)
        except (RuntimeError, IndexError) as error:
            raise CannotTrain(f"PyTorch cannot compute it: {str(error).splitlines()[0]}") from None

    def _leaf(self, name: str, tensor: torch.Tensor, take: Take) -> torch.Tensor:
        """Return a parameter's values as what gets a gradient, which is handed over."""
        leaf = _held(tensor).requires_grad_()
        leaf.register_post_accumulate_grad_hook(partial(self._give, name, take))
        return leaf

    def _give(self, name: str, take: Take, leaf: torch.Tensor) -> None:
        """Hand over a gradient, its rows in the net's order, and do not keep it.

        One of a parameter that has no place in the net is compared with zeros, under the parameter's own name.
        """
        assert leaf.grad is not None
        if name not in self._sums or name in self._places:
            place, parameter = self._places.get(name, ((name, 0), Constant(leaf)))
            rows = list(parameter.rows)
            take(place, (leaf.grad[rows] if rows else leaf.grad).numpy())
        leaf.grad = None


def backward_of_loss(scores: torch.Tensor, labels: np.ndarray) -> float:
    """Run backward from the softmax loss and return it as Caffe counts it: an item's is 87.3 at most."""
    losses = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).long(), reduction="none")
    losses.mean().backward()
    return float(losses.detach().clamp(max=-math.log(TINY)).mean())


class _Trained(OneType):
    """Normalizes by the batch's statistics; numbers in the graph are float32, constants are given.

    Args:
        module: the graph.
        held: the values of nodes that depend on nothing that is trained or fed.
        model: the net that was made of the graph.
        wanted: the node whose value is kept.

    Attributes:
        scores: that value.
    """

    def __init__(
        self,
        module: GraphModule,
        held: Mapping[Node, torch.Tensor],
        model: TorchModel,
        wanted: str,
    ) -> None:
        super().__init__(module)
        self._held = held
        self._roundings, self._matrices = model.roundings, model.matrices
        self._wanted = wanted
        self.scores: torch.Tensor | None = None

    def run_node(self, n: Node) -> Any:
        """Run a node, and keep its value if it is wanted."""
        value = self._value(n)
        if n.name in self._roundings:
            rounding = self._roundings[n.name]
            if isinstance(value, tuple):  # whose first is a quotient
                value = (value[0] * rounding, *value[1:])
            else:
                value = value.mul_(rounding) if works_in_place(n) else value * rounding
        if n.name == self._wanted:
            self.scores = value
        return value

    def _value(self, n: Node) -> Any:
        """Run a node; BatchNorm as in training mode, its averages left as they are."""
        if n.op != "call_function" or not hasattr(n.target, "_schema"):
            return super().run_node(n)
        if n in self._held:
            return self._held[n]
        if operator_name(n) in CHECKS or is_cast(n):
            return super().run_node(n)
        mapped: Any = self.map_nodes_to_values(arguments_of(n), n)
        given: dict[str, Any] = {
            name: float(np.float32(each)) if isinstance(each, float) else each for name, each in mapped.items()
        }
        if n.name in self._matrices:
            return weighted_sums(next(iter(given.values())), self._matrices[n.name])
        if operator_name(n) == "batch_norm" and given["running_mean"] is not None:
            given["training"] = True
            given["running_mean"], given["running_var"] = given["running_mean"].clone(), given["running_var"].clone()
        if operator_name(n) == "hardsigmoid":  # whose backward in PyTorch multiplies by float32's 1/6, also in float64
            return torch.relu_(given["self"] + 3).clamp(max=6) / 6
        if operator_name(n) == "selu":  # whose factors in PyTorch are its own, not float32
            alpha, factor = (float(np.float32(each)) for each in (SELU_ALPHA, SELU_FACTOR))
            return factor * torch.nn.functional.elu(given["self"], alpha)
        if operator_name(n) == "celu":  # whose layers multiply by a reciprocal that is float32
            alpha = given["alpha"]
            return alpha * torch.nn.functional.elu(given["self"] * float(np.float32(1 / alpha)))
        if operator_name(n) == "rms_norm" and given["eps"] is None:  # which depends on the type
            given["eps"] = RMS_EPS
        if operator_name(n) == "scaled_dot_product_attention":  # the field that has the factor is float32
            given["scale"] = float(np.float32(scale_of(given["scale"], given["query"].shape[-1])))
        schema = n.target._schema
        ordered = [given.pop(each.name) for each in schema.arguments if not each.kwarg_only]
        value = self.call_function(n.target, tuple(ordered), given)
        # Whole numbers and flags become float32 in the graph, and here are computed with in float64.
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _held(tensor: torch.Tensor) -> torch.Tensor:
    """Return what is left of a tensor in float32, as float64 and as a tensor of its own."""
    return tensor.float().to(torch.float64, copy=True) if tensor.is_floating_point() else tensor


def _sums(parameters: Iterable[Constant]) -> dict[str, torch.Tensor]:
    """Return, by name, what stands for the addends of a sum that a net holds in float32: the sum, and zeros."""
    found: dict[str, torch.Tensor] = {}
    for each in parameters:
        if each.addends:
            found[each.name] = torch.empty_like(each.tensor)
            found[each.name][list(each.rows) or ...] = each.tensor
            found.update((name, torch.zeros_like(each.tensor)) for name in each.addends)
    return found
