"""Small modules and batches by which a class is compared with DistributedDataParallel."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 11


def mlp():
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 5))


def cnn():
    first = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    second = [nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(8 * 16, 5))


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.feed(self.between(x))


class GPT(nn.Module):
    """Two blocks; the embedding's weights are the output's as well."""

    def __init__(self, size=16):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.blocks = nn.Sequential(Block(size), Block(size))
        self.head = nn.Linear(size, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)))


class Branches(nn.Module):
    """Uses one of two branches, and never `never`."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.never = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(2, 2)

    def forward(self, x, which):
        return self.c(self.a(x) if which == 0 else self.b(x))


class Outputs(nn.Module):
    """Has two outputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return {"a": self.a(x), "b": [self.b(x)]}


class Checkpointed(nn.Module):
    """Computes a part again in its backward pass."""

    def __init__(self, reentrant, times=1):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.reentrant, self.times = reentrant, times

    def forward(self, x):
        x = self.a(x)
        for _ in range(self.times):
            x = checkpoint(self.b, x, use_reentrant=self.reentrant)
        return self.c(x)


class Types(nn.Module):
    """Has parameters of three types."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6).double(), nn.Linear(6, 6).bfloat16()

    def forward(self, x):
        return self.c(self.b(self.a(x).double()).bfloat16()).float()


class Strided(nn.Module):
    """Has parameters with every order of elements in memory, also with gaps between them."""

    def __init__(self):
        super().__init__()
        self.gaps, self.turned = nn.Parameter(torch.randn(12, 12)[::2, ::2]), nn.Parameter(torch.randn(6, 4).t())
        self.middle, self.scale = nn.Parameter(torch.randn(4, 1, 4).permute(2, 1, 0)), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return F.linear(x @ self.gaps * self.scale, self.turned) @ self.middle[:, 0]


def batch(rank, step, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(100 * step + rank))


def labelled(kind, rank, step):
    """Return inputs and labels for `mlp`, `cnn` or `gpt`."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    if kind == "gpt":
        tokens = torch.randint(0, VOCABULARY, (4, 9), generator=generator)
        return tokens[:, :-1], tokens[:, 1:].reshape(-1)
    inputs = torch.randn(8, 20, generator=generator) if kind == "mlp" else torch.randn(4, 1, 8, 8, generator=generator)
    return inputs, torch.randint(0, 5, (len(inputs),), generator=generator)
