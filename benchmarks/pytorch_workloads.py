"""What `benchmarks/pytorch.py` trains: the networks of examples/pytorch, with a batch of generated examples each.

workload = build("resnet18", seed=1)
workload.loss(workload.module).backward()
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "pytorch"))

from networks.deep_mlp import DeepMlp
from networks.gpt import GPT, TEN_MILLION
from networks.lstm import LstmLanguageModel
from networks.mobilenet import MobileNetV2
from networks.resnet import ResNet18

BATCH = 8
CLASSES = 1000
WORDS = 20000
WIDTH = 128


@dataclass(frozen=True)
class Workload:
    """A module to train.

    Attributes:
        module: the module.
        inputs, targets: a batch.
    """

    module: nn.Module
    inputs: Tensor
    targets: Tensor

    def loss(self, model: nn.Module) -> Tensor:
        """Return the loss of the batch by the module, or by what wraps it."""
        return self.loss_of_scores(model(self.inputs))

    def loss_of_scores(self, scores: Tensor) -> Tensor:
        """Return the loss of the module's output for the batch."""
        return F.cross_entropy(scores.flatten(0, -2), self.targets.flatten())


def _images() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, 3, 64, 64), torch.randint(CLASSES, (BATCH,))


def _tokens(words: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.randint(words, (BATCH, length)), torch.randint(words, (BATCH, length))


_BUILDERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "resnet18": (lambda: ResNet18(CLASSES), _images),
    "mobilenet_v2": (lambda: MobileNetV2(CLASSES), _images),
    "gpt": (lambda: GPT(**TEN_MILLION), lambda: _tokens(TEN_MILLION["vocabulary"], 32)),
    "lstm": (lambda: LstmLanguageModel(WORDS, 256), lambda: _tokens(WORDS, 16)),
    "deep_mlp": (lambda: DeepMlp(WIDTH), lambda: (torch.randn(512, WIDTH), torch.randint(WIDTH, (512,)))),
}

MODELS = tuple(_BUILDERS)


def build(name: str, seed: int) -> Workload:
    """Return a workload; the module is the same for every seed of the batch."""
    make_module, make_batch = _BUILDERS[name]
    torch.manual_seed(0)
    module = make_module()
    torch.manual_seed(seed)
    return Workload(module, *make_batch())
