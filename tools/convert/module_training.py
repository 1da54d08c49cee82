"""The training step of what `module_files.py` writes, to be compared with that of the net that it was made of."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from mgcaffe.errors import describe_exception
from mgcaffe.tools.convert.module_side import read_side
from mgcaffe.tools.convert.torch_training import backward_of_loss
from mgcaffe.tools.convert.training_step import CannotTrain, Place, Take


class ModuleTraining:
    """A Python file with its weights beside it; see `training_step.TrainingSide`.

    Args:
        path: the Python file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def step(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray, output: str, take: Take) -> float:
        """Compute the step of the module in training mode and in float64; dropout is off.

        Raises:
            CannotTrain: PyTorch cannot compute the gradients, or refuses to train the module (BatchNorm's eps 0).
        """
        side = read_side(self._path, with_stored_numbers)
        module = side.module.double().train()
        for part in module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
            eps = getattr(part, "eps", None)
            if isinstance(eps, float):
                setattr(part, "eps", _stored(eps))  # noqa: B010  # which a type checker takes for a module
        places = side.parameters
        for name, parameter in module.named_parameters():
            parameter.register_post_accumulate_grad_hook(partial(_give, places.get(name), take))
        try:
            values = dict(side.statement_values([torch.from_numpy(inputs[name]).double() for name in side.inputs]))
            if output not in values:
                raise CannotTrain(f"no statement of the module assigns '{output}'")
            scores = values.pop(output)
            del values
            return backward_of_loss(scores, labels)
        except (RuntimeError, ValueError) as error:
            raise CannotTrain(f"PyTorch cannot compute it: {describe_exception(error).splitlines()[0]}") from None


def with_stored_numbers(text: str) -> str:
    """Return a module's code with numbers as the prototxt's fields hold them: 0.1 is 0.10000000149.

    F.hardsigmoid is written out, since its backward in PyTorch multiplies by float32's 1/6, also in float64.
    """
    tree = _WithoutHardSigmoid().visit(ast.parse(text))
    net = [node for node in tree.body if isinstance(node, ast.ClassDef)][-1]
    for node in ast.walk(net):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "F.local_response_norm":
            if "alpha" not in {keyword.arg for keyword in node.keywords}:  # PyTorch's default
                node.keywords.append(ast.keyword("alpha", ast.Constant(_stored(1e-4))))
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            node.value = _stored(node.value)
    return ast.unparse(tree)


class _WithoutHardSigmoid(ast.NodeTransformer):
    """Puts the line that F.hardsigmoid cuts off in its place."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace one call."""
        self.generic_visit(node)
        if ast.unparse(node.func) != "F.hardsigmoid":
            return node
        return ast.parse(f"(0.5 + {1 / 6!r} * {ast.unparse(node.args[0])}).clamp(0, 1)", mode="eval").body


def _stored(number: float) -> float:
    return float(np.float32(number))


def _give(place: tuple[Place, bool] | None, take: Take, parameter: torch.Tensor) -> None:
    """Hand over a gradient in the blob's layout, and do not keep it."""
    assert parameter.grad is not None
    if place is not None:
        take(place[0], (parameter.grad.t() if place[1] else parameter.grad).numpy())
    parameter.grad = None
