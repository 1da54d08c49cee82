"""Repeated blocks are found by structure and by names."""

import pytest

from mgcaffe.prototxt import read_net
from mgcaffe.tools.drawing.blocks import find_blocks
from mgcaffe.tools.drawing.graph import build_graph
from mgcaffe.tools.drawing.reading import layers_of_message
from tests.support.drawn_nets import graph_of, layer
from tests.support.paths import MODELS


def titles(graph):
    return [block.title for block in find_blocks(graph)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("googlenet", ["3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]),
        ("resnet50", ["2a", "2b", "2c", "3a", "3b", "3c", "3d", "4a", "4b", "4c", "4d", "4e", "4f", "5a", "5b", "5c"]),
        ("lenet", []),
    ],
)
def test_blocks_of_models(name, expected):
    graph = build_graph(layers_of_message(read_net(MODELS / name / "deploy.prototxt").layer))
    prefix = {"googlenet": "inception_", "resnet50": "res"}.get(name, "")
    assert titles(graph) == [prefix + end for end in expected]


def residual(number, bottom):
    a, b, join = f"conv{number}_a", f"conv{number}_b", f"sum{number}"
    return layer(a, "Convolution", bottom) + layer(b, "Convolution", a) + layer(join, "Eltwise", f"{bottom} {b}")


def test_blocks_without_common_names_are_called_by_their_last_layer():
    graph = graph_of(layer("in", "Input") + layer("c", "Convolution", "in") + residual(1, "c") + residual(2, "sum1"))
    assert [(block.title, block.boxes) for block in find_blocks(graph)] == [("sum1", (2, 3, 4)), ("sum2", (5, 6, 7))]


def test_what_is_there_once_is_no_block():
    assert titles(graph_of(layer("in", "Input") + layer("c", "Convolution", "in") + residual(1, "c"))) == []


def test_a_loss_does_not_make_a_block_of_the_whole_net():
    text = layer("data", "Data", tops="data label") + layer("ip", "InnerProduct", "data")
    text += layer("loss1", "SoftmaxWithLoss", "ip label") + layer("loss2", "SoftmaxWithLoss", "ip label")
    assert titles(graph_of(text)) == []


def fire(number, bottom):
    name = f"fire{number}"
    text = layer(f"{name}/squeeze", "Convolution", bottom)
    text += layer(f"{name}/one", "Convolution", f"{name}/squeeze") + layer(
        f"{name}/three", "Convolution", f"{name}/squeeze"
    )
    return text + layer(f"{name}/concat", "Concat", f"{name}/one {name}/three")


def test_neighbours_that_bear_the_name_belong_to_the_block():
    graph = graph_of(layer("in", "Input") + fire(2, "in") + fire(3, "fire2/concat"))
    assert [(block.title, len(block.boxes)) for block in find_blocks(graph)] == [("fire2", 4), ("fire3", 4)]


def test_chains_are_grouped_by_what_stands_before_the_slash():
    text, bottom = layer("in", "Input"), "in"
    for number in (1, 2, 3):
        text += layer(f"c{number}/dw", "Convolution", bottom) + layer(f"c{number}/sep", "Convolution", f"c{number}/dw")
        bottom = f"c{number}/sep"
    assert titles(graph_of(text)) == ["c1", "c2", "c3"]


def test_a_group_that_a_path_leaves_and_enters_again_is_not_folded():
    text, bottom = layer("in", "Input"), "in"
    for number in (1, 2):
        text += layer(f"c{number}/a", "Convolution", bottom) + layer(f"out{number}", "Pooling", f"c{number}/a")
        text += layer(f"c{number}/b", "Eltwise", f"out{number} c{number}/a")
        bottom = f"c{number}/b"
    blocks = find_blocks(graph_of(text))
    assert all(len(block.boxes) == 2 for block in blocks)
    assert {block.boxes for block in blocks} == {(2, 3), (5, 6)}


def test_groups_that_would_make_a_circle_together_are_not_both_folded():
    text = layer("in", "Input", tops="x y")
    text += layer("p/a", "TanH", "x") + layer("q/a", "TanH", "y")
    text += layer("p/b", "Eltwise", "p/a q/a") + layer("q/b", "Eltwise", "q/a p/a")
    assert len(find_blocks(graph_of(text))) <= 1
