"""Fields that nothing reads are warned about, and those that would change the result refused."""

import csv

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto

from mgcaffe import prototxt
from mgcaffe.engine import registry
from mgcaffe.engine.checks import unused_fields
from mgcaffe.engine.checks.unused_fields import _belongs
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.net import Net
from mgcaffe.errors import EngineError, NetError
from mgcaffe.prototxt import LayerParameter
from tests.support.layerkit import make_layer
from tests.support.netkit import inputs, make_net
from tests.support.paths import ROOT

RELU = 'layer {{ name: "r" type: "ReLU" bottom: "x" top: "y" {extra} }}\n'


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ("dropout_param { dropout_ratio: 0.3 }", "dropout_param"),
        ("convolution_param { kernel_size: 3 }", "convolution_param"),
    ],
)
def test_fields_of_another_type_are_warned_about(extra, field, caplog):
    make_net(inputs(x=(2, 3)) + RELU.format(extra=extra))
    assert [record.message for record in caplog.records] == [
        f"{field} has no effect on a layer of type ReLU (layer 'r')"
    ]


def test_the_types_own_fields_are_no_news(caplog):
    make_net(inputs(x=(2, 3)) + RELU.format(extra="relu_param { negative_slope: 0.1 } phase: TRAIN"))
    assert not caplog.records


@pytest.mark.parametrize("kind", ["ImageData", "WindowData", "HDF5Data"])
def test_what_layers_with_a_message_of_their_own_do_not_read_of_data_param_is_warned_about(kind, caplog):
    layer = LayerParameter(name="d", type=kind)
    layer.data_param.source, layer.data_param.batch_size, layer.data_param.prefetch = "list.txt", 4, 2
    unused_fields.check_layer(layer)
    assert [record.getMessage() for record in caplog.records] == [
        f"data_param.{field} has no effect on a layer of type {kind} (layer 'd')" for field in ("source", "batch_size")
    ]


def test_fields_of_forks_for_the_whole_net_are_warned_about(caplog):
    make_net("default_forward_type: FLOAT16 global_grad_scale: 128\n" + inputs(x=(2, 3)))
    assert "default_forward_type of net '' has no effect here" in caplog.text
    assert "global_grad_scale of net '' has no effect here" in caplog.text


@pytest.mark.parametrize("text", ["bn_stats_batch_size: 8\n", ""])
def test_what_would_change_the_result_is_refused(text):
    extra = "" if text else "quantization_param {}"
    field = "bn_stats_batch_size" if text else "quantization_param"
    with pytest.raises(NetError, match=f"{field} is not supported"):
        make_net(text + inputs(x=(2, 3)) + RELU.format(extra=extra))


def test_every_parameter_message_of_caffe_belongs_to_some_type():
    names = {field.name for field in LayerParameter.DESCRIPTOR.fields if field.name.endswith("_param")}
    unclaimed = {name for name in names if not any(_belongs(name, kind) for kind in registry.layer_types())}
    assert not unclaimed & {"convolution_param", "pooling_param", "lrn_param", "hdf5_data_param", "tanh_param"}
    assert not unclaimed & {"norm_param", "permute_param", "bn_param", "interp_param", "smooth_l1_loss_param"}


@pytest.mark.parametrize("extra", ["forward_type: FLOAT16", "relu_param { engine: CUDNN }", 'engine: "MKLDNN"'])
def test_what_only_says_how_to_compute_is_reported_once(extra, caplog):
    layers = [RELU.format(extra=extra).replace('"r"', f'"r{n}"').replace('"y"', f'"y{n}"') for n in range(3)]
    make_net(inputs(x=(2, 3)) + "".join(layers))
    make_net(inputs(x=(2, 3)) + layers[0])
    (record,) = caplog.records
    field = extra.replace("relu_param { ", "").split(":")[0]
    assert record.message.startswith(f"{field} has no effect on a layer of type ReLU (layer 'r0')")


@pytest.mark.parametrize("engine", ["LIBDNN", "INTEL_SPATIAL", "SPATIAL", "FFT", "LOOP", "NNPACK", "MKLDNN"])
def test_engines_of_other_caffes_do_nothing_either(engine, caplog):
    fields = f"convolution_param {{ num_output: 1 kernel_size: 1 engine: {engine} }}"
    make_net(inputs(x=(2, 3, 4, 4)) + RELU.format(extra=fields).replace("ReLU", "Convolution"))
    (record,) = caplog.records
    assert record.message.startswith("engine has no effect on a layer of type Convolution (layer 'r')")


def test_the_default_of_such_a_field_is_no_news(caplog):
    make_net(inputs(x=(2, 3)) + RELU.format(extra="relu_param { engine: DEFAULT }"))
    assert not caplog.records


def test_the_place_is_the_fields(tmp_path, caplog):
    file = tmp_path / "net.prototxt"
    file.write_text(inputs(x=(2, 3)) + RELU.format(extra="\n relu_param {\n  engine: CAFFE }"))
    Net.from_file(file)
    assert caplog.messages[0].startswith(f"{file}:4:3: engine has no effect")


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ("relu_param {\n negative_slope: nan }", "negative_slope"),
        ("loss_weight:\n nan", "loss_weight"),
        ("param { lr_mult: 1 }\n param { lr_mult: nan }", "lr_mult"),
        ("transform_param {\n scale: nan }", "scale"),
    ],
)
def test_a_field_that_is_no_number_is_refused(extra, field):
    with pytest.raises(NetError, match=f"{field} is NaN .layer 'r', type ReLU"):
        make_net(inputs(x=(2, 3)) + RELU.format(extra=extra))


# -- no field of a fork is dropped without a warning ------------------------------------------------------------

FIELDS = ROOT / "tests" / "prototxt" / "data" / "schema_fields.csv"
CONV = "num_output: 2 kernel_size: 1 "
# use_weight_bias: false is what is computed; true is refused, see the layer's tests.
_HONOURED = {"scale_bias", "scale_filler", "bias_filler", "use_global_stats", "use_weight_bias"}
# By message: a type that reads it, where in the layer it stands, the fields around it, bottoms, and what is honoured.
READERS = {
    "BatchNormParameter": ("BatchNorm", "batch_norm_param", "", 1, _HONOURED),
    "ConcatParameter": ("Concat", "concat_param", "", 1, set()),
    "ConvolutionParameter": ("Convolution", "convolution_param", CONV, 1, set()),
    "DropoutParameter": ("Dropout", "dropout_param", "", 1, set()),
    "ELUParameter": ("ELU", "elu_param", "", 1, set()),
    "EltwiseParameter": ("Eltwise", "eltwise_param", "", 2, set()),
    "FillerParameter": ("Convolution", "convolution_param", f"{CONV} weight_filler {{ ? }}", 1, set()),
    "InnerProductParameter": ("InnerProduct", "inner_product_param", "num_output: 2 ", 1, set()),
    "LossParameter": ("SoftmaxWithLoss", "loss_param", "", 2, {"label_smoothing"}),
    "NormalizeParameter": ("Normalize", "norm_param", "", 1, None),
    "PermuteParameter": ("Permute", "permute_param", "", 1, None),
    "PoolingParameter": ("Pooling", "pooling_param", "kernel_size: 2 ", 1, {"torch_pooling"}),
    "ROIPoolingParameter": ("ROIPooling", "roi_pooling_param", "", 2, None),
    "ReLUParameter": ("ReLU", "relu_param", "", 1, set()),
    "ReshapeParameter": ("Reshape", "reshape_param", "", 1, set()),
    "SmoothL1LossParameter": ("SmoothL1Loss", "smooth_l1_loss_param", "", 2, None),
    "SplitParameter": ("Split", "split_param", "", 1, set()),
    "DataParameter": ("Data", "data_param", "batch_size: 1 ", 0, {"prefetch", "shuffle", "parser_threads"}),
    "ImageDataParameter": ("ImageData", "image_data_param", "batch_size: 1 ", 0, set()),
    "TransformationParameter": ("Data", "transform_param", "", 0, {"crop_h", "crop_w", "resize_param"}),
    "ResizeParameter": ("Data", "transform_param", "resize_param { height: 2 width: 2 ? }", 0, None),
    "LayerParameter": ("ReLU", "", "", 1, set()),
}
# Messages of layers that are refused by name, of records, of solvers and of weights.
ELSEWHERE = {
    *("LabelMapItem", "LabelMap", "Sampler", "SampleConstraint", "BatchSampler", "EmitConstraint", "NormalizedBBox"),
    *("Annotation", "AnnotationGroup", "AnnotatedDatum", "AnnotatedDataParameter", "DetectionEvaluateParameter"),
    *("NonMaximumSuppressionParameter", "SaveOutputParameter", "DetectionOutputParameter", "MultiBoxLossParameter"),
    *("PriorBoxParameter", "VideoDataParameter", "BlobProto", "Datum", "C2TensorProto", "C2TensorProtos"),
    *("DetectNetGroundTruthParameter", "DetectNetGroundTruthParameter.ClassMapping", "TRTParameter", "SolverState"),
    *("DetectNetAugmentationParameter", "SolverParameter", "MultiPhaseSolverParameter", "SolverBatchSizePair"),
    *("RegionLossParameter", "EvalDetectionParameter", "PSROIPoolingParameter", "BoxAnnotatorOHEMParameter"),
    *("ReorgParameter", "SpatialDropoutParameter", "NetParameter"),
    # Messages inside fields that are refused as such, or only say how to compute.
    *("SaltPepperParameter", "NoiseParameter", "DistortionParameter", "ExpansionParameter", "RandomResizeParameter"),
    *("RandomAspectRatioParameter", "CompileNetState", "MultinodeParameter", "MnModelParallelParameter"),
    *("MnParamGradCompressLayerTypeList", "MultinodeLayerParameter", "MnActivationParameter"),
    *("QuantizationParameter", "MnParamGradCompressParameter"),
}


def fork_fields() -> list[tuple[str, str]]:
    """Every field of a fork in a message that a layer of ours reads, and BVLC's own engine fields."""
    with FIELDS.open(newline="") as table:
        rows = {(row["message"], row["field"]): row["origin"] for row in csv.DictReader(table)}
    found = [key for key, origin in rows.items() if origin != "bvlc" or key[1] == "engine"]
    return sorted(key for key in found if key[0] in READERS)


def test_every_message_with_fields_of_forks_is_looked_at():
    with FIELDS.open(newline="") as table:
        messages = {row["message"] for row in csv.DictReader(table) if row["origin"] != "bvlc"}
    assert messages <= set(READERS) | ELSEWHERE


def another_value(message: str, name: str) -> str:
    """The field in prototxt, with a value that is not its default."""
    field = getattr(prototxt, message).DESCRIPTOR.fields_by_name[name]
    if field.type == field.TYPE_MESSAGE:
        inside = DescriptorProto()
        field.message_type.CopyToProto(inside)
        required = [inner.name for inner in inside.field if inner.label == inner.LABEL_REQUIRED]
        values = " ".join(another_value(field.message_type.name, inner) for inner in required)
        return f"{name} {{ {values} }}"
    if field.type == field.TYPE_ENUM:
        others = [value.name for value in field.enum_type.values if value.number != field.default_value]
        return f"{name}: {others[0]}"
    if field.type == field.TYPE_STRING:
        return f'{name}: "other"'
    if field.type == field.TYPE_BOOL:
        return f"{name}: {'false' if field.default_value else 'true'}"
    return f"{name}: {(field.default_value or 0) + 1}"


@pytest.mark.parametrize(("message", "field"), fork_fields())
def test_no_field_of_a_fork_is_dropped_in_silence(message, field, caplog):
    kind, path, around, bottoms, honoured = READERS[message]
    if honoured is None or field in honoured:
        return  # what it does is tested with its layer
    value = another_value(message, field)
    inside = around.replace("?", value) if "?" in around else around + value
    text = f'name: "l" type: "{kind}" top: "y" ' + " ".join(f'bottom: "x{n}"' for n in range(bottoms))
    text += f" {path} {{ {inside} }}" if path else f" {inside}"
    context = None
    if path == "transform_param":
        text += " data_param { batch_size: 1 }"
        context = LayerContext(input_shapes={"*": (3, 4, 4)})
    shapes = [(2, 3, 4, 4), (2, 1, 4, 4) if kind == "SoftmaxWithLoss" else (2, 3, 4, 4)][:bottoms]
    refusal = ""
    try:
        make_layer(text, shapes, context=context)
    except EngineError as error:
        refusal = str(error)
    assert field in refusal + caplog.text


@pytest.mark.parametrize("name", ["a{b}", "{0}", "{", "{}"])
def test_a_name_with_braces_is_only_a_name(name, caplog):
    layer = LayerParameter(name=name, type="ReLU", bottom=["x"], top=["y"])
    layer.relu_param.engine = 1
    layer.pooling_param.kernel_size = 2
    unused_fields.check_layer(layer)
    messages = [record.getMessage() for record in caplog.records]
    assert [text.split(" ")[0] for text in messages] == ["pooling_param", "engine"]
    assert all(f"(layer '{name}')" in text for text in messages)
