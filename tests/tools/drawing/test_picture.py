"""Layouts: nothing overlaps, everything is there, wires lead from box to box."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcaffe.prototxt import read_net
from mgcaffe.tools.drawing.blocks import find_blocks
from mgcaffe.tools.drawing.graph import build_graph
from mgcaffe.tools.drawing.picture import DIRECTIONS, draw
from mgcaffe.tools.drawing.reading import layers_of_message
from tests.support.counted_lines import counted_lines
from tests.support.drawn_nets import graph_of, layer
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

NETS = sorted(path for path in MODELS.glob("*/*.prototxt") if path.name != "solver.prototxt")


def overlap(first, second):
    return (
        first.x + first.width > second.x + 0.01
        and second.x + second.width > first.x + 0.01
        and first.y + first.height > second.y + 0.01
        and second.y + second.height > first.y + 0.01
    )


def check(plate):
    """Boxes and labels lie apart and on the plate, and no wire runs through a box that it does not belong to."""
    for first, second in itertools.combinations(plate.nodes, 2):
        assert not overlap(first.rect, second.rect), (first, second)
    for node in plate.nodes:
        own = node.rect
        assert own.x > -0.01 and own.x + own.width < plate.width + 0.01
        assert own.y > -0.01 and own.y + own.height < plate.height + 0.01
        for part in (node.body, *(label.rect for label in node.labels)):
            assert part.x > own.x - 0.01 and part.x + part.width < own.x + own.width + 0.01
            assert part.y > own.y - 0.01 and part.y + part.height < own.y + own.height + 0.01
        for one, other in itertools.combinations([node.body, *(label.rect for label in node.labels)], 2):
            assert not overlap(one, other)
    for number, line in enumerate(plate.lines):
        low_x, high_x = sorted((line.x, line.to_x))
        low_y, high_y = sorted((line.y, line.to_y))
        for index, node in enumerate(plate.nodes):
            if line.bend or index not in (line.tail, line.head):
                crosses = (
                    high_x > node.rect.x + 0.1
                    and low_x < node.rect.x + node.rect.width - 0.1
                    and high_y > node.rect.y + 0.1
                    and low_y < node.rect.y + node.rect.height - 0.1
                )
                assert not crosses, (number, line, node)


def check_wires(picture):
    """Every wire that is read begins at its maker and reaches each reader, piece by piece."""
    plate = picture.plate
    where = {}
    for index, node in enumerate(plate.nodes):
        for box in [node.box] if node.box >= 0 else picture.blocks[node.block].boxes:
            where[box] = index
    for number, wire in enumerate(picture.graph.wires):
        pieces = [line for line in plate.lines if line.wire == number]
        heads = {where[head] for head in wire.heads} - {where[wire.tail]}
        assert {line.head for line in pieces if line.head >= 0} == heads
        if heads:
            assert where[wire.tail] in {line.tail for line in pieces}
        ends = {(round(line.to_x, 2), round(line.to_y, 2)) for line in pieces}
        for line in pieces:
            begins_at_box = line.tail >= 0 and on_edge(plate.nodes[line.tail].rect, line.x, line.y)
            assert begins_at_box or (round(line.x, 2), round(line.y, 2)) in ends


def on_edge(rect, x, y):
    return rect.x - 0.1 <= x <= rect.x + rect.width + 0.1 and rect.y - 0.1 <= y <= rect.y + rect.height + 0.1


@pytest.mark.parametrize("path", NETS, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("folded", [True, False])
def test_models_are_laid_out_without_overlaps(path, direction, folded):
    graph = build_graph(layers_of_message(read_net(path).layer))
    blocks = find_blocks(graph)
    picture = draw(graph, blocks, direction=direction, folded=folded)
    for plate in (picture.plate, *picture.insides):
        check(plate)
    check_wires(picture)
    drawn = [node.box for plate in (picture.plate, *picture.insides) for node in plate.nodes if node.box >= 0]
    assert sorted(drawn) == list(range(len(graph.boxes)))


@pytest.mark.parametrize("columns", [1, 2, 5, 100])
def test_a_net_is_broken_into_the_columns_asked_for(columns):
    graph = build_graph(layers_of_message(read_net(MODELS / "resnet50" / "deploy.prototxt").layer))
    picture = draw(graph, find_blocks(graph), folded=True, columns=columns)
    check(picture.plate)
    check_wires(picture)
    tops = sorted(node.rect.y for node in picture.plate.nodes)
    assert len([top for top in tops if top == tops[0]]) == min(columns, 22)


def test_a_short_net_stays_in_one_column():
    graph = build_graph(layers_of_message(read_net(MODELS / "lenet" / "deploy.prototxt").layer))
    assert len({round(node.rect.y) for node in draw(graph, []).plate.nodes}) == len(graph.boxes)


def test_a_chain_is_straight():
    text = layer("in", "Input") + "".join(
        layer(f"c{number}", "Convolution", f"c{number - 1}" if number else "in") for number in range(12)
    )
    picture = draw(graph_of(text), [], columns=1)
    assert (
        len({round(line.x, 3) for line in picture.plate.lines} | {round(line.to_x, 3) for line in picture.plate.lines})
        == 1
    )


def test_crossings_that_can_be_avoided_are_avoided():
    text = layer("in", "Input", tops="a b") + layer("left", "TanH", "b") + layer("right", "TanH", "a")
    text += layer("l2", "TanH", "right") + layer("r2", "TanH", "left")
    nodes = draw(graph_of(text), []).plate.nodes
    where = {name: nodes[number].rect.x for number, name in enumerate(("in", "left", "right", "l2", "r2"))}
    assert (where["left"] < where["right"]) == (where["r2"] < where["l2"])
    assert where["right"] < where["left"]


@given(st.data())
@settings(max_examples=60)
def test_any_net_is_laid_out_without_overlaps(data):
    count = data.draw(st.integers(1, 14))
    text = layer("n0", "Input", tops="b0" if data.draw(st.booleans()) else "b0 extra")
    for number in range(1, count):
        bottoms = data.draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True))
        name = data.draw(st.sampled_from(["n", "x/", "a_long_name_of_a_layer_"])) + str(number)
        text += layer(
            name, data.draw(st.sampled_from(["TanH", "Concat"])), " ".join(f"b{b}" for b in bottoms), f"b{number}"
        )
    graph = graph_of(text)
    picture = draw(
        graph, find_blocks(graph), direction=data.draw(st.sampled_from(DIRECTIONS)), folded=data.draw(st.booleans()),
        columns=data.draw(st.integers(0, 4)),
    )  # fmt: skip
    check(picture.plate)
    check_wires(picture)


def test_an_empty_net_and_one_of_a_single_layer_are_drawn():
    assert draw(graph_of('name: "empty"'), []).plate.nodes == []
    assert len(draw(graph_of(layer("in", "Input")), [], columns=3).plate.nodes) == 1


def test_a_long_net_fills_a_page():
    text, bottom = layer("in", "Input"), "in"
    for number in range(260):
        text, bottom = text + layer(f"c{number}", "Convolution", bottom), f"c{number}"
    plate = draw(graph_of(text), [], folded=False).plate
    assert 1 < plate.width / plate.height < 2


def long_net(groups):
    """Return the graph of a net of four layers a group, each of which also reads the net's input."""
    text = layer("in", "Input")
    bottom = "in"
    for number in range(groups):
        text += layer(f"a{number}", "Convolution", bottom) + layer(f"b{number}", "Convolution", bottom)
        text += layer(f"c{number}", "Pooling", f"b{number}")
        text += layer(f"d{number}", "Concat", f"a{number} c{number} in")
        bottom = f"d{number}"
    return graph_of(text)


@pytest.mark.slow
def test_a_net_of_a_thousand_layers_is_laid_out():
    graph = long_net(250)
    check_wires(draw(graph, find_blocks(graph), folded=False))


def test_the_work_of_a_layout_grows_less_than_with_the_square_of_the_layers():
    def work(groups):
        graph = long_net(groups)
        return counted_lines(lambda: draw(graph, find_blocks(graph), folded=False))

    assert work(80) < 3 * work(40)
