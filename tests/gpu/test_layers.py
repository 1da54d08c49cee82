"""Every layer on the GPU against the same layer on the CPU, and its gradients against differences."""

import functools

import pytest
import torch

from mgcaffe.engine.net import TEST, TRAIN, Net
from mgcaffe.tools.convert.caffe_side import fitting_inputs
from tests.support.fork_nets import FORK_NETS
from tests.support.layer_cases import CASES, MODULE_CASES
from tests.support.netkit import inputs, make_net

STEP = 1e-5
RANDOM = ("Dropout", "stochastic")

LISTED = [(kind, each) for cases in (CASES, MODULE_CASES) for kind, named in cases.items() for each in named.items()]
TEXTS = FORK_NETS | {f"{kind}-{name}": text for kind, (name, text) in LISTED}
ONE_OF_EACH = [*(f"{kind}-{next(iter(cases))}" for kind, cases in CASES.items()), *FORK_NETS]
ON_THE_GPU = [*TEXTS] if torch.cuda.is_available() else [*ONE_OF_EACH, "Pooling-ave_k2_s2", "Pooling-stochastic_k2_s2"]
"""The stand-in takes one case of each type: it computes by the CPU's kernels, which other tests try in every case."""


@functools.cache
def text_of(name):
    return f"force_backward: true {TEXTS[name]}"


def filled(name: str, device: torch.device | str, phase: int) -> Net:
    net = make_net(text_of(name), phase=phase, device=device)
    for blob, values in fitting_inputs(net).items():
        net.blobs[blob].data.copy_(torch.from_numpy(values))
    return net


def run(net: Net) -> dict[str, torch.Tensor]:
    """Return what a pass in both directions computes, in the host's memory."""
    net.forward()
    found = {name: values.cpu() for name, values in net.output_values()}
    if net.phase == TRAIN and net.nodes[-1].needs_backward:
        for parameter in net.parameters:
            parameter.clear_diff()
        for blob in net.nodes[-1].tops:
            generator = torch.Generator().manual_seed(3)
            blob.diff = torch.randn(blob.shape, generator=generator, dtype=net.dtype).to(net.device)
        net.backward()
        found |= {f"gradient of {name}": net.blobs[name].diff.cpu() for name in net.inputs}
        found |= {f"gradient {index}": each.dense_diff().cpu() for index, each in enumerate(net.parameters)}
    return found


@pytest.mark.parametrize("name", ON_THE_GPU)
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_a_layer_computes_what_it_computes_on_the_cpu(name, phase, device):
    expected, found = run(filled(name, "cpu", phase)), run(filled(name, device, phase))
    assert expected.keys() == found.keys()
    for what, values in found.items():
        if phase == TRAIN and any(kind in name for kind in RANDOM):
            assert values.shape == expected[what].shape and values.isfinite().all()
        else:
            torch.testing.assert_close(values, expected[what], rtol=1e-7, atol=1e-7, msg=lambda text: f"{what}: {text}")  # noqa: B023


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if "Dropout" not in name])
def test_gradients_are_those_of_differences(name, device):
    net = filled(name, device, TRAIN)
    if not net.nodes[-1].needs_backward:
        return
    found = run(net)
    weights = [blob.diff.cpu() for blob in net.nodes[-1].tops]
    generator = torch.Generator().manual_seed(5)

    def objective() -> float:
        for _, layer in net.recurrent_layers:
            layer.reset_state()
        net.forward()
        tops = zip(net.nodes[-1].tops, weights, strict=True)
        return sum(float((blob.data.cpu() * weight).sum()) for blob, weight in tops)

    gradients = [(net.blobs[blob].data, found[f"gradient of {blob}"]) for blob in differentiable(net)]
    gradients += [
        (each.data, found[f"gradient {index}"])
        for index, each in enumerate(net.parameters)
        if each.wanted and each.count
    ]
    for values, gradient in gradients:
        for place in torch.randint(gradient.numel(), (3,), generator=generator).tolist():
            index = tuple(int(each) for each in torch.unravel_index(torch.tensor(place), values.shape))
            kept = values[index].item()
            values[index] = kept + STEP
            above = objective()
            values[index] = kept - STEP
            below = objective()
            values[index] = kept
            assert gradient[index].item() == pytest.approx((above - below) / (2 * STEP), rel=1e-4, abs=1e-5), index


def differentiable(net: Net) -> list[str]:
    """Return the inputs that the last layer's gradient reaches and is the gradient of."""
    node = net.nodes[-1]
    read = {blob.name: number for number, blob in enumerate(node.bottoms)}
    return [name for name in net.inputs if name in read and node.wants[read[name]]]


def test_a_seed_gives_the_same_weights_and_layers_of_one_shape_different_ones(device):
    fields = 'inner_product_param { num_output: 4 weight_filler { type: "xavier" } }'
    layers = (f'layer {{ name: "{name}" type: "InnerProduct" bottom: "x" top: "{name}" {fields} }}' for name in "ab")
    text = inputs(x=(2, 3)) + "".join(layers)
    here, there = make_net(text), make_net(text, device=device)
    first, _, second, _ = (parameter.data.cpu() for parameter in there.parameters)
    assert not torch.equal(first, second)
    assert torch.equal(there.arena.data.cpu(), here.arena.data)
