"""caffe.Net in a state: the layers that its phase, level and stages include."""

import pytest

import mgcaffe.pycaffe as caffe
from tests.support.pycaffe_nets import net

LEVELS = """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }
layer { name: "NoLevel" type: "InnerProduct" bottom: "data" top: "NoLevel" inner_product_param { num_output: 1 } }
layer { name: "Level0Only" type: "InnerProduct" bottom: "data" top: "Level0Only"
  include { min_level: 0 max_level: 0 } inner_product_param { num_output: 1 } }
layer { name: "Level1Only" type: "InnerProduct" bottom: "data" top: "Level1Only"
  include { min_level: 1 max_level: 1 } inner_product_param { num_output: 1 } }
layer { name: "Level>=0" type: "InnerProduct" bottom: "data" top: "Level>=0"
  include { min_level: 0 } inner_product_param { num_output: 1 } }
layer { name: "Level>=1" type: "InnerProduct" bottom: "data" top: "Level>=1"
  include { min_level: 1 } inner_product_param { num_output: 1 } }
"""
STAGES = """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }
layer { name: "A" type: "InnerProduct" bottom: "data" top: "A" include { stage: "A" }
  inner_product_param { num_output: 1 } }
layer { name: "B" type: "InnerProduct" bottom: "data" top: "B" include { stage: "B" }
  inner_product_param { num_output: 1 } }
layer { name: "AorB" type: "InnerProduct" bottom: "data" top: "AorB" include { stage: "A" } include { stage: "B" }
  inner_product_param { num_output: 1 } }
layer { name: "AandB" type: "InnerProduct" bottom: "data" top: "AandB" include { stage: "A" stage: "B" }
  inner_product_param { num_output: 1 } }
"""
EVERYTHING = """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }
layer { name: "TrainA1" type: "InnerProduct" bottom: "data" top: "TrainA1"
  include { phase: TRAIN min_level: 1 stage: "A" } inner_product_param { num_output: 1 } }
layer { name: "TestB" type: "InnerProduct" bottom: "data" top: "TestB"
  include { phase: TEST not_stage: "A" stage: "B" } inner_product_param { num_output: 1 } }
"""


def layers_of(made):
    return [name for name in made.layer_dict if name != "data" and "split" not in name]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (None, ["NoLevel", "Level0Only", "Level>=0"]),
        (0, ["NoLevel", "Level0Only", "Level>=0"]),
        (1, ["NoLevel", "Level1Only", "Level>=0", "Level>=1"]),
    ],
)
def test_level(tmp_path, level, expected):
    options = {} if level is None else {"level": level}
    assert layers_of(net(tmp_path, LEVELS, caffe.TEST, **options)) == expected


@pytest.mark.parametrize(
    ("stages", "expected"),
    [(None, []), (["A"], ["A", "AorB"]), (["B"], ["B", "AorB"]), (["A", "B"], ["A", "B", "AorB", "AandB"])],
)
def test_stages(tmp_path, stages, expected):
    assert layers_of(net(tmp_path, STAGES, caffe.TEST, stages=stages)) == expected


@pytest.mark.parametrize(
    ("phase", "level", "stages", "expected"),
    [
        (caffe.TRAIN, 1, ["A"], ["TrainA1"]),
        (caffe.TRAIN, 0, ["A"], []),
        (caffe.TEST, 0, ["B"], ["TestB"]),
        (caffe.TEST, 1, ["A", "B"], []),
    ],
)
def test_phase_level_and_stages_together(tmp_path, phase, level, stages, expected):
    assert layers_of(net(tmp_path, EVERYTHING, phase, level=level, stages=stages)) == expected
