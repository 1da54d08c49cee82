"""Tables whose rows a module looks up: Embed, EmbeddingBag, and DLRM's products of the vectors found."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from mgcaffe.engine.kernels.precision import BF16
from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError, NetError
from mgcaffe.tools.convert.caffe_side import CaffeSide
from mgcaffe.tools.convert.importing import products
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module, load_program
from mgcaffe.tools.convert.torch_side import TorchSide
from tests.support.torchkit import check_training_step, converted, layers_of, seeded, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional

IDS = (4, 3)
IDS_OF_8 = torch.zeros(1, 8)
BOTH = {"dense": (4, 3), "ids": IDS}


class Text(nn.Module):
    """Words as vectors, a convolution over them, and the largest of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.conv = nn.Conv1d(6, 7, 3, padding=1)
        self.scores = nn.Linear(7, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.scores(self.conv(self.words(ids).transpose(1, 2)).amax(2))


class Bags(nn.Module):
    """Bags of one size or, with offsets, of any."""

    def __init__(self, mode: str, *, flat: bool = False) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(11, 6, mode=mode)
        self.scores = nn.Linear(6, 5)
        self.flat = flat

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
        if self.flat:
            ids, offsets = ids.flatten(), torch.arange(0, ids.numel(), ids.shape[1])
        return self.scores(self.table(ids, offsets))


class Ranking(nn.Module):
    """DLRM: a table for each column of the ids, and the products of all pairs of vectors."""

    def __init__(self, *, diagonal: bool = False, stacked: bool = False, first: bool = True) -> None:
        super().__init__()
        self.bottom = nn.Linear(3, 4)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 4, mode="sum") for rows in (7, 9, 5))
        self.diagonal, self.stacked, self.first = diagonal, stacked, first
        self.scores = nn.Linear(4 * first + (10 if diagonal else 6), 5)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bottom(dense))
        found = [table(ids[:, number : number + 1]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([x, *found], 1) if self.stacked else torch.cat([x, *found], 1).view(len(x), -1, 4)
        products = torch.bmm(vectors, vectors.permute(0, 2, 1) if self.stacked else torch.transpose(vectors, 1, 2))
        rows, columns = torch.tril_indices(4, 4, 0 if self.diagonal else -1)
        pairs = products[:, rows, columns]
        first = vectors[:, 0] if self.stacked and not self.diagonal else x
        return self.scores(torch.cat([first, pairs], 1) if self.first else pairs)


_FOUND = ["InnerProduct", "ReLU", "Slice", "EmbeddingBag", "EmbeddingBag", "EmbeddingBag"]
_JOINED = [*_FOUND, "Concat", "Reshape", "DotInteraction"]
_STACKED = [*_FOUND, "Reshape", "Reshape", "Reshape", "Reshape", "Concat", "DotInteraction", "InnerProduct"]
MODULES = {
    "embedding": (Text(), (4, 6), ["Embed", "Permute", "Convolution", "Reshape", "Pooling", "Flatten", "InnerProduct"]),
    "sums": (Bags("sum"), IDS, ["EmbeddingBag", "InnerProduct"]),
    "means": (Bags("mean"), IDS, ["EmbeddingBag", "InnerProduct"]),
    "bags of a flat list": (Bags("sum", flat=True), IDS, ["EmbeddingBag", "InnerProduct"]),
    "bags by offsets": (Bags("mean"), {"ids": (9,), "offsets": (4,)}, ["EmbeddingBag", "InnerProduct"]),
    "products": (Ranking(), BOTH, [*_JOINED, "InnerProduct"]),
    "products with the diagonal": (Ranking(diagonal=True), BOTH, [*_JOINED, "InnerProduct"]),
    "products of stacked vectors": (Ranking(stacked=True), BOTH, _STACKED),
    "products of stacked vectors with the diagonal": (Ranking(stacked=True, diagonal=True), BOTH, _STACKED),
    "products alone": (Ranking(first=False), BOTH, [*_JOINED, "Slice", "InnerProduct", "Silence"]),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_with_tables_computes_the_same_and_trains_the_same(name):
    module, shape, types = MODULES[name]
    assert types_of(converted(module, shape)) == types
    check_training_step(module, shape)


class Moved(nn.Module):
    """Ids of several inputs and parts, joined and reordered, and a table that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.bags = nn.Embedding(11, 6), nn.EmbeddingBag(11, 6)
        self.scores = nn.Linear(6, 5)

    def forward(self, ids: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        both = torch.cat(tensors=[ids.detach(), torch.stack([more, more], 1)], dim=1)
        turned = both.t().contiguous().transpose(0, 1).reshape(4, -1)
        return self.scores(self.table(turned).mean(1) + self.table(ids[:, :1]).sum(1) + self.bags(turned[:, 1:]))


def test_ids_may_be_moved_and_joined_before_they_are_rows():
    shapes = {"ids": IDS, "more": (4,)}
    converted(Moved(), shapes)
    check_training_step(Moved(), shapes)


def test_vectors_that_are_written_over_are_products_of_what_they_were():
    class Doubled(Ranking):
        def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            vectors = torch.stack([self.bottom(dense), *(table(ids[:, :1]) for table in self.tables)], 1)
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            vectors.mul_(2)
            rows, columns = torch.tril_indices(4, 4, -1)
            return torch.cat([vectors[:, 0], products[:, rows, columns]], 1)

    assert "DotInteraction" not in types_of(converted(Doubled(), BOTH))


class Padded(nn.Module):
    """A table with a row that is not trained."""

    def __init__(self, padding: int, *, zeros: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=padding)
        self.scores = nn.Linear(6, 5)
        self.zeros = zeros

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.scores(self.table(ids).sum(1))


@pytest.mark.parametrize(("padding", "zeros"), [(0, True), (-1, False), (3, False)])
def test_a_row_of_a_table_that_is_not_trained_stays_what_it_is(padding, zeros, monkeypatch):
    module = seeded(Padded(padding, zeros=zeros))
    if zeros:
        module.table.weight.data[padding] = 0
    monkeypatch.setattr("tests.support.torchkit.seeded", lambda same: same)
    shape = (40, 3)  # every row is read
    types = types_of(converted(module, shape))
    assert types == ["Embed", "Embed", "Flatten", "Scale"] + ["Power", "InnerProduct", "Eltwise"] * (not zeros) + [
        "Permute", "Reduction", "InnerProduct"]  # fmt: skip
    check_training_step(module, shape)


@pytest.mark.parametrize("zeros", [True, False])
def test_a_row_that_is_not_trained_may_be_among_known_rows(zeros, monkeypatch):
    class Known(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.scores = nn.Embedding(11, 6, padding_idx=2), nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scores(x + self.table(torch.tensor([1, 2, 2, 5])).sum(0))

    module = seeded(Known())
    if zeros:
        module.table.weight.data[2] = 0
    monkeypatch.setattr("tests.support.torchkit.seeded", lambda same: same)
    converted(module, (3, 6))
    check_training_step(module, (3, 6))


def test_rows_of_a_table_may_be_known():
    class Places(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(11, 6), nn.Embedding(9, 6)
            self.scores = nn.Linear(6, 5)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            places = torch.arange(ids.shape[1]).unsqueeze(0)
            return self.scores((self.words(ids) + self.places(places)).mean(1))

    assert types_of(converted(Places(), IDS))[:4] == ["Embed", "Parameter", "Embed", "Reshape"]
    check_training_step(Places(), IDS)


def test_rows_of_a_frozen_table_may_be_left_out_of_training():
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6, padding_idx=0)
            self.table.weight.requires_grad_(False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids)

    (layer,) = layers_of(converted(Frozen(), IDS))
    assert layer.type == "Embed" and layer.param[0].lr_mult == 0


def test_numbers_that_are_no_rows_are_said_by_both_sides(tmp_path):
    """Computed before they become whole numbers, so that the examples are any."""

    class Tripled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(2, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table((x * 3).long())

    with pytest.raises(DataError):
        converted(Tripled(), IDS)
    with pytest.raises(DataError, match="PyTorch cannot run the program: IndexError: index out of range"):
        side = TorchSide(export_module(Tripled(), IDS, "the module"))
        side.run({next(iter(side.inputs)): np.full(IDS, 7, np.float32)})


def test_numbers_cast_to_whole_ones_are_rows():
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids.long()[:, 1:].contiguous().flatten(1)) * 2

    assert types_of(converted(Cast(), IDS)) == ["Slice", "Flatten", "Embed", "Power", "Silence"]


class Backwards(nn.Module):
    """Ids from the last to the first, or every other one, as rows of a table of numbers."""

    def __init__(self, move: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.scores, self.move = nn.Embedding(700, 6), nn.Linear(6, 5), move

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.scores(self.table(self.move(ids.long())))


@pytest.mark.parametrize("move", [lambda ids: ids.flip(1), lambda ids: ids[:, 1::2], lambda ids: ids[:, ::7]])
def test_ids_in_another_order_are_exact_where_products_are_of_16_bits(move):
    model = converted(Backwards(move), (40, 8))
    assert types_of(model) == ["Slice", "Concat", "Embed", "InnerProduct", *["Silence"] * (move(IDS_OF_8).shape[1] < 8)]
    net = Net(model.source.param, sources=model.source, precision=BF16)
    model.copy_weights(net)
    ids = np.random.default_rng(0).integers(257, 700, (40, 8)).astype(np.float32)
    (table,) = (layer for layer in layers_of(model) if layer.name == "table")
    values = CaffeSide(net).run({"data": ids})[table.bottom[0]]
    assert np.array_equal(values, move(torch.from_numpy(ids)).numpy())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_program_says_itself_which_inputs_are_whole_numbers(dtype, tmp_path):
    program = torch.export.export(nn.Embedding(5, 3), (torch.zeros(2, 3, dtype=dtype),), strict=False)
    torch.export.save(program, tmp_path / "net.pt2")
    model = import_program(load_program(str(tmp_path / "net.pt2")), name="net", file="net.pt2")
    (layer,) = layers_of(model)
    param = layer.embed_param
    assert (layer.type, param.input_dim, param.num_output, param.bias_term) == ("Embed", 5, 3, False)


class Refused(nn.Module):
    """Something done with ids, and rows of a table."""

    def __init__(self, function) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(11, 6))
        self.function = function

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.function(ids.long(), self.table)


def _bag(ids, table, **options):
    return F.embedding_bag(ids, table, **options)


REFUSED = {
    "sums of ids": (lambda ids, table: F.embedding(ids + 1, table), "it computes with whole numbers"),
    "ids as numbers": (lambda ids, table: F.embedding(ids, table)[..., 0] + ids.float(), "computes with whole numbers"),
    "places by ids": (lambda ids, table: (table * 2)[ids], "it computes with whole numbers"),
    "ids as output": (lambda ids, table: ids, "it makes whole numbers for an output"),
    "moved ids as output": (lambda ids, table: ids[:, 1:].flatten(1), "it makes whole numbers for an output"),
    "every other text": (
        lambda ids, table: F.embedding(ids[::2], table), "it takes some items of the batch"),
    "ids among numbers": (
        lambda ids, table: torch.cat([ids, F.embedding(ids, table)[..., 0]], 1), "it computes with whole numbers"),
    "a row that bags leave out": (lambda ids, table: _bag(ids, table, padding_idx=1), "padding_idx=None"),
    "gradients by frequency": (
        lambda ids, table: F.embedding(ids, table, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
    "maxima": (lambda ids, table: _bag(ids, table, mode="max"), "it takes the largest values of its bags"),
    "weights": (
        lambda ids, table: _bag(ids, table, mode="sum", per_sample_weights=torch.ones(4, 3)), "rows by per_sample"),
    "a last offset": (
        lambda ids, table: _bag(ids.flatten(), table, offsets=torch.tensor([0, 12]), include_last_offset=True),
        "its last offset is the number of ids"),
    "offsets that are numbers": (
        lambda ids, table: _bag(ids.flatten(), table, offsets=torch.tensor([0, 5, 6])), "make them an input"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_does_with_tables_is_refused(name):
    function, message = REFUSED[name]
    program = export_module(Refused(function), IDS, "the module")
    with pytest.raises(NetError, match=message) as caught:
        import_program(program, name="net", file="net")
    assert caught.value.location is not None


def test_rows_that_float32_does_not_count_to_are_refused(monkeypatch):
    module = Refused(lambda ids, table: F.embedding(torch.tensor([10, 0, 3]), table) + F.embedding(ids, table))
    program = export_module(module, IDS, "the module")
    monkeypatch.setattr(products, "MOST_ROWS", 11)
    import_program(program, name="net", file="net")
    monkeypatch.setattr(products, "MOST_ROWS", 10)
    with pytest.raises(NetError, match="it takes rows of 11, and float32 counts to 10"):
        import_program(program, name="net", file="net")


def test_a_module_that_fails_for_another_reason_says_it():
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids) @ torch.ones(5)

    with pytest.raises(NetError, match=r"torch\.export refuses the module: .*6.*5") as caught:
        export_module(Failing(), IDS, "the module")
    assert caught.value.location.file == __file__
