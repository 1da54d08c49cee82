"""Passes that are replayed give the bits of the layers, and are left where they would not."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mgcaffe.engine.capture import replayed_pass
from mgcaffe.engine.capture.replayed_pass import ReplayedPass
from mgcaffe.engine.kernels.choice.choices import Choices, Forced
from mgcaffe.engine.kernels.precision import PRECISIONS
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.errors import DataError, EngineError
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


@pytest.mark.parametrize("name", NETS)
def test_the_bits_are_those_of_the_layers(name):
    replays = both(NETS[name])
    assert replays.ranges
    assert all(part.is_replayed for part in replays.ranges)


def test_double_precision_is_replayed_too():
    assert all(part.is_replayed for part in both(BRANCHES, dtype=torch.float64).ranges)


def test_ranges_end_at_layers_that_draw_random_numbers_or_read_values():
    replays = both(WITH_OTHERS)
    names = [[step.layer.name for step in part.steps] for part in replays.ranges]
    # The second convolution stands alone.
    assert names == [["label_label_0_split", "c1"], ["ip1", "ip2", "ip2_ip2_0_split", "loss"]]


@pytest.mark.parametrize("label", [3, -1])
def test_labels_are_checked_in_each_pass(label):
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    assert replays.ranges[-1].steps[-1].layer.name == "loss"
    net.layers[1].values[0][2] = label
    net.clear_param_diffs()
    with pytest.raises(DataError, match=f"label {label} at \\[2\\] of blob 'label' is no class"):
        replays.forward()
    assert replays.ranges[-1].is_replayed


@pytest.mark.parametrize(("loss", "labels"), [("SoftmaxWithLoss", "label"), ("SigmoidCrossEntropyLoss", "target")])
def test_losses_that_ignore_labels_run_by_themselves(loss, labels):
    ignoring = layer("loss", loss, f"ip2 {labels}", "loss", "loss_param { ignore_label: 1 }")
    replays = both(inputs(target=(4, 3)) + PLAIN.replace(LOSS, ignoring))
    assert replays.ranges[-1].steps[-1].layer.name != "loss"


@pytest.mark.parametrize("loss", ["EuclideanLoss", "SigmoidCrossEntropyLoss"])
def test_other_losses_are_replayed(loss):
    targets = inputs(target=(4, 3))
    replays = both(targets + PLAIN.replace(LOSS, layer("loss", loss, "ip2 target", "loss", "loss_weight: 0.5")))
    assert replays.ranges[-1].steps[-1].layer.name == "loss"


def test_a_loss_that_a_layer_reads_counts_as_always():
    replays = both(PLAIN + layer("twice", "Power", "loss", "twice", "power_param { scale: 2 } loss_weight: 1"))
    assert all(part.is_replayed for part in replays.ranges)


def test_another_number_of_ranks_is_captured_anew():
    net, replays = build(PLAIN.replace(LOSS, LOSS[:-3] + "loss_param { normalization: NONE } }\n"))
    train(net, replays.forward, replays.backward)
    net.context.solver_ranks = 2
    net.clear_param_diffs()
    replays.forward()
    assert not replays.ranges[-1].is_replayed


def test_micro_batches_that_add_to_gradients_have_captures_of_their_own():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward, passes=3)
    assert [part.captured for part in replays.ranges] == [2]
    both(PLAIN, passes=3)


def test_another_batch_size_is_captured_anew():
    def begin(net, iteration):
        images = 4 if iteration < 3 or iteration > 6 else 2
        for each in net.layers[:2]:
            each.values[0] = torch.empty(images, *each.values[0].shape[1:])
        fill(net, iteration)

    net, replays = build(PLAIN)
    mine = train(net, replays.forward, replays.backward, iterations=10, begin=begin)
    plain, _ = build(PLAIN)
    others = train(plain, plain.forward, plain.backward, iterations=10, begin=begin)
    assert all(map(torch.equal, mine, others))
    assert all(part.is_replayed for part in replays.ranges)


def test_a_shape_that_came_back_after_a_pass_by_the_layers_is_not_replayed_with_the_other_shapes_tops():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    (part,) = replays.ranges
    assert part.is_replayed
    for each in net.layers[:2]:
        each.values[0] = torch.zeros(2, *each.values[0].shape[1:])
    net.forward()  # the layers are reshaped
    train(net, replays.forward, replays.backward, iterations=1, begin=lambda net, _: None)
    assert not part.is_replayed


def test_another_choice_of_candidates_is_captured_anew():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    net.context.choices = Forced("windows_mm")
    net.clear_param_diffs()
    replays.forward()
    replays.backward()
    assert net.context.choices.used == {"convolution forward", "convolution backward weight"}


def test_parameters_that_lie_elsewhere_are_captured_anew():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    (part,) = replays.ranges
    weight = net.parameters[0]
    weight.data = torch.zeros_like(weight.data)
    net.clear_param_diffs()
    replays.forward()
    assert not part.is_replayed
    replays.backward()


def test_hooks_are_called_for_each_layer():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    seen = []
    net.before_forward.append(lambda index: seen.append(("before forward", index)))
    net.after_forward.append(lambda index: seen.append(("after forward", index)))
    net.before_backward.append(lambda index: seen.append(("before backward", index)))
    net.after_backward.append(lambda index: seen.append(("after backward", index)))
    net.clear_param_diffs()
    replays.forward()
    replays.backward()
    replayed, seen[:] = [*seen], []
    net.forward()
    net.backward()
    assert replayed == seen
    assert all(part.is_replayed for part in replays.ranges)


class Made(TorchDispatchMode):
    """Remembers the tensors that operations give."""

    def __init__(self):
        super().__init__()
        self.tensors = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        found = result if isinstance(result, (tuple, list)) else [result]
        self.tensors += [weakref.ref(each) for each in found if isinstance(each, torch.Tensor)]
        return result


def test_nothing_of_a_pass_is_kept_after_it():
    net, replays = build(BRANCHES)
    train(net, replays.forward, replays.backward)
    with Made() as made:
        net.clear_param_diffs()
        replays.forward()
        assert len([each for each in made.tensors if each() is not None]) > 10
        replays.backward()
    assert all(part.is_replayed for part in replays.ranges)
    lasting = {id(each) for parameter in net.parameters for each in (parameter.data, parameter.diff)}
    lasting |= {id(blob.data) for blob in net.blobs.values()}
    assert {id(each()) for each in made.tensors if each() is not None} <= lasting
    assert all(blob.diff is None for blob in net.blobs.values())


def test_an_error_names_the_layer_that_is_replayed(monkeypatch):
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    compute_forward, run_forward = net.compute_forward, net.run_forward

    def run(node, compute):
        def fail(node):
            assert compute != compute_forward or node.layer.type in ("Input", "SoftmaxWithLoss")
            if node.layer.name == "c2":
                raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
            return compute(node)

        return run_forward(node, fail)

    monkeypatch.setattr(net, "run_forward", run)
    net.clear_param_diffs()
    with pytest.raises(EngineError, match=r"out of memory.*'c2'"):
        replays.forward()


@pytest.mark.parametrize(
    "options", [{"keep_blobs": True}, {"precision": PRECISIONS["bf16"]}], ids=["keeps its blobs", "bf16"]
)
def test_other_nets_run_by_their_layers(options):
    assert not both(PLAIN, **options).ranges


def test_nets_that_compute_layers_again_run_by_their_layers():
    net, replays = build(PLAIN)
    net.recompute("auto")
    train(net, replays.forward, replays.backward)
    assert not replays.ranges


def test_while_candidates_are_measured_all_run_by_their_layers():
    class Measuring(Choices):
        measures = True

    net, replays = build(PLAIN)
    net.context.choices = Measuring()
    train(net, replays.forward, replays.backward)
    assert not replays.ranges


def test_with_a_factor_on_the_loss_all_run_by_their_layers():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    net.clear_param_diffs()
    replays.forward()
    replays.backward()
    once = net.arena.diff.clone()
    net.clear_param_diffs()
    replays.forward(8.0)
    replays.backward()
    assert torch.equal(net.arena.diff, once * 8)


def test_large_nets_run_by_their_layers(monkeypatch):
    net, replays = build(PLAIN)
    values = sum(blob.count for node in net.steps for blob in node.tops)
    monkeypatch.setattr(replayed_pass, "MOST_VALUES", values - 1)
    train(net, replays.forward, replays.backward)
    assert not replays.ranges


def test_layers_whose_parameters_others_own_run_by_themselves():
    shared = 'param { name: "w" } param { name: "b" }'
    text = (
        IMAGES + conv("a", "x", "a", 3, shared) + conv("b", "a", "b", 3, shared) + conv("c", "b", "c", 3)
        + dense("ip2", "c", "ip2", 3) + LOSS
    )  # fmt: skip
    replays = both(text)
    assert [[step.layer.name for step in part.steps] for part in replays.ranges] == [["c", "ip2", "loss"]]


def test_a_layer_that_is_derived_from_another_says_itself_that_it_is_capturable():
    class Own(ReLU):
        pass

    assert ReLU.capturable
    assert not Own.capturable
    assert not Layer.capturable
