"""Layers that backward computes a second time give the same bits, and their values are not kept."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from mgcaffe.engine.kernels.precision import PRECISIONS
from mgcaffe.errors import NetError
from tests.support.netkit import inputs, make_net

IMAGES = inputs(x=(4, 3, 12, 12), label=(4,))


def layer(name, kind, bottoms, top, fields=""):
    names = " ".join(f'bottom: "{bottom}"' for bottom in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} top: "{top}" {fields} }}\n'


def conv(name, bottom, top, outputs=4, fields="", size=3):
    filler = f'weight_filler {{ type: "xavier" }} kernel_size: {size} pad: {size // 2}'
    return layer(name, "Convolution", bottom, top, f"convolution_param {{ num_output: {outputs} {filler} }} {fields}")


def dense(name, bottom, top, outputs):
    filler = 'weight_filler { type: "xavier" }'
    return layer(name, "InnerProduct", bottom, top, f"inner_product_param {{ num_output: {outputs} {filler} }}")


def normalized(name, bottom, top, relu=True):
    text = layer(name, "BatchNorm", bottom, top) + layer(
        f"{name}_s", "Scale", top, top, "scale_param { bias_term: true }"
    )
    return text + (layer(f"{name}_r", "ReLU", top, top) if relu else "")


HEAD = dense("ip1", "top", "ip1", 6) + layer("ip1_r", "ReLU", "ip1", "ip1") + (
    layer("drop", "Dropout", "ip1", "ip1")
    + dense("ip2", "ip1", "ip2", 3)
    + layer("loss", "SoftmaxWithLoss", "ip2 label", "loss")
    + layer("accuracy", "Accuracy", "ip2 label", "accuracy")
)  # fmt: skip
RESIDUAL = (
    IMAGES + conv("c1", "x", "c1", 8) + normalized("b1", "c1", "c1")
    + "".join(
        conv(f"c{i}a", bottom, f"c{i}a", 8) + normalized(f"b{i}a", f"c{i}a", f"c{i}a")
        + conv(f"c{i}b", f"c{i}a", f"c{i}b", 8) + normalized(f"b{i}b", f"c{i}b", f"c{i}b", relu=False)
        + layer(f"sum{i}", "Eltwise", f"{bottom} c{i}b", f"s{i}") + layer(f"r{i}", "ReLU", f"s{i}", f"s{i}")
        for i, bottom in ((1, "c1"), (2, "s1"), (3, "s2"))
    )
    + layer("pool", "Pooling", "s3", "top", "pooling_param { kernel_size: 3 stride: 3 }") + HEAD
)  # fmt: skip
BRANCHES = (
    IMAGES + conv("c1", "x", "c1") + layer("d1", "Dropout", "c1", "c1", "dropout_param { dropout_ratio: 0.3 }")
    + layer("lrn", "LRN", "c1", "n1") + conv("left", "n1", "left", 3) + layer("left_r", "ReLU", "left", "left")
    + layer("pool", "Pooling", "n1", "p", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }")
    + conv("right", "p", "right", 2) + layer("right_t", "TanH", "right", "right")
    + layer("join", "Concat", "left right", "j") + layer("d2", "Dropout", "j", "j") + normalized("bn", "j", "j2")
    + layer("noise", "Pooling", "j2", "j3", "pooling_param { kernel_size: 2 stride: 2 pool: STOCHASTIC }")
    + layer("elu", "ELU", "j3", "j4") + layer("best", "Eltwise", "j4 j3", "top", "eltwise_param { operation: MAX }")
    + HEAD
)  # fmt: skip
SUMS = (
    IMAGES + conv("a", "x", "a") + layer("a_t", "TanH", "a", "a")
    + conv("b", "a", "b") + layer("b_t", "TanH", "b", "b") + conv("c", "a", "c") + layer("sum", "Eltwise", "a b c", "s")
    + layer("s_t", "TanH", "s", "s") + conv("d", "s", "d") + conv("e", "s", "e")
    + layer("scaled", "Eltwise", "d e", "top", "eltwise_param { coeff: 0.3 coeff: 1 }") + HEAD
)  # fmt: skip
SHARED = (
    IMAGES + conv("a", "x", "a", 3, 'param { name: "w" } param { name: "b" }') + layer("a_r", "ReLU", "a", "a")
    + conv("b", "a", "b", 3, 'param { name: "w" } param { name: "b" }') + layer("b_s", "Sigmoid", "b", "b")
    + layer("bn", "BN", "b", "top", "bn_param { momentum: 0.5 }") + HEAD
)  # fmt: skip
RECURRENT = (
    inputs(x=(5, 4, 3), cont=(5, 4), label=(5, 4))
    + dense("embed", "x", "e", 6).replace("num_output: 6", "num_output: 6 axis: 2")
    + layer("e_t", "TanH", "e", "e")
    + layer("lstm", "LSTM", "e cont", "l", 'recurrent_param { num_output: 6 weight_filler { type: "xavier" } }')
    + layer("l_d", "Dropout", "l", "l")
    + dense("ip", "l", "ip", 3).replace("num_output: 3", "num_output: 3 axis: 2")
    + layer("i_t", "TanH", "ip", "i")
    + layer("loss", "SoftmaxWithLoss", "i label", "loss", "softmax_param { axis: 2 }")
)
CHAIN = IMAGES + "".join(
    conv(f"c{i}", f"h{i}" if i else "x", f"h{i + 1}", 16) + layer(f"t{i}", "TanH", f"h{i + 1}", f"h{i + 1}")
    for i in range(16)
) + layer("pool", "Pooling", "h16", "top", "pooling_param { global_pooling: true }") + HEAD  # fmt: skip


def build(text, setting=None, precision="float32"):
    """Return a net that frees its blobs, its inputs filled, and what it computes again."""
    net = make_net(text, keep_blobs=False, dtype=torch.float32, precision=PRECISIONS[precision])
    generator = torch.Generator().manual_seed(3)
    for values in (values for layer in net.layers if layer.type == "Input" for values in layer.values):
        is_label = values.dim() == 1 or tuple(values.shape) == (5, 4)
        values.copy_(torch.randint(0, 3, values.shape, generator=generator) if is_label
                     else torch.randn(values.shape, generator=generator))  # fmt: skip
    if "cont" in net.blobs:
        net.layers[1].values[0].fill_(1)
    return net, None if setting is None else net.recompute(setting)


def train(net, iterations=3, passes=1):
    """Train by plain steps; return losses, outputs, stream, weights, statistics and gradients."""
    seen = []
    for iteration in range(iterations):
        net.clear_param_diffs()
        for each in range(passes):
            net.reseed(7, iteration, each)
            seen.append(torch.tensor(net.forward_backward()))
        for parameter in net.parameters:
            if parameter.wanted:
                parameter.data.add_(parameter.diff, alpha=-0.1)
        seen += [value.clone() for _, value in net.output_values()]
    return [*seen, net.context.generator.get_state(), net.arena.data.clone(), net.arena.diff.clone()]


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (RESIDUAL, "auto"), (RESIDUAL, "c1..ip1"), (RESIDUAL, "c1a..sum1, b2a_r..b2b,c3b..r3"),
        (BRANCHES, "auto"), (BRANCHES, "d1..join"), (BRANCHES, "c1..best,ip1..ip2"), (SHARED, "auto"),
        (SHARED, "a..drop"), (SUMS, "auto"), (SUMS, "sum..e"), (SUMS, "scaled..ip1"),
        (RECURRENT, "auto"), (RECURRENT, "embed..e_t,l_d..i_t"), (CHAIN, "auto"),
    ],
)  # fmt: skip
def test_the_same_bits_come_out_as_without(text, setting):
    net, found = build(text, setting)
    assert found.segments
    assert all(node.layer.saved is None for node in found.segments[0].steps)
    mine, plain = train(net, passes=2), train(build(text)[0], passes=2)
    assert len(mine) == len(plain)
    assert all(map(torch.equal, mine, plain))
    assert bool(mine[-1].any())


@pytest.mark.parametrize("text", [RESIDUAL, BRANCHES])
def test_the_same_bits_come_out_with_products_in_16_bits(text):
    net, _ = build(text, "auto", "bf16")
    assert all(map(torch.equal, train(net), train(build(text, None, "bf16")[0])))


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations touched and that still live."""

    def __init__(self):
        super().__init__()
        self.peak, self._live = 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return result


def peak_bytes(net):
    """Return the peak of a pass in both directions, without the parameters, which are alive throughout."""
    train(net, 1)
    net.clear_param_diffs()
    with LiveBytes() as live:
        net.forward_backward()
    return live.peak - net.arena.data.nbytes - net.arena.diff.nbytes


def test_values_of_a_deep_net_take_less_than_half_the_memory():
    (net, found), (plain, _) = build(CHAIN, "auto"), build(CHAIN)
    before, after = peak_bytes(plain), peak_bytes(net)
    assert after < 0.5 * before
    values = 4 * 4 * 16 * 12 * 12
    assert found.bytes_before == pytest.approx(16 * values, rel=0.05)
    assert before - after == pytest.approx(found.bytes_before - found.bytes_after, abs=2 * values)
    # 16 equal values: the first segment keeps 6 of them; each that follows one more at a border, and one less inside.
    assert found.bytes_after == 6 * values


def test_a_layer_that_keeps_only_what_is_kept_anyway_does_not_run_again():
    _, found = build(RESIDUAL, "c1..r2")
    names = [node.layer.name for segment in found.segments for node in segment.steps]
    assert names[0] == "c1"
    assert names[-1] == "r2"  # nobody else keeps its top
    _, found = build(RESIDUAL, "c1..r1,c2a..r2")
    names = [[node.layer.name for node in segment.steps] for segment in found.segments]
    assert names[0][-1] == "b1b"  # neither the sum nor the ReLU, whose top the second segment keeps


def test_what_cannot_be_computed_again_is_said():
    net, _ = build(RECURRENT)
    for setting, message in (
        ("lstm..l_d", "recompute: the layer cannot run a second time: it begins with the state .*layer 'lstm'"),
        ("x..embed", "cannot run a second time: it has no bottom, .*layer 'x'"),
        ("ip..loss", "cannot run a second time: it counts labels over all ranks .layer 'loss'"),
        ("on", "recompute: 'on' is no range of layers"),
        ("embed..", "recompute: 'embed..' is no range of layers"),
        ("embed..lost", "recompute: the training net has no layer 'lost'"),
        ("ip..embed", "recompute: layer 'embed' stands before layer 'ip'"),
        ("embed..e_t,e_t..e_t", "recompute: the ranges overlap at layer 'e_t'"),
    ):
        with pytest.raises(NetError, match=message):
            net.recompute(setting)
    with pytest.raises(NetError, match="keeps all its blobs"):
        make_net(CHAIN).recompute("auto")


def test_backward_without_forward_is_refused():
    net, _ = build(CHAIN, "c0..t3")
    net.forward(0, 4)
    with pytest.raises(NetError, match="it is to be computed again, but did not run: run the whole net forward first"):
        net.backward(start=9)


def test_a_net_without_layers_has_nothing_to_run_again():
    assert make_net('name: "empty"', keep_blobs=False).recompute("auto").layers == 0
