"""Which layers become a box, which blobs a wire."""

from mgcaffe.tools.drawing.graph import short_count
from tests.support.drawn_nets import graph_of, layer


def names(graph):
    return [[graph.layers[number].name for number in box.layers] for box in graph.boxes]


def test_layers_that_work_in_place_are_rows_of_the_box_before():
    text = layer("in", "Input") + layer("conv", "Convolution", "in") + layer("bn", "BatchNorm", "conv", "conv")
    graph = graph_of(text + layer("relu", "ReLU", "conv", "conv") + layer("pool", "Pooling", "conv"))
    assert names(graph) == [["in"], ["conv", "bn", "relu"], ["pool"]]
    assert [(wire.tail, wire.name, wire.heads) for wire in graph.wires] == [
        (0, "in", [1]), (1, "conv", [2]), (2, "pool", [])
    ]  # fmt: skip


def test_a_blob_that_was_read_before_an_in_place_layer_keeps_its_box():
    text = layer("in", "Input") + layer("conv", "Convolution", "in") + layer("early", "Pooling", "conv")
    graph = graph_of(text + layer("relu", "ReLU", "conv", "conv") + layer("late", "Pooling", "conv"))
    assert names(graph) == [["in"], ["conv"], ["early"], ["relu"], ["late"]]
    assert graph.after(1) == [2, 3]
    assert graph.before(4) == [3]


def test_an_in_place_layer_on_one_of_several_tops_is_its_own_box():
    text = layer("in", "Input", tops="a b") + layer("relu", "ReLU", "a", "a")
    assert names(graph_of(text)) == [["in"], ["relu"]]


def test_data_layers_of_two_phases_drawn_together_feed_the_same_readers():
    text = layer("train", "Data", tops="data label") + layer("test", "Data", tops="data label")
    graph = graph_of(text + layer("ip", "InnerProduct", "data") + layer("loss", "SoftmaxWithLoss", "ip label"))
    assert graph.before(2) == [0, 1]
    assert graph.before(3) == [2, 0, 1]


def test_a_label_names_the_blob_only_where_the_layer_has_another_name():
    graph = graph_of(layer("in", "Input", tops="x") + layer("ip", "InnerProduct", "x"))
    assert [graph.label(wire) for wire in range(2)] == ["x", ""]


def test_counts_have_three_digits():
    assert [short_count(n) for n in (0, 999, 1000, 9_994, 9_996, 99_960, 999_600, 61_000_000, 5 * 10**15)] == [
        "0", "999", "1.00 k", "9.99 k", "10.0 k", "100 k", "1.00 M", "61.0 M", "5000 T"
    ]  # fmt: skip
