"""Masks that are computed of ids: what attention leaves out, and numbers that are put where they say so."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.importing.batch_size import for_any_batch
from mgcaffe.tools.convert.torch_in.importer import TorchModel, import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import check_training_step, converted, seeded, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional

IDS = (3, 6)
PADDING = 1


class Attending(nn.Module):
    """Words that attend to words that are no padding, and in some only to those before."""

    def __init__(self, *, causal: bool = False, layers: int = 1) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(5, 8), nn.Linear(8, 5)
        self.layers = nn.ModuleList(nn.Linear(8, 24) for _ in range(layers))
        self.causal = causal

    def mask(self, ids: torch.Tensor) -> torch.Tensor:
        mask = ids.ne(PADDING)[:, None, None, :]
        if self.causal:
            steps = ids.shape[1]
            mask = torch.ones(steps, steps, dtype=torch.bool).tril() & mask
        return mask

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        items, steps, size = x.shape
        mask = self.mask(ids)
        for layer in self.layers:
            q, k, v = layer(x).reshape(items, steps, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + y.transpose(1, 2).reshape(items, steps, size)
        return self.scores(x).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_leaves_out_what_flags_say(causal):
    converted(Attending(causal=causal), IDS)
    check_training_step(Attending(causal=causal), IDS)


def test_flags_that_an_index_takes_in_their_order_are_a_mask():
    class Indexed(Attending):
        def mask(self, ids: torch.Tensor) -> torch.Tensor:
            return ids.ne(PADDING)[:, torch.arange(6)][:, None, None, :]

    converted(Indexed(), IDS)


def test_layers_share_what_is_made_of_a_mask():
    types = types_of(converted(Attending(layers=3), IDS))
    assert types.count("Softmax") == 3 and types.count("Threshold") == 1 and types.count("Tile") == 2


def _imported(items: int) -> TorchModel:
    program = export_module(seeded(Attending()), (items, IDS[1]), "the module")
    return import_program(program, name="net", file="module")


def test_a_text_of_nothing_but_padding_has_no_weights_as_in_pytorch():
    ids = np.array([[PADDING] * 6, [0, 3, PADDING, 2, PADDING, PADDING], [2] * 6], np.float32)
    model = _imported(3)
    ours = CaffeSide(model.build()).run({"data": ids})[model.outputs[0]]
    theirs = seeded(Attending()).eval()(torch.from_numpy(ids).long()).detach().numpy()
    assert np.isfinite(theirs).all() and np.allclose(ours, theirs, atol=1e-6)


def test_a_net_with_masks_holds_for_any_batch_size():
    model, bound = for_any_batch(_imported(3), _imported)
    assert bound == []
    model.source.param.layer[0].input_param.shape[0].dim[0] = 2
    ids = np.array([[3, 2, 1, 0, 4, 1], [1, 1, 2, 2, 2, 2]], np.float32)
    ours = CaffeSide(model.build()).run({"data": ids})[model.outputs[0]]
    theirs = seeded(Attending()).eval()(torch.from_numpy(ids).long()).detach().numpy()
    assert np.allclose(ours, theirs, atol=1e-6)


class Given(Attending):
    """A mask that is an input of its own."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        return self.scores(F.scaled_dot_product_attention(x, x, x, attn_mask=self.flags(mask))).transpose(1, 2)

    def flags(self, mask: torch.Tensor) -> torch.Tensor:
        return mask.long().bool()[:, None, :]


def test_a_mask_may_be_an_input_of_whole_numbers():
    shapes = {"ids": IDS, "mask": IDS}
    model = converted(Given(), shapes)
    values = fitting_inputs(model.build())["mask"]
    assert set(np.unique(values)) == {0, 1}
    module = Given()
    module.layers = nn.ModuleList()
    check_training_step(module, shapes)


def test_a_mask_of_floating_point_numbers_is_refused():
    class Floating(Given):
        def flags(self, mask: torch.Tensor) -> torch.Tensor:
            return mask.bool()[:, None, :]

    program = export_module(Floating(), {"ids": IDS, "mask": IDS}, "the module")
    with pytest.raises(NetError, match=r"it makes flags of floating-point numbers.*\n.*ids\.long\(\)"):
        import_program(program, name="net", file="net")


class Masked(nn.Module):
    """A function of products of words and of ids, and what it makes as weights."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.words, self.more, self.scores = nn.Embedding(5, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.function = function

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        weights = self.function(x @ self.more(x).transpose(1, 2), ids)
        return self.scores(weights @ x).transpose(1, 2)


def _row(ids: torch.Tensor) -> torch.Tensor:
    """Flags of padding, but never all of a row."""
    return ((ids == PADDING) & (torch.arange(6) > 0)).unsqueeze(1)


def _known(ids: torch.Tensor) -> torch.Tensor:
    """The same flags, taken by an index for all places, as masks of transformers are."""
    items, steps = ids.shape
    rows, columns = torch.arange(items)[:, None, None], torch.arange(steps)[None, None, :]
    return _row(ids).squeeze(1)[rows, columns]


MASKED = {
    "filled with -inf": lambda x, ids: x.masked_fill(_row(ids), -math.inf).softmax(-1),
    "filled with a number": lambda x, ids: x.masked_fill(_row(ids), -1e4).softmax(-1),
    "filled with zeros": lambda x, ids: x.softmax(-1).masked_fill(_row(ids), 0.0),
    "filled with a constant": lambda x, ids: x.masked_fill(_row(ids), torch.tensor(2.5)),
    "flags taken by an index": lambda x, ids: x.masked_fill(_known(ids), -1e4).softmax(-1),
    "filled for two readers": lambda x, ids: (
        x.masked_fill(_row(ids), -math.inf).softmax(-1) + x.masked_fill(_row(ids), -math.inf).exp()
    ),
    "filled with zeros behind a softmax of a known mask": lambda x, ids: (
        x.masked_fill(_causal(), -math.inf).softmax(-1).masked_fill(_row(ids), 0.0)
    ),
    "a number elsewhere": lambda x, ids: torch.where(_row(ids), x, 0.5),
    "a number there": lambda x, ids: torch.where(_row(ids), torch.tensor(0.5), x),
    "one of two numbers": lambda x, ids: (x + torch.where(_row(ids), -1e4, 0.0)).softmax(-1),
    "one of two numbers for each row": lambda x, ids: x * torch.where(_row(ids), 0.25, torch.ones(1, 6, 1)[0, 0]),
    "products by counts": lambda x, ids: F.scaled_dot_product_attention(
        x, x, x, attn_mask=(ids > 2).int().cumsum(1).unsqueeze(1) * x
    ),
    "added as numbers": lambda x, ids: (x + (1.0 - ids.ne(PADDING).float())[:, None, :] * -1e4).softmax(-1),
    "two flags": lambda x, ids: x.masked_fill(_row(ids) & (ids < 3).unsqueeze(2), 0.0),
    "two flags in words": lambda x, ids: x.masked_fill(torch.logical_and(_row(ids), (ids < 3).unsqueeze(1)), 0.0),
    "the same flags twice": lambda x, ids: (lambda flags: x.masked_fill(flags & flags, 0.0))(_row(ids)),
    "flags and true": lambda x, ids: x.masked_fill(_row(ids) & True, 0.0),
    "flags and false": lambda x, ids: x.masked_fill(_row(ids) & False, 0.0),
    "known flags that are all true": lambda x, ids: x.masked_fill(_row(ids) & torch.ones(6, 1, dtype=torch.bool), 0.0),
}


@pytest.mark.parametrize("name", MASKED)
def test_numbers_are_put_where_flags_say_so(name):
    converted(Masked(MASKED[name]), IDS)
    check_training_step(Masked(MASKED[name]), IDS)


def _padded(ids: torch.Tensor) -> torch.Tensor:
    """Flags of padding, which may be all of a row."""
    return (ids == PADDING).unsqueeze(1)


def _causal() -> torch.Tensor:
    return torch.ones(6, 6, dtype=torch.bool).triu(1)


HIDDEN = {
    "filled": lambda x, ids: x.masked_fill(_padded(ids), -math.inf).softmax(-1).masked_fill(_padded(ids), 0.0),
    "filled in place": lambda x, ids: (
        (x * 2).masked_fill_(_padded(ids), -math.inf).softmax(-1).masked_fill(_padded(ids), 0.0)
    ),
    "filled twice": lambda x, ids: (
        x.masked_fill(_padded(ids), -math.inf)
        .masked_fill(_causal(), -math.inf)
        .softmax(-1)
        .masked_fill(~(~_causal() & ids.ne(PADDING).unsqueeze(1)), 0.0)
    ),
    "filled twice by computed flags": lambda x, ids: (
        x.masked_fill((ids == 2).unsqueeze(1), -math.inf)
        .masked_fill(_padded(ids), -math.inf)
        .softmax(-1)
        .masked_fill((ids < 3).unsqueeze(1), 0.0)
    ),
    "dropped in between": lambda x, ids: F.dropout(
        x.masked_fill(_padded(ids), -math.inf).softmax(-1), 0.5, training=False
    ).masked_fill(_padded(ids), 0.0),
    "two fills of what is hidden": lambda x, ids: (
        x.masked_fill((ids == 2).unsqueeze(1), -math.inf)
        .masked_fill(_padded(ids), -math.inf)
        .softmax(-1)
        .masked_fill((ids == 2).unsqueeze(1), 0.0)
        .masked_fill((ids < 3).unsqueeze(1), 0.0)
    ),
    "two choices of what is hidden": lambda x, ids: torch.where(
        (ids < 3).unsqueeze(1),
        0.0,
        torch.where((ids == 2).unsqueeze(1), 0.0, x.masked_fill(_padded(ids), -math.inf).softmax(-1)),
    ),
    "chosen": lambda x, ids: torch.where(
        _padded(ids), 0.0, torch.where(_padded(ids), torch.tensor(-math.inf), x).softmax(-1)
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_row_that_is_hidden_as_a_whole_may_be_overwritten(name):
    ids = np.array([[PADDING] * 6, [0, 3, PADDING, 2, PADDING, PADDING], [2] * 6], np.float32)
    program = export_module(seeded(Masked(HIDDEN[name])), IDS, "the module")
    model = import_program(program, name="net", file="module")
    ours = CaffeSide(model.build()).run({"data": ids})[model.outputs[0]]
    theirs = seeded(Masked(HIDDEN[name])).eval()(torch.from_numpy(ids).long()).detach().numpy()
    assert np.isfinite(theirs).all() and np.allclose(ours, theirs, atol=1e-6)
    converted(Masked(HIDDEN[name]), IDS)
    check_training_step(Masked(HIDDEN[name]), IDS)


REFUSED = {
    "what is infinite overwritten": (
        lambda x, ids: x.masked_fill(_row(ids), -math.inf).masked_fill(_padded(ids), 0.0), "it overwrites what is"),
    "what is infinite by a known mask overwritten": (
        lambda x, ids: x.masked_fill(_causal(), -math.inf).masked_fill(_padded(ids), 0.0), "it overwrites what is"),
    "what is infinite chosen": (
        lambda x, ids: torch.where(_row(ids), x.masked_fill(_row(ids), -math.inf).amax(-1, keepdim=True) * x, 0.5),
        "it overwrites what is computed of a fill with an infinite number"),
    "what is infinite in other layers before": (
        lambda x, ids: x.masked_fill(_row(ids), -math.inf).softmax(-1).exp().masked_fill(_row(ids), 0.0),
        "it overwrites what is"),
    "what another operator reads in front of a softmax": (
        lambda x, ids: (x.masked_fill(_row(ids), -math.inf) * 2).softmax(-1).masked_fill(_row(ids), 0.0),
        "it overwrites what is"),
    "what something else than a fill reads behind a dropout": (
        lambda x, ids: (lambda y: y.masked_fill(_row(ids), 0.0) + y)(
            F.dropout(x.masked_fill(_row(ids), -math.inf).softmax(-1), 0.5, training=False)),
        "it overwrites what is"),
    "one of two blobs": (lambda x, ids: torch.where(_row(ids), x, x * 2), "it chooses between two blobs by flags"),
    "infinity or a number": (lambda x, ids: torch.where(_row(ids), x, math.inf), "it puts inf where flags say so"),
    "one of two infinities": (
        lambda x, ids: x + torch.where(_row(ids), 0.0, -math.inf), "it chooses between 0.0 and -inf by flags"),
    "one of several numbers": (
        lambda x, ids: torch.where(_row(ids), x, torch.arange(6.0)), "it chooses between other things than blobs"),
    "filled ids": (lambda x, ids: F.embedding(ids.masked_fill(ids == 2, 0), torch.ones(5, 6)), "it computes with"),
    "chosen ids": (
        lambda x, ids: F.embedding(torch.where(ids == 2, 0, ids), torch.ones(5, 6)), "it computes with whole numbers"),
    "bits": (lambda x, ids: x * (ids & 1).unsqueeze(1), "it joins bits of numbers"),
    "flags in another order": (
        lambda x, ids: x.masked_fill((ids == 2)[:, torch.tensor([1, 0, 2, 3, 4, 5])].unsqueeze(1), 0.0),
        "it computes with whole numbers"),
    "places by ids": (lambda x, ids: x[(ids > 2).long()].sum(1), "it computes with whole numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_uses_of_flags_are_refused(name):
    function, message = REFUSED[name]
    program = export_module(Masked(function), IDS, "the module")
    with pytest.raises(NetError, match=message) as caught:
        import_program(program, name="net", file="net")
    assert caught.value.location is not None
