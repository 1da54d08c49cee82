"""The plain-PyTorch models of benchmarks/ are the nets of models/: parameters, names, losses and gradients."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from benchmarks import torch_models
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import LayerParameter, read_net
from tests.support.paths import MODELS
from tests.support.shapes import TRAIN, infer

HEADS = ("loss1/", "loss2/")

# Name, with auxiliary heads, batch of the comparison, parameters.
VARIANTS = [
    ("lenet", False, 3, 431_080),
    ("cifar10_quick", False, 3, 145_578),
    ("cifar10_full", False, 3, 89_578),
    ("alexnet", False, 1, 60_965_224),
    ("googlenet", False, 1, 6_998_552),
    ("googlenet", True, 1, 13_378_280),
    ("resnet50", False, 2, 25_557_096),
]
each_variant = pytest.mark.parametrize(
    ("name", "auxiliary", "batch", "count"),
    VARIANTS,
    ids=[name + "_auxiliary" * heads for name, heads, _, _ in VARIANTS],
)


def train_net(name: str, auxiliary: bool, batch: int) -> Any:
    """The train_val net with an Input layer for data and without Dropout, which draws random numbers."""
    net = read_net(MODELS / name / "train_val.prototxt")
    layers = [
        layer
        for layer in net.layer
        if layer.type not in ("Data", "Dropout") and (auxiliary or not layer.name.startswith(HEADS))
    ]
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend((batch, *torch_models.BATCHES[name][1:]))
    source.input_param.shape.add().dim.append(batch)
    del net.layer[:]
    net.layer.extend([source, *layers])
    return net


@each_variant
def test_parameters_fit_the_prototxt_by_name(name: str, auxiliary: bool, batch: int, count: int) -> None:
    model = torch_models.build(name, auxiliary)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    ours = infer(train_net(name, auxiliary, batch), TRAIN).parameters
    theirs = {}
    for state, parameter in model.named_parameters():
        place = torch_models.blob_of(state)
        assert place is not None
        theirs[place] = tuple(parameter.shape)
    assert theirs == {(layer, index): shape for layer, shapes in ours.items() for index, shape in enumerate(shapes)}


@pytest.mark.slow
@each_variant
def test_loss_and_gradients_are_those_of_the_engine(name: str, auxiliary: bool, batch: int, count: int) -> None:
    net = Net(train_net(name, auxiliary, batch), seed=1, dtype=torch.float64)
    model = torch_models.build(name, auxiliary).double()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch_models.copy_blobs(model, {layer.name: [p.data for p in layer.parameters] for layer in net.layers})
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(batch, *torch_models.BATCHES[name][1:], generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (batch,), generator=generator)
    for top, values in zip(net.layers[0].forward([]), (images, labels), strict=True):
        top.copy_(values)

    net.clear_param_diffs()
    ours = net.forward_backward()
    theirs = torch_models.loss(model(images), labels)
    theirs.backward()

    # A loss weight of 0.3 in a prototxt is a float32.
    assert ours == pytest.approx(theirs.item(), rel=1e-7)
    layers = {layer.name: layer for layer in net.layers}
    largest = max(parameter.grad.abs().max().item() for parameter in model.parameters())
    for state, parameter in model.named_parameters():
        layer, index = torch_models.blob_of(state)
        torch.testing.assert_close(
            layers[layer].parameters[index].diff,
            parameter.grad,
            rtol=1e-6,
            atol=1e-9 * largest,
            msg=lambda text, state=state: f"{state}: {text}",
        )


def test_batch_normalisation_takes_caffes_statistics_and_scale() -> None:
    model = torch.nn.Module()
    model.add_module("bn2a_branch1", torch.nn.BatchNorm2d(2))
    blobs = {
        "bn2a_branch1": [torch.tensor([2.0, 4.0]), torch.tensor([6.0, 8.0]), torch.tensor([4.0])],
        "scale2a_branch1": [torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])],
    }
    torch_models.copy_blobs(model, blobs)
    state = model.state_dict()
    # The sums of means and variances are divided by the third blob.
    assert state["bn2a_branch1.running_mean"].tolist() == [0.5, 1.0]
    assert state["bn2a_branch1.running_var"].tolist() == [1.5, 2.0]
    assert torch.equal(state["bn2a_branch1.weight"], blobs["scale2a_branch1"][0])
    assert torch.equal(state["bn2a_branch1.bias"], blobs["scale2a_branch1"][1])


@pytest.mark.slow
def test_names_with_slashes_can_be_traced_whole_by_torch_compile() -> None:
    model = torch_models.build("googlenet").eval()
    images = torch.randn(1, 3, 224, 224)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own modules
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        with torch.no_grad():
            assert torch.equal(compiled(images), model(images))
