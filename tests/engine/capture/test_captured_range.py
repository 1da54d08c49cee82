"""When a range of layers is captured anew, what it takes from and gives to other layers, and what it drops."""

import weakref
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mgcaffe.engine import registry
from mgcaffe.engine.capture.recorder import Recorder
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, Forced
from mgcaffe.engine.kernels.precision import PRECISIONS
from mgcaffe.engine.layer import Layer, between, exactly
from tests.support.capturekit import (
    BRANCHES,
    IMAGES,
    LOSS,
    PLAIN,
    TWO_RANGES,
    both,
    build,
    conv,
    dense,
    fill,
    give_images,
    layer,
    train,
)
from tests.support.netkit import inputs


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
    seen = []
    for net, replays in (build(TWO_RANGES), build(TWO_RANGES)):
        runs = replays if not seen else net
        train(net, runs.forward, runs.backward)
        give_images(net, 2)
        fill(net, 0)
        net.forward()  # the layers are reshaped
        give_images(net, 4)
        seen.append(train(net, runs.forward, runs.backward, iterations=3))
    assert all(map(torch.equal, *seen))


def test_where_every_pass_has_another_shape_the_layers_run_by_themselves_after_a_while(monkeypatch):
    net, replays = build(PLAIN)
    noted = []
    monkeypatch.setattr(Recorder, "noting", lambda *_: noted.append(1) or nullcontext())

    def begin(net, iteration):
        give_images(net, 1 + iteration % 5)
        fill(net, iteration)

    train(net, replays.forward, replays.backward, iterations=8, begin=begin)
    assert noted
    noted.clear()
    train(net, replays.forward, replays.backward, iterations=8, begin=begin)
    assert not noted


def test_another_choice_of_candidates_is_captured_anew():
    net, replays = build(PLAIN)
    train(net, replays.forward, replays.backward)
    net.context.choices = Forced("windows_mm")
    mine = train(net, replays.forward, replays.backward)
    assert net.context.choices.used == {"convolution forward", "convolution backward weight"}
    assert [part.captured for part in replays.ranges] == [2]
    plain, _ = build(PLAIN)
    train(plain, plain.forward, plain.backward)
    plain.context.choices = Forced("windows_mm")
    assert all(map(torch.equal, mine, train(plain, plain.forward, plain.backward)))


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


class Partial(Layer):
    """Hands its bottom on; its gradient, or that its two tops are one tensor, depends on the pass."""

    tops = between(1, 2)
    passes = 0

    def reshape(self, bottom_shapes):
        return [bottom_shapes[0]] * len(self.param.top)

    def forward(self, bottoms):
        self.passes += 1
        return [bottoms[0], bottoms[0] if self.passes < 4 else bottoms[0] * 2][: len(self.param.top)]

    def backward(self, top_diffs, wanted):
        return [None if self.passes < 4 else top_diffs[0].expand_as(top_diffs[0])]


@pytest.fixture
def partial_layer(monkeypatch):
    monkeypatch.setitem(registry._TYPES, "Partial", Partial)


def test_a_layer_between_ranges_may_give_no_gradient_in_some_passes(partial_layer):
    replays = both(TWO_RANGES.replace('type: "Dropout"', 'type: "Partial"'))
    assert len(replays.ranges) == 2
    assert all(part.is_replayed for part in replays.ranges)


def test_two_inputs_that_are_one_tensor_in_some_passes_are_captured_for_both(partial_layer):
    text = (
        IMAGES + conv("c1", "x", "c1") + layer("r1", "ReLU", "c1", "c1") + layer("m", "Partial", "c1", "m1 m2")
        + conv("a", "m1", "a", 3) + conv("b", "m2", "b", 3) + layer("s", "Eltwise", "a b", "s")
        + dense("ip2", "s", "ip2", 3) + LOSS
    )  # fmt: skip
    replays = both(text)
    assert [part.is_replayed for part in replays.ranges] == [True]


def test_a_gradient_that_is_asked_for_behind_an_in_place_layer_without_backward_stays_as_it_is():
    net = (
        IMAGES + layer("e", "ELU", "x", "a") + layer("r", "ReLU", "a", "a") + dense("b", "x", "b", 3)
        + layer("d", "Dropout", "b", "b") + dense("c", "a", "c", 3, "propagate_down: true")
        + layer("sum", "Eltwise", "b c", "ip2") + LOSS
    )  # fmt: skip
    assert both(net).ranges[0].is_replayed


def test_gradients_that_share_memory_are_not_written_over():
    text = (
        IMAGES + conv("a", "x", "a") + conv("b", "x", "b") + layer("d0", "Dropout", "label", "l")
        + layer("sum", "Eltwise", "a b", "s") + layer("d", "Dropout", "s", "s")
        + dense("ip2", "s", "ip2", 3) + layer("loss", "EuclideanLoss", "ip2 target", "loss", "loss_weight: 0.01")
    )  # fmt: skip
    replays = both(inputs(target=(4, 3)) + text)
    assert not replays.ranges[0].is_replayed


def spread(net, *, copies):
    """Have the Dropout layer give one number for all values as gradient, in one place or with copies."""
    dropout = next(node.layer for node in net.steps if node.layer.type == "Dropout")

    def backward(diffs, wanted):
        one = diffs[0].mean().expand(diffs[0].shape)
        return [torch.empty_like(diffs[0]).copy_(one) if copies else one]

    dropout.backward = backward


def test_a_gradient_without_memory_of_its_own_for_each_value_is_copied():
    net, replays = build(TWO_RANGES)
    train(net, replays.forward, replays.backward)
    spread(net, copies=False)
    mine = train(net, replays.forward, replays.backward)
    assert all(part.is_replayed for part in replays.ranges)
    plain, _ = build(TWO_RANGES)
    train(plain, plain.forward, plain.backward)
    spread(plain, copies=True)
    assert all(map(torch.equal, mine, train(plain, plain.forward, plain.backward)))


def test_a_range_that_is_given_such_a_gradient_from_the_beginning_is_not_replayed():
    net, replays = build(TWO_RANGES)
    spread(net, copies=False)
    mine = train(net, replays.forward, replays.backward)
    assert [part.is_replayed for part in replays.ranges] == [False, True]
    plain, _ = build(TWO_RANGES)
    spread(plain, copies=False)
    assert all(map(torch.equal, mine, train(plain, plain.forward, plain.backward)))


def test_a_layer_does_not_write_over_such_a_gradient():
    expanded, copied = build(TWO_RANGES)[0], build(TWO_RANGES)[0]
    spread(expanded, copies=False)
    spread(copied, copies=True)
    seen = [train(net, net.forward, net.backward) for net in (expanded, copied)]
    torch.testing.assert_close(*seen)


class Pair(Layer):
    """Adds its bottoms up; from the fourth pass on both get one tensor as gradient."""

    bottoms = exactly(2)
    passes = 0

    def reshape(self, bottom_shapes):
        return [bottom_shapes[0]]

    def forward(self, bottoms):
        self.passes += 1
        return [bottoms[0] + bottoms[1]]

    def backward(self, top_diffs, wanted):
        dy = top_diffs[0].contiguous(memory_format=torch.channels_last)
        return [dy, dy.clone() if self.passes < 4 else dy]


def test_a_gradient_that_shares_memory_with_another_in_some_passes_is_copied(monkeypatch):
    monkeypatch.setitem(registry._TYPES, "Pair", Pair)
    text = (
        IMAGES + conv("a", "x", "a") + layer("ra", "ReLU", "a", "a") + conv("b", "x", "b")
        + layer("rb", "ReLU", "b", "b") + layer("sum", "Pair", "a b", "s") + dense("ip2", "s", "ip2", 3) + LOSS
    )  # fmt: skip
    assert all(part.is_replayed for part in both(text).ranges)


class Counting(Layer):
    """Multiplies by how many passes there were, though it says that its calls are always the same."""

    bottoms = exactly(1)
    capturable = True
    passes = 0

    def reshape(self, bottom_shapes):
        return [bottom_shapes[0]]

    def forward(self, bottoms):
        self.passes += 1
        return [bottoms[0] * self.passes]

    def backward(self, top_diffs, wanted):
        return [top_diffs[0] * self.passes]


def test_calls_that_differ_from_pass_to_pass_are_not_replayed(monkeypatch):
    monkeypatch.setitem(registry._TYPES, "Counting", Counting)
    text = IMAGES + conv("a", "x", "a") + layer("count", "Counting", "a", "b") + dense("ip2", "b", "ip2", 3) + LOSS
    assert not any(part.is_replayed for part in both(text).ranges)


def test_exposed_values_that_backward_does_not_read_are_dropped_with_their_blob():
    net, replays = build(TWO_RANGES.replace(layer("r2", "ReLU", "c2", "c2"), ""))
    train(net, replays.forward, replays.backward)
    net.clear_param_diffs()
    last = replays.ranges[0].steps[-1]
    values = []
    net.after_forward.append(lambda index: index == last.index and values.append(weakref.ref(last.tops[0].data)))
    replays.forward()
    assert replays.ranges[0].is_replayed
    assert values[0]() is None
    replays.backward()


def test_values_that_backward_reads_are_dropped_after_the_last_call_that_does():
    net, replays = build(TWO_RANGES)
    train(net, replays.forward, replays.backward)
    net.clear_param_diffs()
    first, last = replays.ranges[0].steps[0], replays.ranges[0].steps[-1]
    values, alive = [], {}
    net.after_forward.append(lambda index: index == last.index and values.append(weakref.ref(last.tops[0].data)))
    net.before_backward.append(lambda index: alive.update({index: values[0]() is not None}))
    replays.forward()
    replays.backward()
    assert replays.ranges[0].is_replayed
    assert alive[last.index]
    assert not alive[first.index]


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


def test_what_has_been_captured_is_replayed_however_many_forms_take_turns():
    net, replays = build(PLAIN)
    choices = [RULES, Choices()]

    def begin(net, iteration):
        net.context.choices = choices[iteration % 2]
        fill(net, iteration)

    train(net, replays.forward, replays.backward, iterations=8, passes=2, begin=begin)
    assert [(part.captured, part.is_replayed) for part in replays.ranges] == [(4, True)]


def test_a_form_that_stays_is_captured_also_after_many_others():
    net, replays = build(PLAIN)

    def begin(net, iteration):
        give_images(net, 1 + iteration % 5)
        fill(net, iteration)

    train(net, replays.forward, replays.backward, iterations=20, begin=begin)
    assert not replays.ranges[0].is_replayed
    train(net, replays.forward, replays.backward)
    assert replays.ranges[0].is_replayed


def test_a_parameter_that_is_frozen_or_trained_from_some_iteration_on_counts_from_there():
    def begin(net, iteration):
        parameter = next(each for each in net.layers if each.name == "c2").parameters[0]
        parameter.wanted = iteration not in (2, 3, 4)
        fill(net, iteration)

    assert all(part.is_replayed and part.captured == 2 for part in both(PLAIN, begin=begin).ranges)


def test_another_precision_counts_from_the_next_pass():
    def begin(net, iteration):
        net.context.precision = PRECISIONS["bf16" if iteration in (2, 3, 4) else "float32"]
        fill(net, iteration)

    assert all(part.is_replayed and part.captured == 2 for part in both(PLAIN, begin=begin).ranges)


def test_an_input_that_lends_its_size_alone_is_not_kept():
    noise = layer("noise", "Pooling", "c1", "small", "pooling_param { kernel_size: 3 stride: 2 pool: STOCHASTIC }")
    crop = layer("crop", "Crop", "c1 small", "cropped", "crop_param { offset: 1 }")
    net, replays = build(
        IMAGES
        + conv("c1", "x", "c1")
        + noise
        + crop
        + conv("c2", "cropped", "c2")
        + dense("ip2", "c2", "ip2", 3)
        + LOSS
    )
    train(net, replays.forward, replays.backward)
    part = next(each for each in replays.ranges if each.steps[0].layer.name == "crop")
    assert part.is_replayed
    lent = []
    small = net.blobs["small"]
    net.before_forward.append(lambda index: lent.append(small.data) if net.nodes[index].layer.name == "crop" else None)
    net.clear_param_diffs()
    replays.forward()
    lent[0] = weakref.ref(lent[0])
    assert lent[0]() is None
    replays.backward()
