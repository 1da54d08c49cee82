"""Both sides of a proof, and what it says of them."""

import json

import numpy as np
import pytest

from mgcaffe.engine.weights.saved_layers import SavedLayer, saved_layers
from mgcaffe.errors import DataError, EngineError, UsageError
from mgcaffe.prototxt.files import parse_net
from mgcaffe.tools.convert.caffe_side import CaffeSide, value_names
from mgcaffe.tools.convert.model import Model, read_model
from mgcaffe.tools.convert.proof import Difference, compare, document, seeded_inputs, table, write_json

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "twice" type: "Eltwise" bottom: "ip" bottom: "ip" top: "twice" }
"""


@pytest.fixture
def model():
    return Model(parse_net(NET))


def test_values_that_are_written_over_in_place_have_names_of_their_own(model):
    net = model.build(seed=1)
    names = dict(zip([layer.name for layer in net.layers], value_names(net), strict=True))
    assert names["ip"] == ["ip@ip"] and names["relu"] == ["ip"] and names["twice"] == ["twice"]


def test_a_net_runs_layer_by_layer(model):
    side = CaffeSide(model.build(seed=1))
    inputs = seeded_inputs(side.inputs)
    values = side.run(inputs)
    assert side.inputs == {"data": (2, 3)}
    np.testing.assert_array_equal(values["ip"], np.maximum(values["ip@ip"], 0))
    np.testing.assert_array_equal(values["twice"], 2 * values["ip"])
    assert (values["ip@ip"] < 0).any() and "data" not in values
    other = side.run({"data": np.ones((5, 3), np.float32)})
    assert other["twice"].shape == (5, 4)


def test_seeded_inputs_are_the_same_every_time():
    one, two = seeded_inputs({"b": (2,), "a": (3,)}), seeded_inputs({"a": (3,), "b": (2,)})
    np.testing.assert_array_equal(one["a"], two["a"])
    assert not np.array_equal(seeded_inputs({"a": (3,)}, seed=1)["a"], one["a"])


def test_weights_can_be_those_of_another_message(model):
    made = Model(model.source, saved_layers(model.build(seed=1).to_proto()), {"ip": "fc"})
    inputs = seeded_inputs({"data": (2, 3)})
    ours, theirs = CaffeSide(model.build(seed=1)).run(inputs), CaffeSide(made.build(seed=2)).run(inputs)
    assert [each.largest_absolute for each in compare(ours, theirs, {name: name for name in ours})] == [0.0] * len(ours)


def test_a_net_that_cannot_be_fed_is_refused(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 1 } } }')
    with pytest.raises(UsageError, match=r"has no Input layer\n  give the deploy net; engine edit .* --deploy"):
        read_model(path).build()


def test_weights_of_another_net_are_refused(model, tmp_path):
    model.weights = [SavedLayer("other", {})]
    with pytest.raises(DataError, match="no layer of"):
        model.build()


def test_differences_are_relative_to_the_largest_value_and_the_worst_comes_first():
    ours = {"a": np.array([1.0, -4.0]), "b": np.array([0.0, 0.0]), "c": np.array([np.nan, 2.0, np.inf])}
    theirs = {"x": np.array([1.0, -3.0]), "b": np.array([0.0, 0.0]), "c": np.array([np.nan, 2.0, np.inf])}
    found = compare(ours, theirs, {"a": "x", "b": "b", "c": "c", "only": "here"})
    assert found == [Difference("a", 1.0, 0.25), Difference("b", 0.0, 0.0), Difference("c", 0.0, 0.0)]
    assert table(found).splitlines()[2].split() == ["a", "1.00e+00", "2.50e-01"]


@pytest.mark.parametrize("other", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_on_one_side_alone_is_infinitely_far_off(other):
    (found,) = compare({"a": np.array([1.0])}, {"a": np.array([other])}, {"a": "a"})
    assert found.largest_relative == np.inf


@pytest.mark.parametrize("place", [0, 5, 8])
def test_values_in_parts_are_compared_to_the_last(monkeypatch, place):
    monkeypatch.setattr("mgcaffe.tools.convert.proof._CHUNK", 4)
    values = np.full((3, 3), 2.0)
    other = values.copy()
    other.flat[place] = 4
    for ours, theirs in ((values, other), (other, values)):
        assert compare({"a": ours}, {"a": theirs}, {"a": "a"}) == [Difference("a", 2.0, 0.5)]


def test_shapes_that_differ_and_nothing_in_common_are_refused():
    with pytest.raises(DataError, match=r"blob 'a' has shape \(1,\), and 'x' on the other side \(2,\)"):
        compare({"a": np.zeros(1)}, {"x": np.zeros(2)}, {"a": "x"})
    with pytest.raises(DataError, match="no blob in common"):
        compare({"a": np.zeros(1)}, {"x": np.zeros(2)}, {"a": "b"})


def test_the_figures_are_written_as_json(tmp_path):
    write_json(document([Difference("a", 1.0, 0.25), Difference("b", 0.0, 0.0)]), tmp_path / "proof.json")
    assert json.loads((tmp_path / "proof.json").read_text()) == {
        "largest_relative": 0.25,
        "blobs": [
            {"name": "a", "largest_absolute": 1.0, "largest_relative": 0.25},
            {"name": "b", "largest_absolute": 0.0, "largest_relative": 0.0},
        ],
    }
    with pytest.raises(EngineError, match="cannot write"):
        write_json(document([Difference("a", 0.0, 0.0)]), tmp_path / "none" / "proof.json")
