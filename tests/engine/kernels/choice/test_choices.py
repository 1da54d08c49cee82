"""Every candidate in turn, through the golden cases, the gradient checks, and layers in every format."""

import pytest
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.kernels import (
    convolution_data,
    convolution_forward,
    convolution_weight,
    linear_ways,
    onednn,
    pointwise,
    processor,
    winograd,
    winograd_tiles,
)
from mgcaffe.engine.kernels.choice.choices import RULES, Forced, Measured, Recorded
from mgcaffe.engine.kernels.precision import BF16, FLOAT32
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.golden import LAYERS, read_case
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

CONVOLUTION = (convolution_forward.FORWARD, convolution_data.BACKWARD_DATA, convolution_weight.BACKWARD_WEIGHT)
LINEAR = (linear_ways.FORWARD, linear_ways.BACKWARD_DATA, linear_ways.ADD_PRODUCT)
NAMES = sorted({name for operation in CONVOLUTION + LINEAR for name in operation.candidates})
EVERYWHERE = [(operation.name, name) for operation in CONVOLUTION + LINEAR for name in operation.candidates]
GOLDEN = """conv_1d conv_1x1_nobias conv_depthwise conv_dilation2 conv_group2 conv_k3 conv_k3_s2_p1 deconv_k4_s2_p1 ip
ip_axis_neg1 ip_nobias ip_transpose""".split()
LAYER = "name: 'l' bottom: 'x' top: 'y' type: '%s' %s_param { %s weight_filler { type: 'gaussian' } }"
CASES = {
    "plain": ("Convolution", "convolution", "num_output: 4 kernel_size: 3 pad: 1"),
    "stride": ("Convolution", "convolution", "num_output: 4 kernel_size: 2 kernel_size: 3 stride: 2 pad: 0 pad: 1"),
    "dilation": ("Convolution", "convolution", "num_output: 3 kernel_size: 2 dilation: 2 pad: 1 bias_term: false"),
    "depthwise": ("Convolution", "convolution", "num_output: 2 kernel_size: 4 kernel_size: 5 pad: 2 group: 2"),
    "phases": (
        "Convolution",
        "convolution",
        "num_output: 2 group: 2 kernel_size: 3 pad: 2 dilation: 2 dilation: 1",
    ),
    "pixel": ("Convolution", "convolution", "num_output: 3 kernel_size: 1"),
    "pixel_stride": ("Convolution", "convolution", "num_output: 3 kernel_size: 1 stride: 2"),
    "pixel_pad": ("Convolution", "convolution", "num_output: 3 kernel_size: 1 pad: 1"),
    "group": ("Convolution", "convolution", "num_output: 4 kernel_size: 3 group: 2"),
    "five_rows": ("Convolution", "convolution", "num_output: 4 kernel_size: 5 kernel_size: 3 pad: 2 pad: 1 group: 2"),
    "five_square": ("Convolution", "convolution", "num_output: 3 kernel_size: 5 pad: 2"),
    "wide_pad": ("Convolution", "convolution", "num_output: 3 kernel_size: 2 pad: 2"),
    "deconvolution": ("Deconvolution", "convolution", "num_output: 3 kernel_size: 3 stride: 2 pad: 1"),
    "product": ("InnerProduct", "inner_product", "num_output: 16"),
    "product_transpose": ("InnerProduct", "inner_product", "num_output: 5 transpose: true"),
}
SHAPE = (2, 2, 5, 6)


@pytest.fixture(scope="module")
def used():
    """What was forced in this file's tests, by operation and candidate."""
    return set()


@pytest.fixture(autouse=True)
def small_layers(monkeypatch):
    """Let `images` and `blocks` serve layers as small as those here."""
    monkeypatch.setattr(pointwise, "FEWEST_PIXELS", 1)
    monkeypatch.setattr(linear_ways, "BLOCK", 100)
    monkeypatch.setattr(linear_ways, "FEW_PIXELS", 1)


def make(case, dtype, choices, shape=SHAPE):
    """Return the layer of a case, whose parameters do not depend on its type."""
    context = LayerContext(dtype=dtype, choices=choices)
    layer, (top_shape,) = make_layer(LAYER % CASES[case], [shape], context=context)
    for number, parameter in enumerate(layer.parameters):
        parameter.data = random_input(parameter.shape, seed=10 + number).to(dtype)
    return layer, top_shape


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_cases_agree_with_caffe(case, used):
    data, _ = read_case(case)
    (param,) = (
        layer
        for layer in parse_text((LAYERS / case / "net.prototxt").read_text(), NetParameter).layer
        if layer.type != "Input"
    )
    bottom, top_diff = (torch.tensor(data[key]) for key in (f"in/{param.bottom[0]}", f"topdiff/{param.top[0]}"))
    layer = registry.create(param, LayerContext())
    layer.wants_bottom = [True]
    layer.setup([tuple(bottom.shape)])
    layer.reshape([tuple(bottom.shape)])
    for index, parameter in enumerate(layer.parameters):
        parameter.data = torch.tensor(data[f"param/{param.name}/{index}"]).reshape(parameter.shape)
        parameter.diff = torch.empty(parameter.shape)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x, dy = (
            each.contiguous(memory_format=memory_format) if each.dim() == 4 else each for each in (bottom, top_diff)
        )
        for name in NAMES:
            layer.context.choices = forced = Forced(name)
            y, dx, *diffs = results(layer, x, dy, passes=1)
            used.update((operation, name) for operation in forced.used)
            found = {f"out/{param.top[0]}": y, f"indiff/{param.bottom[0]}": dx}
            found |= {f"paramdiff/{param.name}/{index}": diff for index, diff in enumerate(diffs)}
            for key, values in found.items():
                expected = torch.tensor(data[key]).reshape(values.shape)
                assert torch.allclose(values, expected, rtol=2e-4, atol=2e-5), f"{key} by {name}, {memory_format}"


@pytest.mark.parametrize("case", CASES)
def test_candidates_agree_with_the_rules_in_every_layout(case, used):
    """In float32, against the rules in float64, whose gradients are checked against differences below."""
    layer, top_shape = make(case, torch.float64, RULES)
    expected = results(layer, random_input(SHAPE, seed=1), random_input(top_shape, seed=2))
    layer, _ = make(case, torch.float32, RULES)
    for layout in LAYOUTS:
        x, dy = random_input(SHAPE, layout, seed=1).float(), random_input(top_shape, layout, seed=2).float()
        for name in NAMES:
            layer.context.choices = forced = Forced(name)
            for one, other in zip(results(layer, x, dy), expected, strict=True):
                assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-4), f"by {name}, {layout}"
            used.update((operation, name) for operation in forced.used)


def results(layer, x, dy, passes=2):
    """Return the top and all gradients, those of parameters added up over the passes."""
    for parameter in layer.parameters:
        parameter.diff.fill_(float("nan"))
        parameter.fresh = True
    for _ in range(passes):
        (y,), (dx,) = forward_backward(layer, [x], [dy])
    return [y, dx, *(parameter.diff.clone() for parameter in layer.parameters)]


@pytest.mark.parametrize(
    "name",
    ["aten", "aten_converted", "product_mm", "product_exchanged_mm", "windows_mm", "folded_mm"]
    + ["row_windows", "across_mm", "positions", "mm"]
    + [size.name for size in winograd.SIZES]
    + [winograd_tiles.name(size) for size in winograd_tiles.SIZES],
)
def test_gradients_are_the_differences(name):
    """In float64, for all candidates that serve it."""
    forced = Forced(name)
    cases = ("plain", "group", "five_rows") if name.startswith("winograd") else ("stride", "pixel_stride")
    other = {"aten": CASES, "mm": ("product",), "winograd_tiles_f45": ("five_square",)}
    for case in other.get(name, cases):
        layer, _ = make(case, torch.float64, forced, (1, 2, 4, 3))
        layer.backward = with_channels_last(layer.backward)
        check_gradients(layer, [random_input((1, 2, 4, 3), "channels_last", seed=1)], tolerance=1e-6)
    assert forced.used


def with_channels_last(backward):
    """Return a backward pass that is given its gradients channels last, which some candidates need."""

    def converted(top_diffs, wanted):
        last = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in top_diffs]
        return backward(last, wanted)

    return converted


def test_the_candidate_for_sixteen_bits_rounds_what_float32_gives_once(used, monkeypatch):
    monkeypatch.setattr(processor, "multiplies_bf16", lambda: True)
    text = LAYER % ("DepthwiseConvolution", "convolution", "kernel_size: 3 pad: 1")
    found = {}
    for precision, choices in ((FLOAT32, RULES), (BF16, Forced("widened"))):
        layer, (top,) = make_layer(text, [(2, 4, 5, 6)], context=LayerContext(precision=precision, choices=choices))
        weight, x, dy = (
            random_input(shape, seed=seed).bfloat16().float()
            for seed, shape in enumerate((layer.parameters[0].shape, (2, 4, 5, 6), top))
        )
        layer.parameters[0].data = weight
        found[precision] = results(layer, x, dy)[1]
    used.update((operation, "widened") for operation in choices.used)
    torch.testing.assert_close(found[BF16].float(), found[FLOAT32], rtol=2.0**-8, atol=1e-6)


def test_every_candidate_was_used(used):
    """Of those that this PyTorch has: the tests above let none pass by."""
    if not onednn.AVAILABLE:
        pytest.skip("this PyTorch has no oneDNN operators")
    assert [each for each in EVERYWHERE if each not in used] == []


def test_recorded_choices_are_taken_where_they_serve():
    layer, top_shape = make("plain", torch.float64, RULES)
    x, dy = random_input(SHAPE, seed=1), random_input(top_shape, seed=2)
    records = {}

    class Noting(Recorded):
        def _find(self, operation, key, call):
            name = "positions" if "positions" in operation.candidates else "mm"
            records[operation.text(key)] = Measured(operation.by_rule(call).name, name, {})
            return super()._find(operation, key, call)

    layer.context.choices = Noting(records)
    first = results(layer, x, dy)
    assert {text.partition(":")[0] for text in records} == {operation.name for operation in CONVOLUTION}
    layer.context.choices = Forced("positions")
    assert all(torch.equal(*pair) for pair in zip(first, results(layer, x, dy), strict=True))
    layer.context.choices = RULES
    by_rule = results(layer, x, dy)
    # What this PyTorch lacks, or what serves no such tensor, is passed over.
    for name in ("no such candidate", "onednn", "flipped", "windows"):
        layer.context.choices = Recorded({text: Measured(each.rule, name, {}) for text, each in records.items()})
        assert all(torch.equal(*pair) for pair in zip(by_rule, results(layer, x, dy), strict=True))


def test_keys_say_what_is_computed():
    call = convolution_forward.Forward(
        torch.empty(2, 3, 8, 8, memory_format=torch.channels_last), torch.empty(4, 3, 3, 3), None,
        make("plain", torch.float32, RULES)[0].geometry, True,
    )  # fmt: skip
    operation = convolution_forward.FORWARD
    assert operation.text(operation.key(call)) == (
        "convolution forward: x 2x3x8x8, channels_last, filters 4x3x3x3, stride 1x1 pad 1x1 dilation 1x1, bias no, "
        "relu yes, float32, on cpu"
    )
