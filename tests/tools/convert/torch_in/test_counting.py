"""Whole numbers that are computed of ids: flags that tell padding, places of words, and how many there are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.engine.net import Net
from mgcaffe.errors import NetError
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.importing.batch_size import for_any_batch
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_side import TorchSide
from tests.support.netkit import make_net
from tests.support.torchkit import Function, check_training_step, converted, layers_of, seeded, types_of

pytestmark = pytest.mark.slow

IDS = (4, 7)
PADDING = 1
_CAST = "cast an input of whole numbers in forward: ids.long()"


def places_of(ids: torch.Tensor) -> torch.Tensor:
    """The places of words from PADDING + 1 on, and PADDING for padding, as RoBERTa counts them."""
    mask = ids.ne(PADDING).int()
    places = (torch.cumsum(mask, dim=1).type_as(mask) + 0) * mask
    return places.long() + PADDING


class Words(nn.Module):
    """RoBERTa's rows of words, of places and of kinds, which are taken from a buffer by the places."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 6, padding_idx=PADDING)
        self.places = nn.Embedding(9, 6, padding_idx=PADDING)
        self.kinds = nn.Embedding(3, 6)
        self.register_buffer("kind", torch.tensor([[0, 1, 2, 2, 0, 1, 1, 0, 2]]), persistent=False)
        self.scores = nn.Linear(6, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = places_of(ids)
        kinds = torch.gather(self.kind.expand(len(ids), -1), 1, places)
        x = self.words(ids) + self.kinds(kinds) + self.places(places)
        return self.scores(x).transpose(1, 2)


_FLAGS = ["Power", "Threshold"]
_SUMS = ["Reshape", "Tile", "Scale", "Reduction"]


def test_places_are_counted_from_words_as_roberta_does():
    model = converted(Words(), IDS)
    kinds = ["Embed", "Flatten"]
    row = ["Embed", "Embed", "Flatten", "Scale", "Power", "InnerProduct", "Eltwise"]
    assert types_of(model)[:16] == [*_FLAGS, *_SUMS, "Eltwise", "Power", *kinds, *row[:6]]
    check_training_step(Words(), IDS)


@pytest.mark.parametrize("row", [[1, 1, 1, 1, 1, 1, 1], [3, 1, 0, 1, 1, 2, 1], [0, 2, 3, 4, 2, 1, 1]])
def test_padding_anywhere_gives_pytorchs_places(row):
    program = export_module(seeded(Words()), IDS, "the module")
    model = import_program(program, name="net", file="module")
    ids = np.tile(np.array(row, np.float32), (4, 1))
    ids[2] = [2, 3, 1, 4, 0, 0, 0]
    ours = CaffeSide(model.build()).run({"data": ids})
    (place,) = (layer for layer in layers_of(model) if layer.name == "places")
    assert torch.equal(torch.from_numpy(ours[place.bottom[0]]).long(), places_of(torch.from_numpy(ids).long()))
    (scores,) = model.outputs
    theirs = TorchSide(program, outputs=["scores"]).run({model.names["data"]: ids})
    assert np.allclose(ours[scores], theirs[model.names[scores]], atol=1e-6)


def test_the_net_holds_for_any_batch_size():
    def at(items: int):
        program = export_module(seeded(Words()), (items, 7), "the module")
        return import_program(program, name="net", file="module")

    model, bound = for_any_batch(at(4), at)
    assert bound == []
    model.source.param.layer[0].input_param.shape[0].dim[0] = 2
    ids = np.array([[3, 2, 1, 0, 4, 1, 1], [1, 1, 2, 2, 2, 2, 2]], np.float32)
    ours = CaffeSide(model.build()).run({"data": ids})[model.outputs[0]]
    theirs = seeded(Words()).eval()(torch.from_numpy(ids).long())
    assert np.allclose(ours, theirs.detach().numpy(), atol=1e-6)


def test_padding_is_among_the_ids_that_a_proof_feeds():
    """Of a large table a random row would never be the one that is padding."""

    class Large(Words):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(1_000_000, 6, padding_idx=PADDING)

    program = export_module(seeded(Large()), IDS, "the module")
    (ids,) = fitting_inputs(import_program(program, name="net", file="module").build()).values()
    assert 0 < (ids == PADDING).sum() < ids.size and ids.max() > 100_000


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda ids: ids > 0, {0, 1}),
        (lambda ids: ids <= 7, {7, 8}),
        (lambda ids: ids < 7, {6, 7}),
        (lambda ids: ids >= 900_000, {899_999, 900_000}),
        (lambda ids: (ids > 3) & (ids != 9), {3, 4, 9}),
    ],
)
def test_ids_on_both_sides_of_a_limit_are_among_those_that_a_proof_feeds(function, numbers):
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.scores = nn.Embedding(1_000_000, 2), nn.Linear(2, 5)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.scores((self.words(ids) * function(ids).unsqueeze(-1)).sum(1))

    program = export_module(Flagged(), (8, 20), "the module")
    (ids,) = fitting_inputs(import_program(program, name="net", file="module").build()).values()
    assert numbers <= {*ids.ravel()} and 20 < np.isin(ids, list(numbers)).sum() < 60


class Mean(nn.Module):
    """The mean of a text's vectors, without those of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(5, 6), nn.Linear(6, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = ids.ne(PADDING)
        x = self.words(ids) * mask.unsqueeze(-1)
        return self.scores(x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))


def test_the_mean_of_words_leaves_padding_out():
    converted(Mean(), IDS)
    check_training_step(Mean(), IDS)


class Counted(nn.Module):
    """Rows of a table by what a function makes of ids."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.words, self.table, self.function = nn.Embedding(5, 6), nn.Embedding(40, 6), function

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + self.table(self.function(ids))


# A function of ids, and the layers that it becomes.
COUNTED = {
    "not equal to nothing": (lambda ids: (ids != 0).int(), ["Power", "Threshold"]),
    "equal": (lambda ids: (ids == 3).long(), ["Power", "Threshold", "Power"]),
    "equal to a constant": (lambda ids: (ids == torch.tensor(3)).long(), ["Power", "Threshold", "Power"]),
    "above": (lambda ids: (ids > 2).long(), ["Threshold"]),
    "at least": (lambda ids: (ids >= 2).long(), ["Power", "Threshold", "Power"]),
    "below": (lambda ids: (ids < 2).long(), ["Power", "Threshold"]),
    "at most": (lambda ids: (ids <= 2).long(), ["Threshold", "Power"]),
    "not": (lambda ids: (~(ids > 2)).long(), ["Threshold", "Power"]),
    "not in words": (lambda ids: torch.logical_not(ids > 2).long(), ["Threshold", "Power"]),
    "flags of ids": (lambda ids: ids.bool().long(), ["Power", "Threshold"]),
    "flags of counts": (
        lambda ids: (ids > 2).int().cumsum(1).bool().long(), ["Threshold", *_SUMS, "Power", "Threshold"]),
    "detached flags": (lambda ids: (ids > 2).detach().long(), ["Threshold"]),
    "flags of flags": (lambda ids: (ids > 2).bool().long(), ["Threshold"]),
    "sums along the last axis": (lambda ids: (ids > 2).cumsum(-1), ["Threshold", *_SUMS]),
    "sums along an axis between": (
        lambda ids: (ids > 2).view(-1, 7, 1).expand(-1, 7, 2).cumsum(1)[:, :, 1],
        ["Threshold", "Reshape", "Tile", "Permute", *_SUMS, "Permute", "Slice", "Flatten"]),
    "differences": (
        lambda ids: 9 - ((ids > 2).int() - (ids < 2).int() + 4),
        ["Threshold", "Power", "Threshold", "Eltwise", "Power", "Power"]),
    "products of flags": (lambda ids: ((ids > 1) * (ids < 4)).long(), ["Threshold", "Power", "Threshold", "Eltwise"]),
    "a constant added": (lambda ids: (ids > 2).int() + torch.arange(7), ["Threshold", "Bias"]),
    "at most so many": (lambda ids: (ids > 0).cumsum(1).clamp(1, 3), ["Threshold", *_SUMS, "Clip"]),
    "as many flags": (
        lambda ids: (ids > 2).sum(1, keepdim=True).expand(-1, 7), ["Threshold", "Reduction", "Reshape", "Tile"]),
    "cut": (
        lambda ids: (ids > 2).long().split([2, 5], 1)[1].sum(1, keepdim=True).expand(-1, 7),
        ["Threshold", "Slice", "Reduction", "Reshape", "Tile"]),
    "joined": (
        lambda ids: torch.cat([(ids > 2)[:, :3].long() * 2, torch.ones(4, 4, dtype=torch.long)], 1) + 1,
        None),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_whole_numbers_that_are_computed_are_rows(name):
    function, types = COUNTED[name]
    model = converted(Counted(function), IDS)
    found = types_of(model)
    if types is not None:
        assert found == ["Embed", *types, "Embed", "Eltwise", *["Silence"] * ("Slice" in types)]


def test_places_are_exact_where_products_are_of_16_bits():
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.table, self.last = nn.Embedding(5, 6), nn.Embedding(700, 6), nn.Linear(6, 5)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.last(self.table(places_of(ids)) + self.first(ids))

    model = import_program(export_module(Long(), (40, 600), "the module"), name="net", file="module")
    net = Net(model.source.param, sources=model.source, precision=BF16)
    model.copy_weights(net)
    ids = np.random.default_rng(0).integers(0, 5, (40, 600)).astype(np.float32)
    values = CaffeSide(net).run({"data": ids})
    (place,) = (layer for layer in layers_of(model) if layer.name == "table")
    places = places_of(torch.from_numpy(ids).long())
    assert places.max() > 256  # bfloat16 has 256 and 258
    assert torch.equal(torch.from_numpy(values[place.bottom[0]]).long(), places)


def test_running_sums_of_numbers_are_products_with_a_triangle():
    module = nn.Sequential(Function(lambda x: x.cumsum(1)), nn.Flatten(), nn.Linear(24, 5))
    assert types_of(converted(module, (3, 4, 6))) == ["Permute", "InnerProduct", "Permute", "Flatten", "InnerProduct"]
    check_training_step(module, (3, 4, 6))


# What is done with ids, and what is said.
REFUSED = {
    "sums of ids": (lambda ids: ids + 1, "it computes with whole numbers"),
    "running sums of ids": (lambda ids: ids.cumsum(1), "it computes with whole numbers"),
    "products of ids": (lambda ids: ids * (ids > 2), "it computes with whole numbers"),
    "totals of ids": (lambda ids: ids.sum(1, keepdim=True), "it computes with whole numbers"),
    "two ids": (lambda ids: (ids == ids[:, :1]).long(), "it compares whole numbers with something else"),
    "half an id": (lambda ids: (ids > 0.5).long(), "it compares whole numbers with something else"),
    "more than any": (lambda ids: (ids < math.inf).long(), "it compares whole numbers with something else"),
    "joined with too large ones": (
        lambda ids: torch.cat([(ids > 2).long(), torch.full((4, 1), 2**24 + 1)], 1)[:, 1:], "of up to 16777217"),
    "a number that float32 lacks": (lambda ids: (ids != 2**24 + 1).long(), "it compares whole numbers with something"),
    "too large": (lambda ids: (ids > 2) * (2**24 + 1), "whole numbers of up to 16777217"),
    "one of two flags": (lambda ids: ((ids > 2) + (ids < 1)).long(), "it is true where one of two flags is"),
    "bits": (lambda ids: ~(ids > 2).int(), "it inverts numbers"),
    "numbers of 8 bits": (lambda ids: (ids > 2).to(torch.int8).long(), "it makes numbers of another type"),
    "a quotient": (lambda ids: torch.div((ids > 2).int(), 2, rounding_mode="floor"), "it rounds the quotient"),
    "the largest flag": (lambda ids: (ids > 2).int().amax(1, keepdim=True), "it computes with whole numbers"),
    "sums over the batch": (lambda ids: (ids > 2).cumsum(0), "it adds up over the batch axis"),
    "places of different rows": (
        lambda ids: torch.arange(28).view(4, 7).gather(1, (ids > 2).long()), "not the same along its other axes"),
    "places of a blob": (lambda ids: ids.gather(1, (ids > 2).long()), "it takes values of single places"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_does_with_whole_numbers_is_refused(name):
    program = export_module(Counted(REFUSED[name][0]), IDS, "the module")
    with pytest.raises(NetError, match=REFUSED[name][1]) as caught:
        import_program(program, name="net", file="net")
    assert caught.value.location is not None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * (x > 0), "it compares floating-point numbers"),
        (lambda x: x.sum(1).gather(1, torch.zeros(4, 6, dtype=torch.long)), "it takes values of single places"),
        (lambda x: x.cumsum(0), "it adds up over the batch axis"),
    ],
)
def test_numbers_are_not_told_apart(function, message):
    program = export_module(Function(function), (4, 3, 6), "the module")
    with pytest.raises(NetError, match=message):
        import_program(program, name="net", file="net")


def test_flags_are_no_output():
    program = export_module(Function(lambda ids: ids.long() > 2), IDS, "the module")
    with pytest.raises(NetError, match="it makes whole numbers for an output"):
        import_program(program, name="net", file="net")


@pytest.mark.parametrize("function", [lambda ids: ids > 0, lambda ids: ids <= 2, lambda ids: (ids >= 1).flatten(1)])
def test_ids_that_are_only_compared_with_a_limit_are_whole_in_a_proof(function):
    model = converted(Function(lambda ids: function(ids.long()).float() * 2 + 1), IDS)
    fed = fitting_inputs(model.build())["data"]
    assert (fed == np.round(fed)).all() and len(np.unique(fed)) > 1


def test_what_is_also_read_as_numbers_stays_noise_in_a_proof():
    text = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 7 } } }
    layer { name: "above" type: "Threshold" bottom: "x" top: "above" }
    layer { name: "half" type: "Power" bottom: "x" top: "half" power_param { scale: 0.5 } }
    layer { name: "y" type: "Eltwise" bottom: "above" bottom: "half" top: "y" }
    """
    fed = fitting_inputs(make_net(text))["x"]
    assert (fed != np.round(fed)).any()


@pytest.mark.parametrize(("compared", "limit"), [("x", 0.3), ("half", 1)])
def test_what_is_compared_with_a_fraction_stays_noise_in_a_proof(compared, limit):
    text = f"""
    layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 4 dim: 7 }} }} }}
    layer {{ name: "half" type: "Power" bottom: "x" top: "half" power_param {{ scale: 0.5 }} }}
    layer {{ name: "y" type: "Threshold" bottom: "{compared}" top: "y" threshold_param {{ threshold: {limit} }} }}
    """
    fed = fitting_inputs(make_net(text))["x"]
    assert (fed != np.round(fed)).any()


@pytest.mark.parametrize(
    ("function", "hint"),
    [(lambda x: (x > 0).float() * 2, _CAST), (lambda x: torch.where(x.tanh() > 0, 1.0, 2.0), None)],
)
def test_an_input_that_is_compared_as_it_is_wants_a_cast(function, hint):
    program = export_module(Function(function), IDS, "the module")
    with pytest.raises(NetError, match="it compares floating-point numbers") as caught:
        import_program(program, name="net", file="net")
    assert caught.value.hint == hint
