"""Tuning measures what a net then computes, and leaves the net as it was."""

import torch

from mgcaffe.engine import tuning
from mgcaffe.engine.kernels.choice.choices import RULES, Recorded
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.tuning import tune
from tests.support.netkit import inputs, make_net

NET = inputs(data=(4, 1, 12, 12), label=(4,)) + "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'conv1' type: 'Convolution' bottom: 'data' top: 'c1' "
        "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } }",
        "name: 'relu1' type: 'ReLU' bottom: 'c1' top: 'c1'",
        "name: 'twin1' type: 'Convolution' bottom: 'c1' top: 't1' "
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } }",
        "name: 'twin2' type: 'Convolution' bottom: 't1' top: 't2' "
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } }",
        "name: 'pool' type: 'Pooling' bottom: 't2' top: 'p' pooling_param { kernel_size: 2 stride: 2 }",
        "name: 'drop' type: 'Dropout' bottom: 'p' top: 'p'",
        "name: 'up' type: 'Deconvolution' bottom: 'p' top: 'u' "
        "convolution_param { num_output: 2 kernel_size: 2 stride: 2 weight_filler { type: 'xavier' } }",
        "name: 'pool2' type: 'Pooling' bottom: 'u' top: 'u2' pooling_param { kernel_size: 2 stride: 2 }",
        "name: 'ip1' type: 'InnerProduct' bottom: 'u2' top: 'i1' "
        "inner_product_param { num_output: 6 weight_filler { type: 'xavier' } }",
        "name: 'relu2' type: 'ReLU' bottom: 'i1' top: 'i1'",
        "name: 'ip2' type: 'InnerProduct' bottom: 'i1' top: 'i2' "
        "inner_product_param { num_output: 3 weight_filler { type: 'xavier' } }",
        "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'i2' bottom: 'label' top: 'loss'",
    )
)


def build():
    net = make_net(NET, keep_blobs=False, dtype=torch.float32)
    images = net.layers[0].forward([])[0]
    images.copy_(torch.randn(images.shape, generator=torch.Generator().manual_seed(5)))
    return net


def step(net):
    """Return the loss and the gradients of one pass."""
    net.reseed(1)
    net.clear_param_diffs()
    loss = net.forward_backward()
    return [torch.tensor(loss), *(parameter.diff.clone() for parameter in net.parameters)]


def test_everything_that_a_pass_computes_is_measured_and_alike_layers_once():
    net = build()
    contest = Contest({})
    layers = tune(net, contest)
    assert [layer.name for layer in layers] == ["conv1", "twin1", "twin2", "up", "ip1", "ip2"]
    by_name = {layer.name: layer for layer in layers}
    assert len(by_name["conv1"].operations) == 2  # images need no gradient
    assert [text.partition(":")[0] for text in by_name["twin1"].operations] == [
        "convolution forward", "convolution backward weight", "convolution backward data",
    ]  # fmt: skip
    assert by_name["twin1"].operations == by_name["twin2"].operations
    assert contest.measured == len(contest.records) == 2 + 3 + 3 + 3 + 3
    assert tune(net, contest) == layers
    assert contest.measured == 14

    missed = []

    class Watching(Recorded):
        def _find(self, operation, key, call):
            if operation.text(key) not in self.records:
                missed.append(operation.text(key))
            return super()._find(operation, key, call)

    net.context.choices = Watching(contest.records)
    step(net)
    assert missed == []


def test_the_net_stays_as_it_was():
    net = build()
    before = step(net)
    tensors = [(each, each.clone()) for each in net.arena.tensors()]
    diffs = [parameter.diff for parameter in net.parameters]
    flags = [parameter.fresh for parameter in net.parameters]
    stream = net.context.generator.get_state()
    own = torch.get_rng_state()
    tune(net, Contest({}))
    assert net.context.choices is RULES
    assert all(torch.equal(each, kept) for each, kept in tensors)
    assert all(parameter.diff is diff for parameter, diff in zip(net.parameters, diffs, strict=True))
    assert [parameter.fresh for parameter in net.parameters] == flags
    assert torch.equal(net.context.generator.get_state(), stream)
    assert torch.equal(torch.get_rng_state(), own)
    assert all(layer.saved is None for layer in net.layers)
    assert all(torch.equal(*pair) for pair in zip(before, step(net), strict=True))


def test_a_failure_leaves_the_net_as_it_was(monkeypatch):
    net = build()
    values = [parameter.data for parameter in net.parameters]

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_run", fail)
    try:
        tune(net, Contest({}))
    except KeyboardInterrupt:
        pass
    assert net.context.choices is RULES
    assert all(parameter.data is kept for parameter, kept in zip(net.parameters, values, strict=True))
