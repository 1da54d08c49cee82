"""The nets for click-through rates in models/: their sizes, and that they compute what plain PyTorch computes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from mgcaffe.engine.net import Net
from mgcaffe.prototxt import TEST, TRAIN, LayerParameter, NetParameter, parse_net, read_net, read_solver
from mgcaffe.solvers import Solver
from models import generate_ctr
from tests.support.paths import MODELS
from tests.support.shapes import Shapes, infer, layers_of

BATCH, MOST_ROWS = 7, 40
KAGGLE_ROWS = 840_543  # of all tables, none of them above 100,000


class Sizes(NamedTuple):
    """What is known of a net: values of its tables, its other parameters, and the rows that it is tested on."""

    tables: int
    others: int
    test_rows: int


NETS = {
    "dlrm_kaggle": Sizes(KAGGLE_ROWS * 16, 155_984 + 320_001, 6_548_659),
    "dlrm_small": Sizes(26 * 4096 * 8, 1_416 + 23_105, 20_000),
    "deepfm": Sizes(KAGGLE_ROWS * 11, 14 + 430_801, 6_548_659),
}
each_net = pytest.mark.parametrize("name", NETS)


def read(name: str, file: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_net(MODELS / name / f"{file}.prototxt", strict=True)


def counts(shapes: Shapes) -> tuple[int, int]:
    tables = sum(math.prod(shape) for layer, (shape, *_) in shapes.parameters.items() if layer.startswith("emb"))
    return tables, shapes.parameter_count - tables


@pytest.mark.parametrize("path", generate_ctr.files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_are_what_the_generator_writes(path: Path) -> None:
    assert path.read_text() == generate_ctr.files()[path]


@each_net
def test_training_testing_and_deployed_nets_have_the_same_parameters_as_many_as_expected(name: str) -> None:
    train, test = (infer(read(name, "train_val"), phase) for phase in (TRAIN, TEST))
    deploy = infer(read(name, "deploy"), TEST)
    assert counts(train) == NETS[name][:2]
    assert train.parameters == test.parameters == deploy.parameters
    assert deploy.blobs["prob"] == (128, 1)
    assert (test.blobs["auc"], test.blobs["normalized_entropy"], "auc" in train.blobs) == ((), (), False)


def test_dlrm_with_whole_tables_has_the_540_million_parameters_of_its_authors() -> None:
    net = parse_net(generate_ctr.dlrm_kaggle(training=True, most_rows=10**8), file="net.prototxt").param
    shapes = infer(net, TRAIN)
    assert counts(shapes) == (540_201_232, 475_985)
    assert shapes.blobs["interaction"] == (128, 367)


@each_net
def test_solver_names_its_own_net_and_tests_whole_batches(name: str) -> None:
    solver = read_solver(MODELS / name / "solver.prototxt", strict=True)
    assert solver.net == f"models/{name}/train_val.prototxt"
    assert solver.snapshot_prefix == f"models/{name}/{name}"
    assert solver.momentum == solver.weight_decay == 0  # which tables do not take
    batch = layers_of(read(name, "train_val"), TEST)[0].criteo_data_param.batch_size
    assert solver.test_iter[0] == NETS[name].test_rows // batch


def test_dlrm_starts_as_its_authors_do() -> None:
    net = Net(small(read("dlrm_kaggle", "train_val")), seed=1)
    layers = {layer.name: layer for layer in net.layers}
    weight, bias = (parameter.data for parameter in layers["bottom2"].parameters)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (512 + 256)), rel=0.01)
    assert bias.std().item() == pytest.approx(math.sqrt(1 / 256), rel=0.15)
    table = layers["emb1"].parameters[0].data
    bound = 1 / math.sqrt(MOST_ROWS)
    assert 0.95 * bound < table.abs().max() <= bound
    assert table.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def small(net: NetParameter) -> NetParameter:
    """The net with blobs to fill instead of data, and with few rows in each table."""
    layers = layers_of(net, TRAIN)[1:]
    for layer in layers:
        if layer.type == "EmbeddingBag":
            layer.embedding_bag_param.input_dim = min(layer.embedding_bag_param.input_dim, MOST_ROWS)
    source = LayerParameter(name="data", type="Input", top=["label", "dense", *(f"C{i}" for i in range(1, 27))])
    for dims in ((BATCH,), (BATCH, 13), *[(BATCH, 1)] * 26):
        source.input_param.shape.add().dim.extend(dims)
    made = NetParameter(name=net.name)
    made.layer.extend([source, *layers])
    return made


class TorchNet(nn.Module):
    """A net in plain PyTorch with the weights of ours, by the layers' names."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.bags, self.dense = nn.ModuleDict(), nn.ModuleDict()
        for layer in net.layers:
            values = [parameter.data.clone() for parameter in layer.parameters]
            if layer.type == "EmbeddingBag":
                self.bags[layer.name] = nn.EmbeddingBag(*values[0].shape, mode="sum", _weight=values[0])
            elif values:
                linear = nn.Linear(*values[0].shape[::-1], dtype=torch.float64)
                linear.weight.data, linear.bias.data = values
                self.dense[layer.name] = linear

    def mlp(self, name: str, x: torch.Tensor, *, last_is_linear: bool = False) -> torch.Tensor:
        """Inner products with ReLUs."""
        layers = [layer for key, layer in self.dense.items() if key.startswith(name)]
        for layer in layers:
            x = layer(x)
            if layer is not layers[-1] or not last_is_linear:
                x = torch.relu(x)
        return x

    def rows(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """What the tables give, (batch, length) of each."""
        return [bag(column) for bag, column in zip(self.bags.values(), ids, strict=True)]


class Dlrm(TorchNet):
    """DLRM."""

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.mlp("bottom", dense)
        vectors = torch.stack([x, *self.rows(ids)], 1)
        products = vectors @ vectors.transpose(1, 2)
        below = torch.tensor([[i, j] for i in range(27) for j in range(i)]).T
        return self.mlp("top", torch.cat([x, products[:, below[0], below[1]]], 1), last_is_linear=True)


class DeepFM(TorchNet):
    """DeepFM, with the dot products of all pairs one by one."""

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        rows = self.rows(ids)
        first = sum(row[:, :1] for row in rows)
        vectors = [row[:, 1:] for row in rows]
        second = sum((vectors[i] * vectors[j]).sum(1, keepdim=True) for i in range(26) for j in range(i))
        deep = self.mlp("deep", torch.cat([*vectors, dense], 1), last_is_linear=True)
        return self.dense["linear"](dense) + first + second + deep


def largest_difference(net: Net, other: TorchNet) -> float:
    """Between all parameters, relative to the largest value of each."""
    differences = []
    for layer in net.layers:
        module = {**other.bags, **other.dense}.get(layer.name)
        if module is None:
            continue
        for ours, theirs in zip(layer.parameters, module.parameters(), strict=True):
            differences.append(float((ours.data - theirs.data).abs().max() / theirs.data.abs().max()))
    assert len(differences) >= 26 + 8
    return max(differences)


@each_net
def test_loss_and_a_training_step_are_those_of_plain_pytorch(name: str) -> None:
    source = read_solver(MODELS / name / "solver.prototxt")
    source.random_seed, source.snapshot_after_train = 3, False
    source.delta = 1e-4  # by the default, 1e-8, the first step of a gradient that is all rounding could be large
    for field in ("net", "test_iter", "test_interval"):
        source.ClearField(field)
    source.net_param.CopyFrom(small(read(name, "train_val")))
    with Solver(source, dtype=torch.float64) as solver:
        other = (DeepFM if name == "deepfm" else Dlrm)(solver.net)
        assert largest_difference(solver.net, other) == 0
        generator = torch.Generator().manual_seed(5)
        dense = torch.rand(BATCH, 13, generator=generator, dtype=torch.float64) * 5
        sizes = [bag.num_embeddings for bag in other.bags.values()]
        ids = torch.stack([torch.randint(size, (BATCH, 1), generator=generator) for size in sizes])
        labels = torch.randint(2, (BATCH,), generator=generator).double()
        for top, values in zip(solver.net.layers[0].forward([]), (labels, dense, *ids), strict=True):
            top.copy_(values)
        histories = [torch.zeros_like(parameter) for parameter in other.parameters()]
        for step in range(3):
            solver.step(1)
            other.zero_grad()
            logits = other(dense, ids).reshape(-1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            loss.backward()
            for parameter, history in zip(other.parameters(), histories, strict=True):
                history += parameter.grad**2
                scale = history.sqrt() + source.delta if source.type == "AdaGrad" else 1
                parameter.data -= source.base_lr * parameter.grad / scale
            assert solver.net.blobs["loss"].data.item() == pytest.approx(loss.item(), rel=1e-12), step
            assert largest_difference(solver.net, other) < 1e-12, step
