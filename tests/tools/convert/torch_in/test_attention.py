"""Attention and other products of two values: nets compute and train the same, also where axes are moved about."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.importing.batch_size import for_any_batch
from mgcaffe.tools.convert.torch_in.importer import TorchModel, import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import Function, check_training_step, converted, layers_of, seeded, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional
WORDS = (3, 6, 8)


class Heads(nn.Module):
    """nn.MultiheadAttention, and scores of the mean of its steps."""

    def __init__(self, *, batch_first: bool = True, weights: bool = False, masked: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.scores = nn.Linear(8, 5)
        self.batch_first, self.weights, self.masked = batch_first, weights, masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = x.shape[1 if self.batch_first else 0]
        mask = torch.triu(torch.ones(steps, steps, dtype=torch.bool), 1) if self.masked else None
        y, _ = self.attention(x, x, x, need_weights=self.weights, attn_mask=mask)
        return self.scores(y.mean(1 if self.batch_first else 0))


class Encoder(nn.Module):
    """nn.TransformerEncoder."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(8, 5)
        self.batch_first = batch_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.encoder(x).mean(1 if self.batch_first else 0))


class Language(nn.Module):
    """Words, their places, and attention to the words before, written out as GPT-2 has it."""

    def __init__(self, fill: float = -math.inf, *, chooses: bool | None = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Parameter(torch.zeros(1, 6, 8))
        self.all, self.scores = nn.Linear(8, 24), nn.Linear(8, 5)
        self.register_buffer("before", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))
        self.fill, self.chooses = fill, chooses

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places
        items, steps, size = x.shape
        q, k, v = (each.view(items, steps, 2, 4).transpose(1, 2) for each in self.all(x).split(size, dim=2))
        products = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(4))
        if self.chooses is None:
            products = torch.where(self.before == 1, products, self.fill)
        elif self.chooses:
            products = torch.where(self.before == 1, products, torch.tensor(self.fill))
        else:
            products = products.masked_fill(self.before[:, :, :steps, :steps] == 0, self.fill)
        y = (products.softmax(-1) @ v).transpose(1, 2).contiguous().view(items, steps, size)
        return self.scores(x + y).transpose(1, 2)


class Patches(nn.Module):
    """An image's patches behind a vector that is learned, as a vision transformer has them."""

    def __init__(self, first: tuple[int, ...] | None = (1, 1, 8)) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, 4, 4)
        self.first = nn.Parameter(torch.zeros(first)) if first else None
        self.places = nn.Parameter(torch.zeros(1, 5, 8))
        self.norm, self.all, self.scores = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.cut(image).flatten(2).transpose(1, 2)
        first = x.new_ones(len(x), 1, 8) if self.first is None else self.first.expand(len(x), 1, 8)
        x = torch.cat([first, x], 1) + self.places
        items, steps, size = x.shape
        q, k, v = self.all(self.norm(x)).reshape(items, steps, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(items, steps, size)
        return self.scores((x + y)[:, 0])


class Windows(nn.Module):
    """Attention with a bias for each pair of places out of a table, and a factor that is learned, as Swin has them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.factor = nn.Parameter(torch.zeros(11, 2)), nn.Parameter(torch.zeros(2, 1, 1))
        self.all, self.scores = nn.Linear(8, 24), nn.Linear(8, 5)
        places = torch.arange(6)
        self.register_buffer("pairs", (places[:, None] - places + 5).flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        items, steps, size = x.shape
        q, k, v = self.all(x).reshape(items, steps, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.pairs].view(steps, steps, 2).permute(2, 0, 1).unsqueeze(0)
        products = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.factor.clamp(max=4.0).exp() + bias
        y = (products.softmax(-1) @ v).transpose(1, 2).reshape(items, steps, size)
        return self.scores(y.mean(1))


class Products(nn.Module):
    """A function of what a linear layer makes, reduced to scores."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], size: int = 8) -> None:
        super().__init__()
        self.first, self.scores = nn.Linear(8, 8), nn.Linear(size, 5)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.function(self.first(x)).mean(1))


def _heads(equation: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Attention by two einsums, the first of which is given."""

    def function(x: torch.Tensor) -> torch.Tensor:
        apart = x.view(3, 6, 2, 4)
        weights = torch.einsum(equation, apart, apart.tanh()).softmax(-1)
        return torch.einsum("bhnm,bmhd->bnhd", weights, apart).reshape(3, 6, 8)

    return function


def _masked(mask: torch.Tensor | None = None, **fields: object) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.scaled_dot_product_attention(x, x.tanh(), x, attn_mask=mask, **fields)


class Places(nn.Module):
    """Vectors of words and of their places, both out of tables, as GPT-2 and BERT have them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(11, 8), nn.Embedding(9, 8), nn.Embedding(2, 8)
        self.scores = nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1]).unsqueeze(0)
        return self.scores(self.words(ids) + self.places(places) + self.kinds(torch.zeros(1, dtype=torch.long))).mT


class Factor(nn.Module):
    """A factor and an addend of one value that are computed of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scores = nn.Linear(8, 8), nn.Linear(8, 5)
        self.factor, self.addend = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores((self.first(x) * (2 * self.factor).exp() + (self.addend * 0.5).tanh()).mean(1))


def _over_a_root(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.mT / math.sqrt(3)).softmax(-1) @ x


_ROWS = torch.ones(6, 1).tril(-2)
_FLAGS = torch.ones(6, 6, dtype=torch.bool).tril(1)
MODULES = {
    "multi-head attention": (Heads(), WORDS),
    "steps first": (Heads(batch_first=False), (6, 3, 8)),
    "with weights": (Heads(weights=True), WORDS),
    "with a mask": (Heads(masked=True), WORDS),
    "with weights and a mask": (Heads(weights=True, masked=True), WORDS),
    "an encoder": (Encoder(batch_first=True), WORDS),
    "an encoder, steps first": (Encoder(batch_first=False), (6, 3, 8)),
    "a language model": (Language(), (3, 6)),
    "a language model that fills with a number": (Language(-1e4), (3, 6)),
    "a language model that chooses": (Language(-1e9, chooses=True), (3, 6)),
    "a language model that chooses a number": (Language(-1e9, chooses=None), (3, 6)),
    "places out of a table": (Places(), (3, 6)),
    "places out of a table, as many as items": (Places(), (6, 6)),
    "a factor of one value": (Factor(), WORDS),
    "products over a root that is no whole number": (Products(_over_a_root), WORDS),
    "vectors of length 1, zeros among them": (Products(lambda x: F.normalize(x * _ROWS, dim=2)), WORDS),
    "lengths of zeros": (Products(lambda x: x * (x * _ROWS).norm(dim=2, keepdim=True)), WORDS),
    "a matrix behind several axes": (Products(lambda x: x @ torch.linspace(-1, 1, 48).view(8, 6), 6), WORDS),
    "axes before joined": (Products(lambda x: (x.flatten(0, 1) @ torch.eye(8)).view(3, 6, 8)), WORDS),
    "a choice of a number first": (Products(lambda x: torch.where(_FLAGS, -1.5, x @ x.mT), 6), WORDS),
    "a choice of a number second": (Products(lambda x: torch.where(_FLAGS, x @ x.mT, 0), 6), WORDS),
    "patches": (Patches(), (3, 3, 8, 8)),
    "patches behind ones": (Patches(None), (3, 3, 8, 8)),
    "patches behind a vector without other axes": (Patches((8,)), (3, 3, 8, 8)),
    "divided by a root": (Products(lambda x: ((x @ x.mT) / 12**0.5).softmax(-1) @ x), WORDS),
    "windows": (Windows(), WORDS),
    "windows of one item": (Windows(), (1, 6, 8)),
    "a mask of flags": (Products(_masked(_FLAGS)), WORDS),
    "a mask of numbers": (Products(_masked(torch.linspace(-1, 1, 36).view(6, 6))), WORDS),
    "a mask for each item": (Products(lambda x: _masked(x @ x.mT)(x)), WORDS),
    "what comes before": (Products(_masked(is_causal=True, scale=0.3)), WORDS),
    "einsum": (Products(_heads("bnhd,bmhd->bhnm")), WORDS),
    "einsum, another order": (Products(_heads("bmhd,bnhd->bhnm")), WORDS),
    "einsum of any axes before": (Products(lambda x: torch.einsum("...ij,...kj->...ik", x, x), 6), WORDS),
    "einsum without an arrow": (Products(lambda x: torch.einsum("bij,cjk", x, x.mT).mean(1), 6), WORDS),
    "einsum of any axes before, without an arrow": (Products(lambda x: torch.einsum("...ij,...jk", x, x.mT), 6), WORDS),
    "einsum over two axes": (Products(lambda x: torch.einsum("bij,bij->b", x, x.tanh()).view(3, 1, 1), 1), WORDS),
    "einsum without a sum": (Products(lambda x: torch.einsum("bi,bj->bij", x[:, 0], x[:, 1])), WORDS),
    "bmm": (Products(lambda x: torch.bmm(x, x.mT), 6), WORDS),
    "baddbmm": (Products(lambda x: torch.baddbmm(x @ x.mT, x, x.mT), 6), WORDS),
    "baddbmm without what is added": (Products(lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0), 6), WORDS),
    "moved around": (Products(lambda x: torch.roll(x, (2, -1, 6), (1, 2, 1))), WORDS),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_the_same_and_trains_the_same(name):
    module, shape = MODULES[name]
    converted(module, shape)
    check_training_step(module, shape)


class Weighted(nn.Module):
    """Products with parameters that are no nn.Linear's."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(8, 5)), nn.Parameter(torch.zeros(5))
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.form == "addmm":
            return torch.addmm(self.bias, x, self.weight)
        y = x @ self.weight if self.form == "matmul" else x.mm(self.weight)
        return y + self.bias


@pytest.mark.parametrize(
    ("form", "types"),
    [("addmm", ["InnerProduct"]), ("matmul", ["InnerProduct", "Bias"]), ("mm", ["InnerProduct", "Bias"])],
)
def test_a_product_with_a_parameter_is_an_inner_product(form, types):
    model = converted(Weighted(form), (3, 8))
    assert types_of(model) == types
    assert layers_of(model)[0].inner_product_param.transpose
    check_training_step(Weighted(form), (3, 8))


def test_a_mask_does_not_learn_and_its_scale_is_a_power():
    layers = layers_of(converted(Products(_masked(_FLAGS)), WORDS))
    assert [layer.type for layer in layers[1:6]] == ["TanH", "Power", "MatMul", "Bias", "Softmax"]
    assert layers[4].param[0].lr_mult == 0
    assert layers[2].power_param.scale == pytest.approx(8**-0.5)


REFUSED = {
    "dropout": (_masked(dropout_p=0.5), "it drops values at random in evaluation too"),
    "a mask of all keys": (_masked(_FLAGS & (torch.arange(6)[:, None] != 2)), "its mask hides all keys from a row"),
    "shared keys": (
        lambda x: F.scaled_dot_product_attention(
            x.view(3, 6, 2, 4).transpose(1, 2), *[x[:, :, :4].unsqueeze(1)] * 2, enable_gqa=True
        ),
        "several of its queries share a key",
    ),
    "matrices for all items": (lambda x: x @ x[:, :1].view(3, 8, 1)[:, :, :].mean(0, keepdim=True), "it reduces"),
    "a matrix and a stack": (lambda x: x.unsqueeze(1) @ x.mT, "it multiplies matrices of shapes"),
    "a vector": (lambda x: x[:, 0, 0] @ x[:, 0, 1], "it multiplies matrices of shapes"),
    "a constant in front": (lambda x: torch.ones(3, 2, 6) @ x, "its first matrix is a parameter or constant"),
    "a stack of constants": (lambda x: x @ torch.ones(3, 8, 2), r"its matrices have shapes .* and \(3, 8, 2\)"),
    "numbers of items": (lambda x: x.sum((1, 2)) @ torch.ones(3, 2), r"its matrices have shapes \(3,\) and \(3, 2\)"),
    "a repeated axis": (lambda x: torch.einsum("bij,bj->bi", x, x[:, 0, :1]), "MatMul repeats no axis"),
    "factors": (lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5), "alpha and beta are 1 and 0.5"),
    "three operands": (lambda x: torch.einsum("bij,bik,bil->bjkl", x, x, x), "operator aten|multiplies 3"),
    "a diagonal": (lambda x: torch.einsum("bii,bij->bij", x[:, :, :6], x), "or takes a diagonal"),
    "a sum of one operand": (lambda x: torch.einsum("bij,bkl->bkl", x, x), "it sums over an axis of one operand"),
    "a mask that is computed": (lambda x: x.masked_fill(x > 0, 0.0), "it compares floating-point numbers"),
    "items of the batch": (lambda x: x.roll(1, 0), "it moves the items of the batch"),
    "all axes": (lambda x: x.roll(1), "it moves values over the ends of all axes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_multiplies_is_refused(name):
    function, said = REFUSED[name]
    program = export_module(Function(function), WORDS, "the module")
    with pytest.raises(NetError, match=said):
        import_program(program, name="net", file="module")


class Repeated(nn.Module):
    """Attention with a bias that is computed of a table, for each item anew, as WavLM and MPNet have it."""

    def __init__(self, each: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.scores, self.each = nn.Parameter(torch.zeros(11, 2)), nn.Linear(8, 5), each
        places = torch.arange(6)
        self.register_buffer("pairs", (places[:, None] - places + 5).flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        items, steps, size = x.shape
        bias = self.each((2 * self.table)[self.pairs].view(steps, steps, 2).permute(2, 0, 1), items)
        q = x.view(items, steps, 2, 4).transpose(1, 2)
        products = (q @ q.mT).view(-1, steps, steps) + bias.view(-1, steps, steps).tanh()
        y = (products.softmax(-1).view(items, 2, steps, steps) @ q).transpose(1, 2).reshape(items, steps, size)
        return self.scores(y.mean(1))


@pytest.mark.parametrize(
    "each",
    [
        lambda bias, items: bias.unsqueeze(0).repeat(items, 1, 1, 1),
        lambda bias, items: bias.repeat(items, 1, 1, 1),
        lambda bias, items: bias.unsqueeze(0).expand(items, -1, -1, -1).contiguous(),
        lambda bias, items: bias.expand(items, 2, 6, 6).contiguous(),
    ],
)
def test_what_is_computed_of_parameters_may_be_repeated_for_each_item(each):
    def at(items: int) -> TorchModel:
        program = export_module(seeded(Repeated(each)), (items, *WORDS[1:]), "the module")
        return import_program(program, name="net", file="module")

    converted(Repeated(each), WORDS)
    check_training_step(Repeated(each), WORDS)
    assert for_any_batch(at(3), at)[1] == []


def test_a_batch_is_not_repeated():
    program = export_module(Function(lambda x: x.repeat(2, 1, 1) + 1), (1, 6, 8), "the module")
    with pytest.raises(NetError, match="it repeats axis 0 2 times"):
        import_program(program, name="net", file="net")
