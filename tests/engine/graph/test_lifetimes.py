"""In-place layers never corrupt a neighbour, freed and fused nets compute what the plain one computes."""

import pytest
import torch

from tests.support.netkit import inputs, make_net

IMAGE = inputs(x=(2, 3, 6, 6), y=(2, 4))
HEAD = (
    'layer { name: "ip" type: "InnerProduct" bottom: "h" top: "ip" inner_product_param { num_output: 4'
    ' weight_filler { type: "xavier" } } }\n'
    'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }\n'
)
CONV = (
    'layer { name: "conv" type: "Convolution" bottom: "x" top: "h" convolution_param { num_output: 4'
    ' kernel_size: 3 weight_filler { type: "xavier" } bias_filler { type: "gaussian" std: 0.1 } } }\n'
)


def unary(kind: str, bottom: str = "h", top: str = "h", extra: str = "") -> str:
    return f'layer {{ name: "{kind}_{top}" type: "{kind}" bottom: "{bottom}" top: "{top}" {extra} }}\n'


def gradients(text: str, *, keep_blobs: bool, passes: int = 1) -> tuple[float, torch.Tensor, torch.Tensor]:
    net = make_net(text, keep_blobs=keep_blobs)
    generator = torch.Generator().manual_seed(3)
    for node in net.nodes:
        if node.layer.type == "Input":
            for top in node.layer.forward([]):
                top.copy_(torch.randn(top.shape, generator=generator, dtype=torch.float64))
    for _ in range(passes):
        net.clear_param_diffs()
        loss = net.forward_backward()
    return loss, net.arena.diff.clone(), net.arena.data.clone()


def assert_same(first: str, second: str, **options: bool) -> None:
    (loss, diff, data), (other_loss, other_diff, other_data) = (
        gradients(first, keep_blobs=True),
        gradients(second, **{"keep_blobs": True, **options}),
    )
    assert loss == pytest.approx(other_loss, rel=1e-12)
    torch.testing.assert_close(diff, other_diff, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(data, other_data)


@pytest.mark.parametrize("first", ["Sigmoid", "TanH", "ReLU", "Softmax"])
@pytest.mark.parametrize("second", ["ReLU", "Sigmoid", "Power"])
@pytest.mark.parametrize("keep_blobs", [True, False])
def test_in_place_layer_leaves_what_its_producer_keeps(first, second, keep_blobs):
    extra = "power_param { power: 2 scale: 0.5 shift: 1 }" if second == "Power" else ""
    apart = CONV + unary(first, "h", "a") + unary(second, "a", "b", extra) + HEAD.replace('"h"', '"b"')
    in_place = CONV + unary(first, "h", "a") + unary(second, "a", "a", extra) + HEAD.replace('"h"', '"a"')
    assert_same(IMAGE + apart, IMAGE + in_place, keep_blobs=keep_blobs)


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_in_place_layer_on_a_view_leaves_the_other_reader_alone(keep_blobs):
    tail = 'layer { name: "sum" type: "Eltwise" bottom: "v" bottom: "h" top: "s" }\n' + HEAD.replace('"h"', '"s"')
    shape = "reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 0 } }"
    apart = CONV + unary("Reshape", "h", "r", shape) + unary("ReLU", "r", "v") + tail
    in_place = CONV + unary("Reshape", "h", "v", shape) + unary("ReLU", "v", "v") + tail
    assert_same(IMAGE + apart, IMAGE + in_place, keep_blobs=keep_blobs)


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("keep_blobs", [True, False])
@pytest.mark.parametrize("reader", ["relu", "sum"])
def test_an_output_that_is_a_view_of_what_others_read_stays_as_it_is(phase, keep_blobs, reader):
    shape = "reshape_param { shape { dim: 0 dim: -1 } }"
    split = 'layer { name: "two" type: "Split" bottom: "h" top: "a" top: "b" }\n'
    use = {
        "relu": unary("ReLU", "b", "b", "relu_param { negative_slope: 0.1 }"),
        "sum": unary("TanH", "x", "t") + 'layer { name: "sum" type: "Eltwise" bottom: "b" bottom: "t" top: "s" }\n',
    }[reader]
    net = make_net(
        inputs(x=(2, 3)) + unary("TanH", "x", "h") + split + unary("Reshape", "a", "r", shape) + use,
        phase=phase,
        keep_blobs=keep_blobs,
    )
    net.layers[0].forward([])[0].copy_(torch.tensor([[-1.0, 2, -3], [4, -5, 6]]))
    net.forward()
    expected = torch.tanh(net.layers[0].forward([])[0])
    torch.testing.assert_close(dict(net.output_values())["r"], expected)


def test_in_place_relu_never_writes_into_the_input():
    text = inputs(x=(2, 3)) + unary("ReLU", "x", "x")
    net = make_net(text)
    values = net.layers[0].forward([])[0]
    values.copy_(torch.tensor([[-1.0, 2, -3], [4, -5, 6]]))
    kept = values.clone()
    net.forward()
    assert torch.equal(values, kept)
    assert net.blobs["x"].data.min() == 0


NORM = unary("BatchNorm") + unary("Scale", "h", "h", "scale_param { bias_term: true }")


@pytest.mark.parametrize(
    "body",
    [
        CONV + unary("ReLU"),
        CONV + unary("ReLU", "h", "r") + HEAD.replace('"h"', '"r"'),
        CONV + NORM,
        CONV + NORM + unary("ReLU"),
        CONV
        + unary("BatchNorm", "h", "n")
        + unary("Scale", "n", "s")
        + unary("ReLU", "s", "s")
        + HEAD.replace('"h"', '"s"'),
        CONV + NORM + unary("ReLU", "h", "a") + unary("ReLU", "a", "a") + HEAD.replace('"h"', '"a"'),
    ],
)
def test_fused_layers_compute_what_single_ones_compute(body):
    text = IMAGE + body + ("" if "InnerProduct" in body else HEAD)
    fused = make_net(text, keep_blobs=False)
    assert any(len(step.members) > 1 for step in fused._steps)
    assert_same(text, text, keep_blobs=False)


def test_a_sum_leaves_alone_what_a_fused_norm_before_it_keeps():
    branch = unary("BatchNorm", "h", "n") + unary("Scale", "n", "n", "scale_param { bias_term: true }")
    total = 'layer { name: "sum" type: "Eltwise" bottom: "h" bottom: "n" top: "s" }\n'
    for middle in ("", unary("ReLU", "n", "n"), unary("TanH", "n", "n")):
        text = IMAGE + CONV + branch + middle + total + HEAD.replace('"h"', '"s"')
        assert_same(text, text, keep_blobs=False)


def test_in_place_layer_leaves_alone_what_a_fused_norm_reads_under_another_name():
    split = 'layer { name: "two" type: "Split" bottom: "h" top: "a" top: "b" }\n'
    norm = unary("BatchNorm", "a", "n") + unary("Scale", "n", "n", "scale_param { bias_term: true }")
    total = 'layer { name: "sum" type: "Eltwise" bottom: "b" bottom: "n" top: "s" }\n'
    text = IMAGE + CONV + split + norm + unary("ReLU", "b", "b") + total + HEAD.replace('"h"', '"s"')
    assert_same(text, text, keep_blobs=False)


def test_layers_that_others_read_are_not_fused():
    text = (
        IMAGE
        + CONV
        + unary("ReLU", "h", "r")
        + ('layer { name: "sum" type: "Eltwise" bottom: "r" bottom: "h" top: "s" }\n' + HEAD.replace('"h"', '"s"'))
    )
    net = make_net(text, keep_blobs=False)
    assert all(len(step.members) == 1 for step in net._steps)
    assert_same(text, text, keep_blobs=False)


def test_leaky_relu_is_not_fused():
    text = IMAGE + CONV + unary("ReLU", "h", "h", "relu_param { negative_slope: 0.1 }") + HEAD
    assert_same(text, text, keep_blobs=False)


def test_fused_test_net_uses_the_stored_statistics():
    text = IMAGE + CONV + NORM + unary("ReLU") + HEAD
    nets = [make_net(text, phase=1, keep_blobs=keep) for keep in (True, False)]
    losses = []
    for net in nets:
        for node in net.nodes[:2]:
            node.layer.forward([])[0].normal_(generator=torch.Generator().manual_seed(4))
        norm = next(layer for layer in net.layers if layer.type == "BatchNorm")
        for parameter, value in zip(norm.parameters, (0.3, 1.7, 2.0), strict=True):
            parameter.data.fill_(value)
        losses.append(net.forward())
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_a_training_net_keeps_no_dead_blob():
    net = make_net(IMAGE + CONV + NORM + unary("ReLU") + HEAD, keep_blobs=False)
    net.forward_backward()
    alive = {name for name, blob in net.blobs.items() if blob.data is not None}
    assert alive == {"loss"}
    assert all(blob.diff is None for blob in net.blobs.values())
    assert all(layer.saved is None for layer in net.layers)


def convolution(name: str, bottom: str = "x") -> str:
    return CONV.replace('"conv"', f'"{name}"').replace('"x"', f'"{bottom}"').replace('top: "h"', f'top: "{name}"')


def summed(bottoms: str, extra: str = "") -> str:
    words = " ".join(f'bottom: "{blob}"' for blob in bottoms.split())
    return f'layer {{ name: "sum" type: "Eltwise" {words} top: "h" {extra} }}\n' + HEAD


@pytest.mark.parametrize(
    ("body", "spare"),
    [
        (convolution("a") + convolution("b") + summed("a b"), 0),
        (convolution("a") + unary("ReLU", "a", "a") + convolution("b") + summed("a b"), 1),
        (convolution("a") + unary("ReLU", "a", "r") + convolution("b") + summed("b a r"), 0),
        (convolution("a") + summed("a a"), None),
        (convolution("a") + convolution("b") + summed("b a a"), 0),
        # In these storages the sum would have other bits.
        (convolution("a") + convolution("b") + summed("a a b"), None),
        (convolution("a") + convolution("b") + summed("a b", "eltwise_param { coeff: 2 coeff: 1 }"), None),
        (
            convolution("a")
            + unary("ReLU", "a", "a")
            + convolution("b")
            + summed("a b", "eltwise_param { coeff: 1 coeff: 2 }"),
            None,
        ),
        (convolution("a") + convolution("b") + summed("a b", "eltwise_param { operation: PROD }"), None),
        (convolution("a") + unary("Sigmoid", "a", "s") + unary("TanH", "a", "t") + summed("s t"), None),
    ],
)
def test_a_sum_uses_the_storage_of_a_bottom_that_nobody_needs(body, spare):
    net = make_net(IMAGE + body, keep_blobs=False)
    assert next(layer for layer in net.layers if layer.type == "Eltwise").spare_bottom == spare
    assert_same(IMAGE + body, IMAGE + body, keep_blobs=False)
