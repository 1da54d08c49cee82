"""Trains the networks of examples/pytorch in ways that must give the same weights whatever class averages gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from networks.deep_mlp import DeepMlp
from networks.digits import DigitsNet
from networks.gpt import GPT
from networks.lstm import LstmLanguageModel
from networks.mobilenet import MobileNetV2
from networks.resnet import ResNet18


@dataclass(frozen=True)
class Network:
    """A network and what it is trained on here.

    Attributes:
        make: returns the module.
        shape: of a batch; of tokens, if these have a `vocabulary`.
        classes: the length of its output's last dimension.
        vocabulary: how many tokens there are; 0: the batch holds real numbers.
        skipped: the name of a part that a pass may leave out, as its value has its input's shape.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    vocabulary: int = 0
    skipped: str = ""


NETWORKS = {
    "digits": Network(DigitsNet, (8, 1, 8, 8), 10),
    "gpt": Network(lambda: GPT(16, 64, 64, 2, 4), (4, 32), 16, vocabulary=16, skipped="blocks.1"),
    "resnet18": Network(lambda: ResNet18(10), (4, 3, 32, 32), 10, skipped="layer3.1"),
    "mobilenet_v2": Network(lambda: MobileNetV2(10), (4, 3, 32, 32), 10, skipped="features.3"),
    "lstm": Network(lambda: LstmLanguageModel(2000, 128), (2, 12), 2000, vocabulary=2000),
    "deep_mlp": Network(DeepMlp, (8, 128), 128, skipped="layers.30"),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-4),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}
WAYS = ("plain", "accumulated", "unused", "uneven")
"""Each step by one backward pass; by two, the first under no_sync(); with parameters that some passes leave out; with
fewer steps on higher ranks, by join()."""
_MANY = 1000


class Skippable(nn.Module):
    """A part that a pass leaves out while `is_left_out`."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part
        self.is_left_out = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.is_left_out else self.part(x)


class WithUnused(nn.Module):
    """A network with parts that a pass may leave out, and one that is never used."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.net = network.make()
        self.offset = nn.Parameter(torch.zeros(network.classes))
        self.never = nn.Linear(3, 3)
        if network.skipped:
            self.net.set_submodule(network.skipped, Skippable(self.net.get_submodule(network.skipped)))

    def forward(self, x: torch.Tensor, leaves_out: bool) -> torch.Tensor:
        for part in self.modules():
            if isinstance(part, Skippable):
                part.is_left_out = leaves_out
        return self.net(x) if leaves_out else self.net(x) + self.offset


def train(
    network: Network, optimizer: str, way: str, steps: int, rank: int, wrap: Callable[..., Any], seed: int = 0
) -> Any:
    """Return the wrapped module after some steps; on all ranks alike."""
    torch.manual_seed(_MANY * seed + rank)  # rank 0's parameters are taken over
    model = wrap(WithUnused(network), find_unused_parameters=True) if way == "unused" else wrap(network.make())
    updates = OPTIMIZERS[optimizer](model.parameters())
    with model.join() if way == "uneven" else contextlib.nullcontext():
        for step in range(steps - rank * (way == "uneven")):
            updates.zero_grad()
            parts = 2 if way == "accumulated" else 1
            for part in range(parts):
                # Left out by some ranks, by none and by all.
                more = ((step + rank) % 3 == 0 or step % 5 == 0,) if way == "unused" else ()
                inputs, labels = _batch(network, _MANY * (_MANY * seed + rank) + parts * step + part)
                with model.no_sync() if part + 1 < parts else contextlib.nullcontext():
                    results = model(inputs, *more)
                    F.cross_entropy(results.reshape(-1, network.classes), labels).backward()
            updates.step()
    if way == "uneven":
        updates.zero_grad()  # those of ranks that had joined are none's
    return model


def _batch(network: Network, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if network.vocabulary:
        rows, length = network.shape
        tokens = torch.randint(network.vocabulary, (rows, length + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:].reshape(-1)
    # Drawn in float32, so that they are the same in float64.
    inputs = torch.randn(network.shape, generator=generator, dtype=torch.float32).to(torch.get_default_dtype())
    return inputs, torch.randint(network.classes, network.shape[:1], generator=generator)
