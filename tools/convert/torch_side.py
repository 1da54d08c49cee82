"""An exported program as one side of a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from mgcaffe.errors import DataError, describe_exception
from mgcaffe.tools.convert.torch_in.constants import constants_of
from mgcaffe.tools.convert.torch_in.operation import CHECKS, is_cast, is_copy, operator_name, shape_of


class TorchSide:
    """An exported program, run by PyTorch node by node; see `proof.Side`.

    Args:
        program: made by torch.export in evaluation mode.
        names: what to call the values of the graph's nodes, by the nodes' names; those that are missing are left out.
            Without any, values are called as their nodes are.
        outputs: what the values are called that the program returns; None: as their nodes are.
        dtype: what to compute in.
    """

    def __init__(
        self,
        program: ExportedProgram,
        names: Mapping[str, str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._program = program
        self._names = names or {node.name: node.name for node in program.graph.nodes}
        self._outputs = outputs
        self._dtype = dtype
        self._constants = {name: _as(each.tensor.detach(), dtype) for name, each in constants_of(program).items()}

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The inputs."""
        inputs = set(self._program.graph_signature.user_inputs)
        return {self._names[node.name]: shape_of(node) for node in self._program.graph.nodes if node.name in inputs}

    @property
    def outputs(self) -> Sequence[str]:
        """What the program returns."""
        if self._outputs is not None:
            return self._outputs
        return [self._names[str(name)] for name in self._program.graph_signature.user_outputs]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run node by node; what a later node writes over is kept as it was.

        Raises:
            DataError: PyTorch cannot run the program, though it could export it.
        """
        recorder = _Recorder(self._program.graph_module)
        # Copies, since a module may write over its inputs.
        nodes = {name: node for node, name in self._names.items()}
        given = {
            nodes[name]: values_of_input(self._program, nodes[name], values, self._dtype)
            for name, values in inputs.items()
        }
        try:
            with torch.no_grad():
                recorder.run(*_in_order(self._program, {**self._constants, **given}))
        except IndexError as error:
            raise DataError(
                f"PyTorch cannot run the program: {describe_exception(error).splitlines()[0]}",
                hint="the comparison feeds random numbers, which may be no rows of the table; --no_check leaves it out",
            ) from None
        except RuntimeError as error:
            raise DataError(f"PyTorch cannot run the program: {describe_exception(error).splitlines()[0]}") from None
        return {self._names[node]: values for node, values in recorder.values.items() if node in self._names}


class OneType(Interpreter):
    """Computes in the type that it is given values in: what makes others of them changes nothing."""

    def run_node(self, n: Node) -> Any:
        """Run a node, unless it checks or changes types."""
        if n.op != "call_function" or not hasattr(n.target, "_schema"):
            return super().run_node(n)
        if operator_name(n) in CHECKS:
            return None
        if is_cast(n):
            x = self.env[n.args[0]]  # type: ignore[index]
            return x.clone() if is_copy(n) else x
        return super().run_node(n)


class _Recorder(OneType):
    """Keeps a copy of every tensor that a node computes."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, np.ndarray] = {}

    def run_node(self, n: Node) -> Any:
        """Run a node and keep its value."""
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, torch.Tensor):
            self.values[n.name] = value.detach().clone().contiguous().numpy()
        return value


def values_of_input(program: ExportedProgram, name: str, values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy of an input's values in that type, or, where the program reads whole numbers, in theirs."""
    node = next(each for each in program.graph.nodes if each.name == name)
    own = node.meta["val"].dtype
    return torch.from_numpy(values).to(dtype if own.is_floating_point else own, copy=True)


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _in_order(program: ExportedProgram, values: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [values[node.name] for node in program.graph.nodes if node.op == "placeholder"]
