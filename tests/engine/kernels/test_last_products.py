"""In 16 bits, products that only losses and metrics follow come out in float32."""

import pytest
import torch

from mgcaffe.engine.kernels.precision import BF16
from tests.support.netkit import inputs, make_net

WEIGHTS = "weight_filler { type: 'gaussian' std: 0.2 }"
FILLER = f"{WEIGHTS} bias_filler {{ type: 'gaussian' std: 0.2 }}"
HEADS = {
    "InnerProduct": f"inner_product_param {{ num_output: 5 {FILLER} }}",
    "Convolution": f"convolution_param {{ num_output: 5 kernel_size: 1 {FILLER} }}",
    "Deconvolution": f"convolution_param {{ num_output: 5 kernel_size: 1 bias_term: false {WEIGHTS} }}",
}


def head(type_, rows, behind=()):
    texts = (
        f"name: 'c1' type: 'Convolution' bottom: 'x' top: 'c1' {HEADS['Convolution']}",
        "name: 'r1' type: 'ReLU' bottom: 'c1' top: 'c1'",
        f"name: 'scores' type: '{type_}' bottom: 'c1' top: 'scores' {HEADS[type_]}",
        *behind,
        "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'label' top: 'loss'",
        "name: 'accuracy' type: 'Accuracy' bottom: 'scores' bottom: 'label' top: 'accuracy'",
    )
    return inputs(x=(rows, 8, 1, 1), label=(rows, *[1] * (3 * (type_ != "InnerProduct")))) + "".join(
        f"layer {{ {text} }}\n" for text in texts
    )


def top_of(net, name):
    """A list that gets the top of the step of this name once it has run."""
    (step,) = (node for node in net.steps if node.layer.name == name)
    run, tops = step.layer.forward, []

    def forward(bottoms):
        tops.extend(run(bottoms))
        return tops

    step.layer.forward = forward
    return tops


@pytest.mark.parametrize("last", ["", "ReLU", "Bias"])
@pytest.mark.parametrize("keep_blobs", [True, False])
@pytest.mark.parametrize("type_", HEADS)
def test_scores_are_of_float32(type_, keep_blobs, last):
    behind = [f"name: 'last' type: '{last}' bottom: 'scores' top: 'scores'"] if last else []
    net = make_net(head(type_, 32, behind), dtype=torch.float32, precision=BF16, keep_blobs=keep_blobs)
    net.layers[0].forward([])[0].normal_(generator=torch.Generator().manual_seed(1))
    hidden, scores = top_of(net, "c1"), top_of(net, "scores")
    net.forward_backward()
    assert hidden[0].dtype == torch.bfloat16
    assert scores[0].dtype == torch.float32
    assert not torch.equal(scores[0], scores[0].bfloat16().float())
    gradient = net.parameters[2].diff  # whose own product is one of 16 bits
    assert gradient.any()
    assert torch.equal(gradient, gradient.bfloat16().float())


def test_a_batch_of_31_rows_has_the_scores_of_one_of_32():
    """An InnerProduct takes operands of 16 bits from 32 rows on."""
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    text = f"layer {{ name: 'y' type: 'InnerProduct' bottom: 'x' top: 'y' {HEADS['InnerProduct']} }}"
    scores = []
    for rows in (31, 32):
        net = make_net(inputs(x=(rows, 8)) + text, dtype=torch.float32, precision=BF16)
        net.layers[0].forward([])[0].copy_(x[:rows])
        net.forward()
        scores.append(net.blobs["y"].data[:31])
    torch.testing.assert_close(*scores, rtol=1e-6, atol=1e-6)


def test_a_product_that_another_one_follows_behind_other_layers_stays_in_16_bits():
    layers = (
        f"name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' {HEADS['InnerProduct']}",
        "name: 'tanh' type: 'TanH' bottom: 'a' top: 'tanh'",
        f"name: 'b' type: 'InnerProduct' bottom: 'tanh' top: 'b' {HEADS['InnerProduct']}",
        f"name: 'c' type: 'InnerProduct' bottom: 'a' top: 'c' {HEADS['InnerProduct']}",
        "name: 'sum' type: 'Eltwise' bottom: 'b' bottom: 'c' top: 'sum'",
    )
    net = make_net(inputs(x=(32, 8)) + "".join(f"layer {{ {text} }}\n" for text in layers), precision=BF16)
    last = {layer.name for layer in net.layers if layer.is_last_product}
    assert last == {"b", "c"}
