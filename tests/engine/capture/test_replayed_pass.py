"""Passes that are replayed give the bits of the layers, and are left where they would not."""

import pytest
import torch

from mgcaffe.engine.kernels.choice.choices import Choices
from mgcaffe.engine.kernels.precision import PRECISIONS
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.errors import DataError, EngineError
from tests.support.capturekit import (
    BRANCHES,
    IMAGES,
    LOSS,
    NETS,
    PLAIN,
    WITH_OTHERS,
    both,
    build,
    conv,
    dense,
    layer,
    train,
)
from tests.support.netkit import inputs


@pytest.mark.parametrize("name", NETS)
def test_the_bits_are_those_of_the_layers(name):
    replays = both(NETS[name])
    assert replays.ranges
    assert all(part.is_replayed for part in replays.ranges)


@pytest.mark.parametrize(
    "options", [{"dtype": torch.float64}, {"precision": PRECISIONS["bf16"]}, {"precision": PRECISIONS["fp16"]}], ids=str
)
def test_other_types_are_replayed_too(options):
    assert all(part.is_replayed for part in both(BRANCHES, **options).ranges)


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


def test_a_loss_without_a_name_counts():
    replays = both(PLAIN.replace('top: "loss"', ""))
    assert replays.ranges[-1].steps[-1].layer.name == "loss"
    assert all(part.is_replayed for part in replays.ranges)


def test_losses_are_added_up_in_the_net_s_order():
    losses = "".join(
        layer(f"loss{weight}", "SoftmaxWithLoss", "ip2 label", f"loss{weight}", f"loss_weight: 0.{weight}")
        for weight in (9, 4, 1, 7)
    )
    replays = both(BRANCHES.replace(LOSS, losses))
    (last,) = replays.ranges
    captured = [step.layer.name for step in last.steps if step.layer.name.startswith("loss")]
    assert last.is_replayed and captured == ["loss9", "loss4", "loss1", "loss7"]


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


def test_nets_that_keep_their_blobs_run_by_their_layers():
    assert not both(PLAIN, keep_blobs=True).ranges


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
