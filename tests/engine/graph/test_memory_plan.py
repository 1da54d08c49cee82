"""The memory plan against what a small net really holds, and against sums by hand."""

from __future__ import annotations

import torch

from mgcaffe.engine.graph.memory_plan import plan_memory
from mgcaffe.engine.net import TEST, TRAIN
from tests.support.netkit import inputs, make_net

_BYTES = 4
_LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }'
_CHAIN = f"""
{inputs(data=(2, 3, 8, 8), label=(2,))}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 }} }}
layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param {{ num_output: 5 }} }}
{_LOSS}
"""
_BRANCHES = f"""
{inputs(data=(2, 3, 8, 8), label=(2,))}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 }} }}
layer {{ name: "norm" type: "BatchNorm" bottom: "conv" top: "norm" }}
layer {{ name: "scale" type: "Scale" bottom: "norm" top: "norm" scale_param {{ bias_term: true }} }}
layer {{ name: "relu" type: "ReLU" bottom: "norm" top: "norm" }}
layer {{ name: "a" type: "Convolution" bottom: "norm" top: "a" convolution_param {{ num_output: 4 kernel_size: 1 }} }}
layer {{ name: "relu_a" type: "ReLU" bottom: "a" top: "a" }}
layer {{ name: "b" type: "LRN" bottom: "norm" top: "b" }}
layer {{ name: "sum" type: "Eltwise" bottom: "a" bottom: "norm" top: "sum" }}
layer {{ name: "joined" type: "Concat" bottom: "sum" bottom: "b" top: "joined" }}
layer {{ name: "pool" type: "Pooling" bottom: "joined" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "drop" type: "Dropout" bottom: "pool" top: "pool" }}
layer {{ name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param {{ num_output: 5 }} }}
{_LOSS}
"""
_JOINED = f"""
{inputs(data=(2, 3, 8, 8), label=(2,))}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 }} }}
layer {{ name: "a" type: "Pooling" bottom: "conv" top: "a" pooling_param {{ pool: AVE kernel_size: 1 }} }}
layer {{ name: "b" type: "Pooling" bottom: "conv" top: "b" pooling_param {{ pool: AVE kernel_size: 1 }} }}
layer {{ name: "c" type: "Pooling" bottom: "conv" top: "c" pooling_param {{ pool: AVE kernel_size: 1 }} }}
layer {{ name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }}
layer {{ name: "joined" type: "Concat" bottom: "sum" bottom: "c" top: "joined" }}
layer {{ name: "pool" type: "Pooling" bottom: "joined" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param {{ num_output: 5 }} }}
{_LOSS}
"""


def _training_net(text):
    return make_net(text, phase=TRAIN, keep_blobs=False, dtype=torch.float32)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _held(net):
    """Return the bytes of the storages that blobs and layers hold, parameters aside."""
    found = [blob.data for blob in net.blobs.values() if blob.data is not None]
    for node in net.steps:
        for layer in [node.layer, *getattr(node.layer, "members", [])]:
            found += _tensors(layer.saved)
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in found}
    own = {each.data.untyped_storage().data_ptr() for each in net.parameters}
    return sum(size for place, size in storages.items() if place not in own)


def test_the_plan_of_a_chain_is_what_sums_by_hand_say():
    net = _training_net(_CHAIN)
    plan = plan_memory(net.steps, _BYTES)
    data, label, conv, pool = (size * _BYTES for size in (2 * 3 * 64, 2, 2 * 4 * 64, 2 * 4 * 16))
    places, fc, loss = 2 * 4 * 16 * 8, 2 * 5 * _BYTES, _BYTES
    by_name = {net.layers[step.layers[0]].name: step for step in plan.steps}
    assert by_name["conv"].made == conv and by_name["pool"].made == pool + places
    # The pooling's bottom is dead after it, since its places are kept; its top, the inner product's bottom, is not.
    assert net.layers[by_name["conv"].freed_after].name == "pool" and not by_name["conv"].freed_in_backward
    assert net.layers[by_name["pool"].freed_after].name == "pool" and by_name["pool"].freed_in_backward
    assert by_name["pool"].forward == data + label + conv + pool + places
    assert by_name["fc"].forward == data + label + pool + places + fc
    # In backward the pooling has its top's gradient and makes its bottom's; the loss's value stays.
    assert by_name["pool"].gradients == conv
    assert by_name["pool"].backward == data + label + loss + places + pool + conv
    assert (plan.peak, net.layers[plan.peak_layer].name) == (by_name["pool"].backward, "pool")
    assert plan.peak_in_backward


def test_after_forward_a_net_holds_what_the_plan_says():
    for text in (_CHAIN, _BRANCHES):
        net = _training_net(text)
        net.forward()
        last = plan_memory(net.steps, _BYTES).steps[-1].forward
        # Statistics, divisors and indices of labels are small, and not counted; nor are logits, which are freed.
        assert abs(_held(net) - last) <= 0.02 * last


def test_sums_lie_in_a_bottom_and_gradients_of_sums_and_joins_in_that_of_the_top():
    net = _training_net(_JOINED)
    by_name = {net.layers[step.layers[0]].name: step for step in plan_memory(net.steps, _BYTES).steps}
    values = 2 * 4 * 64 * _BYTES
    assert by_name["sum"].made == 0 and by_name["joined"].made == 2 * values
    assert by_name["pool"].gradients == 2 * values
    assert by_name["joined"].gradients == by_name["sum"].gradients == 0
    assert by_name["c"].gradients == values


def test_a_net_that_only_tests_has_no_backward_pass():
    net = make_net(_BRANCHES, phase=TEST, keep_blobs=False, dtype=torch.float32)
    plan = plan_memory(net.steps, _BYTES)
    assert not plan.peak_in_backward
    assert all(step.backward == step.gradients == 0 and not step.freed_in_backward for step in plan.steps)
