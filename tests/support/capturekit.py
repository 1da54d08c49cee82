"""Nets whose passes are captured, trained by replays and by their layers."""

from __future__ import annotations

import torch

from mgcaffe.engine.capture.replayed_pass import ReplayedPass
from mgcaffe.engine.kernels.formats import format_of
from tests.support.netkit import inputs, make_net

IMAGES = inputs(x=(4, 3, 12, 12), label=(4,))


def layer(name, kind, bottoms, top, fields=""):
    names = " ".join(f'bottom: "{bottom}"' for bottom in bottoms.split())
    tops = " ".join(f'top: "{each}"' for each in top.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} {tops} {fields} }}\n'


def conv(name, bottom, top, outputs=4, fields="", more=""):
    filler = 'weight_filler { type: "xavier" } kernel_size: 3 pad: 1'
    return layer(
        name, "Convolution", bottom, top, f"convolution_param {{ num_output: {outputs} {filler} {more} }} {fields}"
    )


def dense(name, bottom, top, outputs, fields=""):
    filler = 'weight_filler { type: "xavier" }'
    return layer(
        name, "InnerProduct", bottom, top, f"inner_product_param {{ num_output: {outputs} {filler} }} {fields}"
    )


POOL = "pooling_param { kernel_size: 3 stride: 2 }"
AVERAGE = "pooling_param { pool: AVE kernel_size: 3 stride: 2 }"
LOSS = layer("loss", "SoftmaxWithLoss", "ip2 label", "loss")
PLAIN = (
    IMAGES + conv("c1", "x", "c1") + layer("p1", "Pooling", "c1", "p1", POOL) + layer("r1", "ReLU", "p1", "p1")
    + conv("c2", "p1", "c2", 6, more="group: 2") + layer("r2", "ReLU", "c2", "c2")
    + layer("p2", "Pooling", "c2", "p2", AVERAGE)
    + dense("ip1", "p2", "ip1", 5) + layer("t", "TanH", "ip1", "ip1") + dense("ip2", "ip1", "ip2", 3) + LOSS
)  # fmt: skip
BRANCHES = (
    IMAGES + conv("c1", "x", "c1") + layer("n", "LRN", "c1", "n") + conv("a", "n", "a", 3)
    + layer("a_s", "Sigmoid", "a", "a")
    + layer("p", "Pooling", "n", "p", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }")
    + conv("b", "p", "b", 3) + layer("sum", "Eltwise", "a b", "s") + layer("join", "Concat", "s n", "j")
    + layer("f", "Flatten", "j", "f") + dense("ip2", "f", "ip2", 3) + LOSS
    + layer("side", "EuclideanLoss", "s b", "side", "loss_weight: 0.3")
)  # fmt: skip
WITH_OTHERS = (
    IMAGES + conv("c1", "x", "c1") + layer("r1", "ReLU", "c1", "c1") + layer("d", "Dropout", "c1", "c1")
    + conv("c2", "c1", "c2") + layer("r2", "ReLU", "c2", "c2")
    + layer("noise", "Pooling", "c2", "p", f"{POOL[:-1]} pool: STOCHASTIC }}")
    + dense("ip1", "p", "ip1", 5) + layer("r3", "ReLU", "ip1", "ip1") + dense("ip2", "ip1", "ip2", 3) + LOSS
    + layer("accuracy", "Accuracy", "ip2 label", "accuracy")
)  # fmt: skip
TWO_RANGES = (
    IMAGES + conv("c1", "x", "c1") + layer("r1", "ReLU", "c1", "c1") + conv("c2", "c1", "c2")
    + layer("r2", "ReLU", "c2", "c2") + layer("d", "Dropout", "c2", "e") + conv("c3", "e", "c3")
    + dense("ip2", "c3", "ip2", 3) + LOSS
)  # fmt: skip
RESIDUAL = (
    inputs(x=(2, 64, 32, 32), label=(2,)) + conv("c0", "x", "y0", 64)
    + "".join(
        conv(f"a{i}", f"y{i}", f"a{i}", 64) + layer(f"bn{i}", "BatchNorm", f"a{i}", f"a{i}")
        + layer(f"s{i}", "Scale", f"a{i}", f"a{i}", "scale_param { bias_term: true }")
        + layer(f"sum{i}", "Eltwise", f"y{i} a{i}", f"y{i + 1}") + layer(f"r{i}", "ReLU", f"y{i + 1}", f"y{i + 1}")
        for i in range(4)
    )
    + dense("ip2", "y4", "ip2", 3) + LOSS
)  # fmt: skip
FROZEN = PLAIN.replace('name: "c1" type: "Convolution"', 'name: "c1" type: "Convolution" param { lr_mult: 0 }')
UNREAD = PLAIN + dense("extra", "p2", "extra", 2)
NETS = {"plain": PLAIN, "branches": BRANCHES, "others": WITH_OTHERS, "frozen": FROZEN, "unread": UNREAD}


def build(text, **options):
    """Return a training net that frees its blobs, with its pass."""
    net = make_net(text, **{"keep_blobs": False, "dtype": torch.float32, **options})
    return net, ReplayedPass(net)


def fill(net, iteration):
    """Put another batch into the inputs, as data layers do: new tensors."""
    generator = torch.Generator().manual_seed(iteration)
    for layer in net.layers:
        if layer.type == "Input":
            for number, values in enumerate(layer.values):
                fresh = torch.randn(values.shape, generator=generator, dtype=values.dtype)
                if values.dim() == 1:
                    fresh = torch.randint(0, 3, values.shape, generator=generator).to(values.dtype)
                layer.values[number] = torch.empty_like(values).copy_(fresh)


def train(net, forward, backward, iterations=6, passes=1, begin=fill):
    """Train by plain steps; return losses, outputs, gradients of each iteration and weights."""
    seen = []
    for iteration in range(iterations):
        net.clear_param_diffs()
        begin(net, iteration)
        for each in range(passes):
            net.reseed(7, iteration, each)
            done = []
            seen.append(torch.tensor(forward()))
            seen += [value.clone() for _, value in net.output_values()]
            backward(done.append)
            assert done == sorted(done, reverse=True)
        seen.append(net.arena.diff.clone())
        for parameter in net.parameters:
            if parameter.wanted:
                parameter.data.add_(parameter.diff, alpha=-0.1)
    return [*seen, net.arena.data.clone()]


def both(text, passes=1, begin=fill, **options):
    """Train a net by replays and one by its layers; check that all is the same; return the pass that replays."""
    net, replays = build(text, **options)
    mine = train(net, replays.forward, replays.backward, passes=passes, begin=begin)
    plain, _ = build(text, **options)
    others = train(plain, plain.forward, plain.backward, passes=passes, begin=begin)
    assert len(mine) == len(others)
    assert all(map(torch.equal, mine, others))
    assert bool(mine[-2].any())
    return replays


def give_images(net, images):
    """Let the inputs have another batch size, in the same memory format."""
    for each in net.layers[:2]:
        values = each.values[0]
        each.values[0] = torch.empty(images, *values.shape[1:]).contiguous(memory_format=format_of(values))
