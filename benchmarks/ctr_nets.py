"""Click-through-rate nets for `benchmarks/ctr.py`: the same one as prototxt and in plain PyTorch.

Dense features go through the layers of the bottom part, each followed by a ReLU; every table gives the row of one id;
all vectors of an item are joined, or multiplied in pairs, and go through the layers of the top part to one logit.
PyTorch's side is written as in DLRM (dlrm_s_pytorch.py): nn.EmbeddingBag with sparse gradients and offsets, and
`torch.bmm` with the places below the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from mgcaffe.engine import Net

DENSE = 13

torch.sparse.check_sparse_tensor_invariants.disable()  # as by default, but without a warning


@dataclass(frozen=True)
class Form:
    """A kind of net.

    Attributes:
        bottom: outputs of the bottom part's layers; the last one is the length of a row.
        top: outputs of the top part's layers before the logit.
        has_products: whether pairs of vectors are multiplied (DLRM), not only joined.
        values: how many values each categorical feature has; none: as many as one likes.
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    has_products: bool
    values: tuple[int, ...] = ()

    def rows(self, tables: int, most: int) -> list[int]:
        """Return how many rows each of so many tables has: a row for each value, but at most so many."""
        return [min(most, count) for count in self.values[:tables] or (most,) * tables]


# How many values the features of the data set have (DLRM, bench/dlrm_s_criteo_kaggle.sh).
_KAGGLE = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
FORMS = {
    "dlrm_kaggle": Form((512, 256, 64, 16), (512, 256), has_products=True, values=_KAGGLE),
    "dlrm": Form((512, 256, 64, 16), (512, 256), has_products=True),
    "small": Form((64, 16), (64,), has_products=False),
}


def net_text(form: Form, rows: Sequence[int], batch: int) -> str:
    """Return the net as prototxt, its data as Input: dense features, labels, and the ids of each table."""
    tables = len(rows)
    ids = [f"ids{number}" for number in range(tables)]
    tops = " ".join(f'top: "{name}"' for name in ("dense", "label", *ids))
    sizes = (f"dim: {DENSE}", "dim: 1", *["dim: 1"] * tables)
    shapes = " ".join(f"shape {{ dim: {batch} {size} }}" for size in sizes)
    lines = [f'layer {{ name: "data" type: "Input" {tops} input_param {{ {shapes} }} }}']
    dense_part, dense = _layers("bottom", "dense", form.bottom)
    lines += dense_part
    for number, count in enumerate(rows):
        lines.append(
            f'layer {{ name: "bag{number}" type: "EmbeddingBag" bottom: "ids{number}" top: "bag{number}"'
            f" embedding_bag_param {{ input_dim: {count} num_output: {form.bottom[-1]} }} }}"
        )
    bottoms = " ".join(f'bottom: "{name}"' for name in (dense, *(f"bag{number}" for number in range(tables))))
    kind = "DotInteraction" if form.has_products else "Concat"
    lines.append(f'layer {{ name: "joined" type: "{kind}" {bottoms} top: "joined" }}')
    top_part, last = _layers("top", "joined", form.top)
    lines += [*top_part, _inner_product("logit", last, 1)]
    lines.append('layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "logit" bottom: "label" top: "loss" }')
    return "\n".join(lines)


def _layers(part: str, bottom: str, outputs: tuple[int, ...]) -> tuple[list[str], str]:
    """Return the inner products of a part, each with its ReLU, and the last one's name."""
    lines = []
    for number, size in enumerate(outputs):
        name = f"{part}{number}"
        lines.append(_inner_product(name, bottom, size))
        lines.append(f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}')
        bottom = name
    return lines, bottom


def _inner_product(name: str, bottom: str, outputs: int) -> str:
    fields = f'num_output: {outputs} weight_filler {{ type: "xavier" }}'
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"'
        f" inner_product_param {{ {fields} }} }}"
    )


class TorchNet(nn.Module):
    """The net in PyTorch.

    Args:
        form: its kind.
        rows: how many each table has.
    """

    def __init__(self, form: Form, rows: Sequence[int]) -> None:
        super().__init__()
        length = form.bottom[-1]
        self.bottom = _sequence((DENSE, *form.bottom))
        self.bags = nn.ModuleList(nn.EmbeddingBag(count, length, mode="sum", sparse=True) for count in rows)
        vectors = len(rows) + 1
        self.has_products = form.has_products
        self.below = torch.tril_indices(vectors, vectors, -1)
        joined = length + vectors * (vectors - 1) // 2 if form.has_products else length * vectors
        self.top = _sequence((joined, *form.top), 1)

    def forward(self, dense: torch.Tensor, ids: list[torch.Tensor], offsets: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.bottom(dense)
        vectors = [bag(each, offsets) for bag, each in zip(self.bags, ids, strict=True)]
        joined = torch.cat([x, *vectors], 1)
        if self.has_products:
            stacked = joined.view(len(x), -1, x.shape[1])
            products = torch.bmm(stacked, stacked.transpose(1, 2))
            joined = torch.cat([x, products[:, self.below[0], self.below[1]]], 1)
        return self.top(joined)

    def take_weights(self, net: Net) -> None:
        """Copy the weights of ours."""
        with torch.no_grad():
            for mine, other in zip(self.parameters(), weights_of(net), strict=True):
                mine.copy_(other)


def weights_of(net: Net) -> list[torch.Tensor]:
    """Return the weights of ours in the order of `TorchNet.parameters`."""
    return [parameter.data for parameter in net.parameters]


def _sequence(sizes: tuple[int, ...], logits: int = 0) -> nn.Sequential:
    """Return linear layers, each followed by a ReLU, and at the end one to `logits` outputs without."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    if logits:
        modules.append(nn.Linear(sizes[-1], logits))
    return nn.Sequential(*modules)
