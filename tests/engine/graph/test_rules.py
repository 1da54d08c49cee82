"""Phase rules and Split insertion (Caffe's FilterNetTest and SplitLayerInsertionTest behaviours)."""

import pytest

from mgcaffe.engine.graph import rules as graph
from mgcaffe.errors import NetError
from mgcaffe.prototxt import TEST, TRAIN, NetParameter, NetState, parse_text, read_net
from tests.support.paths import MODELS


def specs(text: str) -> list[graph.LayerSpec]:
    return [graph.LayerSpec(layer) for layer in parse_text(text, NetParameter).layer]


def names_kept(rules: str, phase: int = TRAIN, level: int = 0, stages: tuple[str, ...] = ()) -> list[str]:
    text = 'layer { name: "always" type: "Silence" } layer { name: "ruled" type: "Silence" ' + rules + " }"
    kept = graph.filter_layers(specs(text), graph.make_state(phase, level, stages))
    return [spec.param.name for spec in kept]


BOTH, ONLY = ["always", "ruled"], ["always"]


@pytest.mark.parametrize(
    ("rules", "state", "expected"),
    [
        ("", {}, BOTH),
        ("include { phase: TRAIN }", {"phase": TRAIN}, BOTH),
        ("include { phase: TRAIN }", {"phase": TEST}, ONLY),
        ("exclude { phase: TEST }", {"phase": TEST}, ONLY),
        ("exclude { phase: TEST }", {"phase": TRAIN}, BOTH),
        ('include { stage: "a" }', {}, ONLY),
        ('include { stage: "a" }', {"stages": ("a", "b")}, BOTH),
        ('include { stage: "a" stage: "b" }', {"stages": ("a",)}, ONLY),
        ('include { stage: "a" stage: "b" }', {"stages": ("b", "a")}, BOTH),
        ('include { stage: "a" } include { stage: "b" }', {"stages": ("b",)}, BOTH),
        ('include { not_stage: "a" }', {"stages": ("a",)}, ONLY),
        ('include { not_stage: "a" }', {}, BOTH),
        ('exclude { stage: "a" stage: "b" }', {"stages": ("a", "b")}, ONLY),
        ('exclude { stage: "a" stage: "b" }', {"stages": ("b",)}, BOTH),
        ("include { min_level: 3 }", {"level": 2}, ONLY),
        ("include { min_level: 3 }", {"level": 3}, BOTH),
        ("include { max_level: -3 }", {"level": -2}, ONLY),
        ("include { max_level: -3 }", {"level": -3}, BOTH),
        ('include { phase: TEST } include { min_level: 2 stage: "a" }', {"level": 2, "stages": ("a",)}, BOTH),
        ('include { phase: TEST } include { min_level: 2 stage: "a" }', {"level": 2}, ONLY),
        ('exclude { phase: TEST } exclude { stage: "a" }', {"stages": ("a",)}, ONLY),
        ('include { stage: "" }', {"stages": ("",)}, ONLY),
    ],
)
def test_rules_keep_and_drop_layers(rules, state, expected):
    assert names_kept(rules, **state) == expected


def test_include_and_exclude_together_are_refused():
    with pytest.raises(NetError, match="'ruled' gives both include and exclude"):
        names_kept("include { phase: TRAIN } exclude { phase: TEST }")


@pytest.mark.parametrize(("level", "expected"), [(None, 2), (0, 0), (3, 3)])
def test_a_level_that_is_given_replaces_that_of_the_net(level, expected):
    base = NetState(phase=TEST, level=2, stage=["a"])
    state = graph.make_state(TRAIN, level, ["", "b"], base)
    assert (state.phase, state.level, list(state.stage)) == (TRAIN, expected, ["a", "b"])


def test_the_layers_of_a_net_are_copied_without_their_weights():
    before = specs(
        'layer { name: "a" type: "Silence" param { lr_mult: 2 } include { phase: TRAIN } blobs { data: 1 } }'
    )
    (after,) = graph.insert_splits(before)
    assert list(after.blobs) == list(before[0].param.blobs) and not after.param.blobs
    after.param.blobs.extend(after.blobs)
    assert after.param == before[0].param


def with_splits(text: str) -> list[tuple[str, list[str], list[str]]]:
    return [
        (spec.param.name, list(spec.param.bottom), list(spec.param.top)) for spec in graph.insert_splits(specs(text))
    ]


def test_blob_with_one_reader_gets_no_split():
    text = """
    layer { name: "d" type: "Input" top: "x" }
    layer { name: "a" type: "Sigmoid" bottom: "x" top: "y" }
    layer { name: "b" type: "Sigmoid" bottom: "y" top: "z" }"""
    assert [name for name, _, _ in with_splits(text)] == ["d", "a", "b"]


def test_two_readers_get_a_split_with_caffes_names():
    text = """
    layer { name: "d" type: "Input" top: "x" }
    layer { name: "a" type: "Sigmoid" bottom: "x" top: "y" }
    layer { name: "b" type: "TanH" bottom: "x" top: "z" }"""
    assert with_splits(text) == [
        ("d", [], ["x"]),
        ("x_d_0_split", ["x"], ["x_d_0_split_0", "x_d_0_split_1"]),
        ("a", ["x_d_0_split_0"], ["y"]),
        ("b", ["x_d_0_split_1"], ["z"]),
    ]


def test_second_top_is_numbered_in_the_splits_name():
    text = """
    layer { name: "d" type: "Input" top: "x" top: "l" }
    layer { name: "a" type: "EuclideanLoss" bottom: "x" bottom: "l" top: "e" }
    layer { name: "b" type: "Accuracy" bottom: "x" bottom: "l" top: "f" }"""
    assert [name for name, _, _ in with_splits(text)] == ["d", "x_d_0_split", "l_d_1_split", "a", "b"]


def test_in_place_layer_is_the_source_for_later_readers():
    text = """
    layer { name: "d" type: "Input" top: "x" }
    layer { name: "r" type: "ReLU" bottom: "x" top: "x" }
    layer { name: "a" type: "Sigmoid" bottom: "x" top: "y" }
    layer { name: "b" type: "TanH" bottom: "x" top: "z" }"""
    assert with_splits(text) == [
        ("d", [], ["x"]),
        ("r", ["x"], ["x"]),
        ("x_r_0_split", ["x"], ["x_r_0_split_0", "x_r_0_split_1"]),
        ("a", ["x_r_0_split_0"], ["y"]),
        ("b", ["x_r_0_split_1"], ["z"]),
    ]


def test_split_behind_a_loss_takes_the_weight_and_serves_readers_from_output_one():
    text = """
    layer { name: "d" type: "Input" top: "x" top: "y" }
    layer { name: "e" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "loss" loss_weight: 3 }
    layer { name: "p" type: "Power" bottom: "loss" top: "half" }"""
    split = graph.insert_splits(specs(text))
    assert [spec.param.name for spec in split] == ["d", "e", "loss_e_0_split", "p"]
    assert list(split[1].param.loss_weight) == [0]
    assert list(split[2].param.loss_weight) == [3, 0]
    assert list(split[3].param.bottom) == ["loss_e_0_split_1"]


def test_split_behind_a_loss_keeps_a_weight_that_is_not_written_out():
    text = """
    layer { name: "d" type: "Input" top: "x" top: "y" }
    layer { name: "e" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "loss" }
    layer { name: "s" type: "Silence" bottom: "loss" }"""
    split = graph.insert_splits(specs(text))
    assert [spec.param.name for spec in split] == ["d", "e", "loss_e_0_split", "s"]
    assert list(split[2].param.loss_weight) == [1, 0]


def test_unknown_bottom_names_layer_index_and_nearest_blob():
    with pytest.raises(NetError) as error:
        with_splits("""
        layer { name: "d" type: "Input" top: "fc7" }
        layer { name: "loss" type: "Sigmoid" bottom: "fc8" top: "y" }""")
    assert "Unknown bottom blob 'fc8' (layer 'loss', bottom 0)" in str(error.value)
    assert "Did you mean 'fc7'?" in str(error.value)


def test_an_unknown_bottom_names_the_layers_that_make_it_in_another_state():
    net = """
    layer { name: "r" type: "ReLU" bottom: "data" top: "data" include { stage: "deploy" } }
    layer { name: "t" type: "Data" top: "data" include { stage: "train" } }
    layer { name: "v" type: "Data" top: "data" include { stage: "val" } }
    layer { name: "d" type: "Data" top: "data_too" }
    layer { name: "loss" type: "Sigmoid" bottom: "data" top: "y" }"""
    with pytest.raises(NetError) as error:
        graph.layers_that_run(specs(net), graph.make_state(TRAIN))
    left_out = "Rules leave out what makes it, as layer 't', in phase TRAIN, level 0, no stages"
    assert error.value.hint == f"{left_out}: choose another phase, level or stage."
    with pytest.raises(NetError, match="phase TEST, level 2, stages a, b"):
        graph.layers_that_run(specs(net), graph.make_state(TEST, 2, ("a", "b")))
    kept = graph.layers_that_run(specs(net), graph.make_state(TEST, stages=("val",)))
    assert [spec.param.name for spec in kept] == ["v", "d", "loss"]


def test_a_net_that_has_its_splits_gets_no_more():
    text = """
    layer { name: "d" type: "Input" top: "x" top: "l" }
    layer { name: "r" type: "ReLU" bottom: "x" top: "x" }
    layer { name: "a" type: "EuclideanLoss" bottom: "x" bottom: "l" top: "e" loss_weight: 2 }
    layer { name: "b" type: "EuclideanLoss" bottom: "x" bottom: "l" top: "f" }
    layer { name: "c" type: "Power" bottom: "e" top: "g" }"""
    once = graph.insert_splits(specs(text))
    assert [spec.param.type for spec in once].count("Split") == 3
    assert [spec.param for spec in graph.insert_splits(once)] == [spec.param for spec in once]


def test_a_loss_weight_alone_makes_no_split():
    text = """
    layer { name: "d" type: "Input" top: "x" top: "l" }
    layer { name: "a" type: "EuclideanLoss" bottom: "x" bottom: "l" top: "e" loss_weight: 2 }"""
    assert [name for name, _, _ in with_splits(text)] == ["d", "a"]


def test_alexnet_trains_without_a_split():
    net = read_net(MODELS / "alexnet" / "train_val.prototxt")
    kept = graph.filter_layers([graph.LayerSpec(layer) for layer in net.layer], graph.make_state(TRAIN))
    assert len(kept) > 20
    assert [spec.param for spec in graph.insert_splits(kept)] == [spec.param for spec in kept]
