"""EmbeddingBag: against PyTorch's own and against differences, its start, and its errors."""

import pytest
import torch

from mgcaffe.engine.host_blob import ParameterBlob
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.errors import DataError, NetError
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.netkit import inputs, make_net

F = torch.nn.functional
ROWS, LENGTH = 7, 3
IDS = torch.tensor([[0, 6, 6, 1], [2, 2, 2, 2], [5, 4, 3, 0]], dtype=torch.float64)
FLAT = IDS.reshape(-1)
# The first and the last bag are empty.
OFFSETS, LENGTHS = torch.tensor([0, 0, 3, 9, 12.0]).double(), torch.tensor([0, 3, 6, 3, 0.0]).double()


def bag(fields="", shapes=((3, 4),), layer_fields="", **options):
    names = "".join(f'bottom: "x{number}" ' for number in range(len(shapes)))
    sizes = f"input_dim: {ROWS} num_output: {LENGTH}" if "input_dim" not in fields else ""
    text = f'name: "e" type: "EmbeddingBag" {names} top: "y" {layer_fields} embedding_bag_param {{ {sizes} {fields} }}'
    return make_layer(text, list(shapes), **options)[0]


FORMS = {
    "fixed": ("", [IDS], None),
    "of_one": ("", [FLAT], torch.arange(12)),
    "offsets": ("", [FLAT, OFFSETS], OFFSETS.long()),
    "lengths": ("bags: LENGTHS", [IDS, LENGTHS], OFFSETS.long()),
}


@pytest.mark.parametrize("mode", ["SUM", "MEAN"])
@pytest.mark.parametrize("form", FORMS)
def test_agrees_with_pytorch_and_with_differences(form, mode):
    fields, bottoms, offsets = FORMS[form]
    fields = f"{fields} mode: {mode}"

    def function(ids, *rest):
        ids = ids.long() if offsets is None else ids.long().reshape(-1)
        return F.embedding_bag(ids, rest[-1], offsets, mode=mode.lower())

    shapes = [tuple(values.shape) for values in bottoms]
    check_against_autograd(bag(fields, shapes), bottoms, function)
    check_gradients(bag(fields, shapes), bottoms)


def test_the_gradient_is_that_of_the_rows_looked_up():
    layer = bag()
    top_diff = torch.ones(3, LENGTH, dtype=torch.float64)
    forward_backward(layer, [IDS], [top_diff])
    forward_backward(layer, [IDS[:1]], [top_diff[:1]])
    table = layer.table
    rows, sums = table.merged()
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert sums[:, 0].tolist() == [3, 2, 4, 1, 1, 1, 4]
    table.fresh = True
    rows, sums = table.merged()
    assert rows.numel() == 0 and sums.shape == (0, LENGTH) and not table.dense_diff().any()
    # What others see is a copy: nothing that is written there could reach the gradient.
    assert not ParameterBlob(table).diff.any()
    with pytest.raises(ValueError, match="read-only"):
        ParameterBlob(table).diff[...] = 1


def test_a_frozen_table_gets_no_gradient():
    layer = bag(layer_fields="param { lr_mult: 0 }")
    forward_backward(layer, [IDS], [torch.ones(3, LENGTH, dtype=torch.float64)])
    assert layer.table.fresh


@pytest.mark.parametrize(
    ("shapes", "fields"), [([(0, 4)], ""), ([(2, 0)], "mode: MEAN"), ([(0,), (2,)], ""), ([(0,), (0,)], "")]
)
def test_bags_without_ids_and_batches_without_bags_pass(shapes, fields):
    layer = bag(fields, shapes)
    bottoms = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    (y,), _ = forward_backward(layer, bottoms, [torch.ones(shapes[-1][0], LENGTH, dtype=torch.float64)])
    assert y.shape == (shapes[-1][0], LENGTH) and not y.any() and not layer.table.dense_diff().any()


def test_the_table_begins_uniform_within_one_over_the_root_of_its_rows():
    values = bag("input_dim: 10000 num_output: 4", [(2, 2)]).table.data
    assert 0.0099 < values.max() <= 0.01 and -0.01 <= values.min() < -0.0099 and values.mean().abs() < 1e-3
    assert (bag('weight_filler { type: "constant" value: 2 }').table.data == 2).all()


NET = inputs(a=(3, 4), b=(3,)) + "".join(
    f'layer {{ name: "{name}" type: "{kind}" bottom: "{blob}" top: "y{name}" {spec} {param} }}'
    for name, kind, blob, spec, param in (
        ("ip", "InnerProduct", "a", "", "inner_product_param { num_output: 2 }"),
        ("one", "EmbeddingBag", "a", 'param { name: "t" }', "embedding_bag_param { input_dim: 7 num_output: 3 }"),
        ("two", "EmbeddingBag", "b", 'param { name: "t" }', "embedding_bag_param { input_dim: 7 num_output: 3 }"),
    )
)


def test_a_table_lies_apart_and_layers_may_share_it():
    net = make_net(NET)
    assert net.arena.data.numel() == 2 * 4 + 2
    (table,) = net.arena.tables
    assert (table.layer_name, table.parameter.shape) == ("one", (7, 3))
    one, two = net.layers[-2].table, net.layers[-1].table
    assert two.owner is one and two.data.data_ptr() == one.data.data_ptr()
    two.add_rows(torch.tensor([4]), torch.ones(1, 3, dtype=torch.float64))
    assert one.merged()[0].tolist() == [4] == two.merged()[0].tolist()
    lent = make_net(NET, share_with=net)
    assert not lent.arena.tables and lent.layers[-1].table.data.data_ptr() == one.data.data_ptr()


def test_other_layers_cannot_share_a_table():
    head, _, tail = NET.replace('name: "two" type: "EmbeddingBag"', 'name: "two" type: "Embed"').rpartition(
        "embedding_bag"
    )
    with pytest.raises(NetError, match=r"'one' with layer 'two': one of the two is the table of an EmbeddingBag"):
        make_net(f"{head}embed{tail}")


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        ("input_dim: 0 num_output: 3", [(3, 4)], "input_dim has to be at least 1"),
        ("input_dim: 3", [(3, 4)], "num_output has to be at least 1"),
        ("bags: OFFSETS", [(3, 4)], "bags says what a second bottom gives, and there is only one bottom"),
        ("", [()], "the blob of ids has no axis to count bags by"),
        ("", [(3,), ()], "the blob of offsets has no axis to count bags by"),
        ("input_dim: 4000000000 num_output: 4000000000", [(3, 4)], "parameter 0 of shape 4000000000x4000000000 would"),
    ],
)
def test_wrong_fields_are_refused(fields, shapes, message):
    with pytest.raises(NetError, match=message):
        bag(fields, shapes)


def test_more_rows_than_float32_can_count_are_refused():
    with pytest.raises(NetError, match="holds whole numbers exactly up to 16777216"):
        bag("input_dim: 16777217 num_output: 1", dtype=torch.float32)


@pytest.mark.parametrize(
    ("fields", "ids", "second", "message"),
    [
        ("", [[0.0, 7], [1, 2]], None, r"value 7 at \[0, 1\] of blob 'x0' is no row number: there are 7 rows, 0 to 6"),
        ("", [0.0, float("nan")], [0.0, 1], r"value nan at \[1\] of blob 'x0' is no row number.*layer 'e'"),
        ("", [0.0, 1], [1.0, 1], "offset 1 of bag 0 in blob 'x1' has to be 0"),
        ("", [0.0, 1], [0.0, 2, 1], "offset 1 of bag 2 in blob 'x1' is below the one before"),
        ("", [0.0, 1], [0.0, 3], "offset 3 of bag 1 in blob 'x1' is beyond the 2 ids of blob 'x0'"),
        ("", [0.0, 1], [], "blob 'x1' holds no offsets, and blob 'x0' 2 ids"),
        ("bags: LENGTHS", [0.0, 1], [3.0, -1], "length -1 of bag 1 in blob 'x1' is negative"),
        ("bags: LENGTHS", [0.0, 1], [1.0, 2], "the lengths in blob 'x1' add up to 3, and blob 'x0' holds 2 ids"),
    ],
)
def test_wrong_ids_and_bags_are_refused(fields, ids, second, message):
    bottoms = [torch.tensor(values, dtype=torch.float64) for values in (ids, second) if values is not None]
    layer = bag(fields, [tuple(each.shape) for each in bottoms])
    with pytest.raises(DataError, match=message):
        layer.forward(bottoms)


def test_weights_and_gradient_of_a_table_are_written_as_a_blob():
    net = make_net(NET)
    table = net.layers[-1].table
    assert isinstance(table, RowParameter)
    table.add_rows(torch.tensor([4]), torch.ones(1, 3, dtype=torch.float64))
    message = parse_text(str(net.to_proto(diff=True)), NetParameter)
    blob = message.layer[-1].blobs[0]
    values, gradient = (list(blob.double_data), list(blob.double_diff))
    assert values == table.data.reshape(-1).tolist() and gradient == [0.0] * 12 + [1.0] * 3 + [0.0] * 6
    other = make_net(NET, seed=5)
    other.copy_trained_layers(message)
    assert torch.equal(other.layers[-1].table.data, table.data)
