import subprocess
import sys
from pathlib import Path

import pytest

import mgcaffe.engine
from mgcaffe.engine import registry
from mgcaffe.engine.layer import Layer, LayerContext
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, read_net_source

# What Caffe's own example nets are made of.
EXAMPLES_NEED = {
    "Accuracy",
    "BatchNorm",
    "Concat",
    "ContrastiveLoss",
    "Convolution",
    "Data",
    "Dropout",
    "Eltwise",
    "EuclideanLoss",
    "Flatten",
    "HDF5Data",
    "ImageData",
    "InnerProduct",
    "Input",
    "LRN",
    "Pooling",
    "Power",
    "ReLU",
    "Reshape",
    "Scale",
    "Sigmoid",
    "SigmoidCrossEntropyLoss",
    "Silence",
    "Slice",
    "Softmax",
    "SoftmaxWithLoss",
    "Split",
}


@pytest.fixture
def no_trace(monkeypatch):
    """Lets a test register types that are gone after it."""
    registry.layer_types()
    monkeypatch.setattr(registry, "_TYPES", dict(registry._TYPES))


def test_the_types_are_there_in_alphabetical_order():
    types = registry.layer_types()
    assert list(types) == sorted(types)
    assert set(types) >= EXAMPLES_NEED
    assert all(layer_class.type == name for name, layer_class in types.items())


def test_every_type_is_made_by_a_class_of_its_own():
    types = registry.layer_types()
    assert len(set(types.values())) == len(types)


@pytest.mark.parametrize("name", sorted(EXAMPLES_NEED))
def test_a_type_is_created_from_its_message(name):
    layer = registry.create(LayerParameter(name="l", type=name), LayerContext())
    assert (type(layer), layer.type, layer.name) == (registry.layer_types()[name], name, "l")


def test_registering_makes_a_class_answer_to_a_name(no_trace):
    @registry.register("Mine")
    class Mine(Layer):
        pass

    assert isinstance(registry.create(LayerParameter(name="l", type="Mine"), LayerContext()), Mine)


def test_a_name_cannot_be_registered_twice(no_trace):
    class Other(Layer):
        pass

    with pytest.raises(ValueError, match="'ReLU' is registered twice"):
        registry.register("ReLU")(Other)
    assert registry.layer_types()["ReLU"] is not Other


def test_registering_the_same_class_again_changes_nothing():
    relu = registry.layer_types()["ReLU"]
    assert registry.register("ReLU")(relu) is relu


def test_an_unknown_type_names_the_place_the_nearest_type_and_all(tmp_path):
    path: Path = tmp_path / "net.prototxt"
    path.write_text('layer {\n  name: "conv1"\n  type: "Convolutoin"\n}\n')
    source = read_net_source(path)
    with pytest.raises(NetError) as caught:
        registry.create(source.param.layer[0], LayerContext(), source.layers[0])
    message = str(caught.value)
    assert message.startswith(f"{path}:3:")
    assert "unknown layer type 'Convolutoin' (layer 'conv1'). Did you mean 'Convolution'?" in message
    assert all(name in message for name in registry.layer_types())


def test_nothing_like_it_leaves_out_the_guess():
    with pytest.raises(NetError) as caught:
        registry.create(LayerParameter(name="l", type="qqq"), LayerContext())
    assert "Did you mean" not in str(caught.value)


def test_importing_the_package_loads_neither_torch_nor_layers():
    code = "import sys, mgcaffe.engine; print('torch' in sys.modules, 'mgcaffe.engine.registry' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_the_package_offers_its_names_lazily():
    assert mgcaffe.engine.register is registry.register
    assert all(hasattr(mgcaffe.engine, name) for name in mgcaffe.engine.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mgcaffe.engine.Nothing
