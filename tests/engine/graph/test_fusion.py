"""Layers that run as one compute what they do one by one, to the bit."""

import math

import pytest
import torch

from mgcaffe.errors import DataError
from tests.support.netkit import inputs, make_net

ITEMS, LENGTH = 4, 3
ROWS = {"a": 5, "b": 9, "c": 7}


def bag(name, rows, fields="", param=""):
    return (
        f'layer {{ name: "{name}" type: "EmbeddingBag" bottom: "ids_{name}" top: "{name}" {param}'
        f" embedding_bag_param {{ input_dim: {rows} num_output: {LENGTH} {fields} }} }}\n"
    )


def net_of_bags(sizes=(1, 1, 1), param="", **bags):
    """Three bags, joined by DotInteraction, and a loss."""
    text = inputs(**{f"ids_{name}": (ITEMS, size) for name, size in zip(ROWS, sizes, strict=True)}, t=(ITEMS, 1))
    text += "".join(bags.get(name) or bag(name, rows, param=param) for name, rows in ROWS.items())
    return text + (
        'layer { name: "dots" type: "DotInteraction" bottom: "a" bottom: "b" bottom: "c" top: "dots" }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "dots" top: "ip"'
        ' inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }\n'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }\n'
    )


def run_both(text, **values):
    """Run a net that fuses and one that doesn't; return their layers' types, and compare losses and gradients."""
    losses, gradients, types = [], [], []
    for keeps in (False, True):
        net = make_net(text, keep_blobs=keeps)
        for layer in net.layers:
            if layer.type == "Input":
                name = layer.param.top[0]
                layer.values = [values.get(name, torch.ones(layer.values[0].shape, dtype=torch.float64))]
        net.clear_param_diffs()
        losses.append(net.forward_backward())
        gradients.append([parameter.dense_diff().clone() for parameter in net.parameters])
        types.append([type(step.layer).__name__ for step in net.steps])
    assert losses[0] == losses[1]
    for mine, other in zip(*gradients, strict=True):
        assert torch.equal(mine, other)
    assert any(bool(each.any()) for each in gradients[0])
    return types[0]


def ids_for(sizes=(1, 1, 1)):
    random = torch.Generator().manual_seed(3)
    return {
        f"ids_{name}": torch.randint(rows, (ITEMS, size), generator=random).double()
        for (name, rows), size in zip(ROWS.items(), sizes, strict=True)
    }


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (1, 2, 1)], ids=["one", "two", "unequal"])
def test_bags_look_up_together(sizes):
    types = run_both(net_of_bags(sizes), **ids_for(sizes))
    assert types.count("EmbeddingBags") == 1
    assert "EmbeddingBag" not in types


def test_bags_may_share_a_table_or_leave_it_frozen():
    shared = {name: bag(name, 9, param='param { name: "t" }') for name in "ab"}
    frozen = bag("c", 7, param="param { lr_mult: 0 }")
    run_both(net_of_bags(**shared), **ids_for())
    # A frozen table's layer is not run backward, so it does not look up with those that train.
    assert "EmbeddingBag" in run_both(net_of_bags(c=frozen), **ids_for())


@pytest.mark.parametrize("multipliers", [("lr_mult: 0", ""), ("", "lr_mult: 0")])
def test_a_shared_table_that_one_bag_freezes_gets_no_gradient(multipliers):
    bags = {
        name: bag(name, 9, param=f'param {{ name: "t" {multiplier} }}')
        for name, multiplier in zip("ab", multipliers, strict=True)
    }
    net = make_net(net_of_bags(**bags))
    net.forward_backward()
    assert not net.parameters[0].gradients
    assert [node.needs_backward for node in net.nodes if node.layer.type == "EmbeddingBag"] == [False, False, True]


def test_bags_of_other_lengths_look_up_apart():
    text = net_of_bags().replace("input_dim: 7 num_output: 3", "input_dim: 7 num_output: 2")
    types = run_both(text.replace("DotInteraction", "Concat"), **ids_for())
    assert types.count("EmbeddingBags") == types.count("EmbeddingBag") == 1


def test_tables_in_several_storages_are_read_one_by_one():
    net, other = (make_net(net_of_bags(), keep_blobs=False) for _ in range(2))
    table = net.layers[5].parameters[0]
    table.data = table.data.clone()
    for each in (net, other):
        for layer, values in zip(each.layers, ids_for().values(), strict=False):
            layer.values = [values]
    assert net.forward_backward() == other.forward_backward()
    assert torch.equal(table.dense_diff(), other.layers[5].parameters[0].dense_diff())


def test_a_wrong_id_is_named_with_its_own_layer():
    net = make_net(net_of_bags(), keep_blobs=False)
    net.layers[1].values = [torch.tensor([[1.0], [8], [9], [0]])]
    with pytest.raises(DataError, match=r"value 9 at \[2, 0\] of blob 'ids_b' is no row number: there are 9 rows"):
        net.forward()


HIDDEN = """
layer { name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1"
  inner_product_param { num_output: 300 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "%s" }
layer { name: "ip2" type: "InnerProduct" bottom: "%s" top: "ip2"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "t" top: "loss" }
"""


@pytest.mark.parametrize("top", ["ip1", "relu"])
def test_inner_product_and_relu_run_as_one(top):
    x = torch.randn(ITEMS, 400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    types = run_both(inputs(x=(ITEMS, 400), t=(ITEMS, 2)) + HIDDEN % (top, top), x=x)
    assert types[2:4] == ["InnerProductReLU", "InnerProduct"]


def test_inner_product_and_relu_let_nan_through():
    net = make_net(
        inputs(x=(ITEMS, 400), t=(ITEMS, 2)) + HIDDEN % ("ip1", "ip1"), keep_blobs=False, dtype=torch.float32
    )
    net.layers[2].parameters[0].data[7, 5] = math.nan
    net.layers[0].values = [torch.ones(ITEMS, 400)]
    assert math.isnan(net.forward())
