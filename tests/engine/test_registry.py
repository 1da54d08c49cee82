import subprocess
import sys
from pathlib import Path

import pytest

import mgcaffe.engine
from mgcaffe.engine import registry
from mgcaffe.engine.checks import fork_fields
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, read_net_source

# All that BVLC's Caffe registers.
CAFFES_TYPES = """
AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop Data Deconvolution
Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data HDF5Output HingeLoss Im2col ImageData
InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN MemoryData MultinomialLogisticLoss PReLU Parameter Pooling
Power Python RNN ReLU Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax SoftmaxWithLoss
Split Swish TanH Threshold Tile WindowData
""".split()
# What users of its forks ask for first.
FORKS_TYPES = """
Axpy BN ConvolutionDepthwise DepthwiseConvolution Interp Normalize Permute ROIPooling ReLU6 ShuffleChannel SmoothL1Loss
""".split()
# What models of other frameworks need besides.
OWN_TYPES = [
    "AUC",
    "CriteoData",
    "DotInteraction",
    "EmbeddingBag",
    "GELU",
    "HardSigmoid",
    "HardSwish",
    "LayerNorm",
    "MatMul",
    "NormalizedEntropy",
]


@pytest.fixture
def no_trace(monkeypatch):
    """Lets a test register types that are gone after it."""
    registry.layer_types()
    monkeypatch.setattr(registry, "_TYPES", dict(registry._TYPES))


def test_the_types_are_there_in_alphabetical_order():
    types = registry.layer_types()
    assert list(types) == sorted(types)
    assert len(CAFFES_TYPES) == 61
    assert set(types) >= {*CAFFES_TYPES, *FORKS_TYPES, *OWN_TYPES}
    assert all(layer_class.type == name for name, layer_class in types.items())


def test_every_type_is_made_by_a_class_of_its_own():
    types = registry.layer_types()
    assert len(set(types.values())) == len(types)


@pytest.mark.parametrize("name", [*CAFFES_TYPES, *FORKS_TYPES])
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


@pytest.mark.parametrize("kind", ["qqq", "LiftedLoss", "PairedData"])
def test_nothing_like_it_leaves_out_the_guess(kind):
    with pytest.raises(NetError) as caught:
        registry.create(LayerParameter(name="l", type=kind), LayerContext())
    assert "Did you mean" not in str(caught.value)
    assert caught.value.hint.startswith("what only a fork of Caffe has can be written as a Python layer; known types:")


def test_importing_the_package_loads_neither_torch_nor_layers():
    code = "import sys, mgcaffe.engine; print('torch' in sys.modules, 'mgcaffe.engine.registry' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_the_package_offers_its_names_lazily():
    assert mgcaffe.engine.register is registry.register
    assert all(hasattr(mgcaffe.engine, name) for name in mgcaffe.engine.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mgcaffe.engine.Nothing


@pytest.mark.parametrize(
    ("kind", "fork"),
    [
        ("ImageLabelmapData", "the HED fork"),
        ("DataHeatmap", "forks for poses"),
        ("Lstm", "forks for sequences"),
        ("PriorBox", "the SSD fork"),
        ("DetectionOutput", "the SSD fork"),
        ("MultiBoxLoss", "the SSD fork"),
        ("AnnotatedData", "the SSD fork"),
        ("L1Loss", "NVIDIA's fork"),
        ("PSROIPooling", "Intel's fork"),
        ("Upsample", "the SegNet fork"),
        ("DataAugmentation", "the FlowNet fork"),
        ("MarginInnerProduct", "forks for face recognition"),
        ("Normalization", "forks for face recognition"),
        ("CPMData", "forks for poses"),
        ("Pooling3D", "forks for video"),
    ],
)
def test_a_layer_of_a_fork_is_refused_by_name(kind, fork, tmp_path):
    file = tmp_path / "net.prototxt"
    file.write_text(f'layer {{ name: "x" type: "Silence" }}\nlayer {{\n  name: "l" type: "{kind}" }}')
    source = read_net_source(file)
    with pytest.raises(NetError, match=f"^{file}:3:13: {kind}: a layer of {fork}, not supported .layer 'l'"):
        registry.create(source.param.layer[1], LayerContext(), source.layers[1])


def test_no_layer_that_is_supported_is_said_to_be_a_forks():
    assert not set(fork_fields.LAYER_FORKS) & set(registry.layer_types())


def test_every_type_of_caffe_is_there():
    caffes = """
        AbsVal Accuracy ArgMax BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop
        Data Deconvolution Dropout DummyData ELU Eltwise Embed EuclideanLoss Exp Filter Flatten HDF5Data
        HDF5Output HingeLoss Im2col ImageData InfogainLoss InnerProduct Input LRN LSTM LSTMUnit Log MVN
        MemoryData MultinomialLogisticLoss PReLU Parameter Pooling Power Python RNN ReLU Reduction Reshape SPP
        Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax SoftmaxWithLoss Split Swish TanH Threshold
        Tile WindowData
    """.split()
    assert len(caffes) == 61
    assert set(registry.layer_types()) >= set(caffes)
    for name in caffes:
        layer = registry.create(LayerParameter(name="l", type=name), LayerContext())
        assert (layer.type, layer.name) == (name, "l")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("convolution", "Convolution"),
        ("Convolutoin", "Convolution"),
        ("INNER_PRODUCT", "InnerProduct"),
        ("Relu", "ReLU"),
    ],
)
def test_an_unknown_type_is_reported_with_the_nearest_known_one_in_whatever_case(written, meant):
    with pytest.raises(NetError, match=f"Did you mean '{meant}'"):
        registry.create(LayerParameter(name="l", type=written), LayerContext())
