"""Products in 16 bits: operands rounded once, sums in float32, results rounded once, all else in float32.

Rounding to bfloat16 is off by at most u = 2^-8 of a number, to IEEE half precision by 2^-11, or by 2^-25 where that is
more. Where operands are numbers of 16 bits already, a product of K terms is so off by u |y| and what float32 sums lose,
at most K 2^-23 S with S the sum of |x| |w|; sums in 16 bits would lose K u S. Operands of any kind add u S for each of
the two, and u^2 S, below 3 u S in all.
"""

import pytest
import torch

from mgcaffe.engine.kernels import processor
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, Forced
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA
from mgcaffe.engine.kernels.convolution_forward import FORWARD
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT
from mgcaffe.engine.kernels.precision import (
    BF16,
    FLOAT32,
    FP16,
    TF32,
    Precision,
    is_slow,
    needs_float32,
    why_not,
    widened,
)
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from tests.support.layerkit import forward_backward, make_layer
from tests.support.netkit import inputs, make_net

UNIT = 2.0**-8
UNITS = {BF16: UNIT, FP16: 2.0**-11}
LEAST = {BF16: 0.0, FP16: 2.0**-25}
FILLER = "weight_filler { type: 'gaussian' std: 1 } bias_filler { type: 'gaussian' std: 1 }"
LAYERS = {
    "square": ("Convolution", f"convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 {FILLER} }}", (2, 16, 9, 9)),
    "pixels": ("Convolution", f"convolution_param {{ num_output: 24 kernel_size: 1 {FILLER} }}", (2, 160, 6, 6)),
    "steps": ("Convolution", f"convolution_param {{ num_output: 8 kernel_size: 4 stride: 3 {FILLER} }}", (2, 3, 9, 9)),
    "grey": ("Convolution", f"convolution_param {{ num_output: 8 kernel_size: 5 {FILLER} }}", (2, 1, 12, 12)),
    "groups": ("Convolution", f"convolution_param {{ num_output: 8 group: 4 kernel_size: 3 {FILLER} }}", (2, 8, 7, 7)),
    "depthwise": ("DepthwiseConvolution", f"convolution_param {{ kernel_size: 3 {FILLER} }}", (2, 16, 7, 7)),
    "depthwise steps": (
        "DepthwiseConvolution", f"convolution_param {{ kernel_size: 5 stride: 2 pad: 2 {FILLER} }}", (2, 16, 7, 7),
    ),
    "dilated depthwise": (
        "DepthwiseConvolution", f"convolution_param {{ kernel_size: 3 dilation: 2 pad: 2 {FILLER} }}", (1, 8, 5, 33),
    ),
    "one column": (
        "Convolution", f"convolution_param {{ num_output: 12 group: 4 kernel_size: 2 stride: 2 {FILLER} }}",
        (1, 12, 56, 3),
    ),
    "line": ("Convolution", f"convolution_param {{ num_output: 4 kernel_size: 3 {FILLER} }}", (2, 8, 20)),
    "point": ("Convolution", f"convolution_param {{ num_output: 4 {FILLER} }}", (40, 64)),
    "volume": ("Convolution", f"convolution_param {{ num_output: 4 kernel_size: 2 {FILLER} }}", (2, 4, 5, 5, 5)),
    "overhang": (
        "Convolution", f"convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 stride: 3 {FILLER} }}", (2, 9, 2, 2),
    ),
    "flat volume": (
        "Convolution", f"convolution_param {{ num_output: 16 kernel_size: 2 pad: 1 {FILLER} }}", (2, 16, 1, 3, 3),
    ),
    "grouped volume": (
        "Convolution", f"convolution_param {{ num_output: 16 group: 8 kernel_size: 3 pad: 1 {FILLER} }}",
        (2, 8, 1, 4, 14),
    ),
    "deconvolution": (
        "Deconvolution", f"convolution_param {{ num_output: 6 kernel_size: 4 stride: 2 {FILLER} }}", (2, 8, 6, 6),
    ),
    "product": ("InnerProduct", f"inner_product_param {{ num_output: 20 {FILLER} }}", (40, 600)),
    "transposed": ("InnerProduct", f"inner_product_param {{ num_output: 20 transpose: true {FILLER} }}", (40, 600)),
}  # fmt: skip
FORMATS = [torch.contiguous_format, torch.channels_last]


# A processor with fast instructions for products in bfloat16, and one without.
PROCESSORS = {"instructions": True, "no_instructions": False}


def set_processor(monkeypatch: pytest.MonkeyPatch, multiplies_bf16: bool) -> None:
    monkeypatch.setattr(processor, "multiplies_bf16", lambda: multiplies_bf16)


def drawn(shape, seed, *, narrow=True, memory_format=torch.contiguous_format):
    """Random numbers of float32, which 16 bits of both kinds hold too if `narrow`."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    values = values.bfloat16().half().float() if narrow else values
    return values.contiguous(memory_format=memory_format if len(shape) == 4 else torch.contiguous_format)


def pair(
    name: str, narrow: bool, choices: Choices = RULES, precision: Precision = BF16
) -> tuple[Layer, Layer, tuple[int, ...]]:
    """A layer in 16 bits and the same in float64, with the same parameters."""
    type_, fields, shape = LAYERS[name]
    text = f"name: 'l' type: '{type_}' bottom: 'x' top: 'y' {fields}"
    rounded, _ = make_layer(text, [shape], context=LayerContext(precision=precision, choices=choices))
    exact, _ = make_layer(text, [shape])
    for ours, theirs in zip(rounded.parameters, exact.parameters, strict=True):
        ours.data = ours.data.bfloat16().half().float() if narrow else ours.data
        theirs.data = ours.data.double()
    return rounded, exact, shape


def run(layer: Layer, x: torch.Tensor, dy: torch.Tensor) -> dict[str, torch.Tensor]:
    (y,), (dx,) = forward_backward(layer, [x], [dy])
    weight, bias = layer.parameters
    return {"y": y, "dx": dx, "dw": weight.diff, "db": bias.diff}


def absolute(layer: Layer) -> Layer:
    """Make the layer compute the sum of |x| |w|, given absolute values."""
    for parameter in layer.parameters:
        parameter.data = parameter.data.abs()
        parameter.diff = torch.zeros_like(parameter.data)
    return layer


@pytest.mark.parametrize("memory_format", FORMATS, ids=["ordinary", "channels_last"])
@pytest.mark.parametrize("narrow", [True, False], ids=["exact_operands", "rounded_operands"])
@pytest.mark.parametrize(
    ("precision", "has_instructions"),
    [(BF16, True), (BF16, False), (FP16, True)],
    ids=["bf16", "bf16_without_instructions", "fp16"],
)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_differs_from_float64_by_its_roundings_alone(
    name, precision, has_instructions, narrow, memory_format, monkeypatch
):
    if not has_instructions:  # else as this processor does it: without them PyTorch's own sums are of 16 bits in part
        set_processor(monkeypatch, PROCESSORS["no_instructions"])
    elif "avx512_bf16" in processor.flags() and not processor.ON_AVX2:  # also where they are slow
        set_processor(monkeypatch, PROCESSORS["instructions"])
    unit, type_ = UNITS[precision], precision.operands
    rounded, exact, shape = pair(name, narrow, precision=precision)
    top = exact.reshape([shape])[0]
    x = drawn(shape, 1, narrow=narrow, memory_format=memory_format)
    dy = drawn(top, 2, narrow=narrow, memory_format=memory_format)
    found, expected = run(rounded, x, dy), run(exact, x.double(), dy.double())
    products = expected["y"] - exact.parameters[1].data.view(-1, *[1] * (len(top) - 2))
    sums = run(absolute(exact), x.double().abs(), dy.double().abs())
    terms = max(x.numel(), dy.numel())
    for what, values in found.items():
        # A deconvolution's bias is added in float32 to its rounded product.
        is_wide = what in ("dw", "db") or (what == "y" and name == "deconvolution")
        assert values.dtype == (torch.float32 if is_wide else type_), what
        result = products if what == "y" and name == "deconvolution" else expected[what]
        bound = unit * result.abs() + LEAST[precision] + terms * 2.0**-23 * sums[what]
        if what == "db":
            bound = terms * 2.0**-23 * sums[what]
        elif not narrow:
            bound = bound + 3 * unit * sums[what] + 2 * terms * LEAST[precision]
        assert ((values.double() - expected[what]).abs() <= bound).all(), what
    # Products are not of float32 by mistake.
    assert (found["dw"].to(type_).float() == found["dw"]).all()


def test_gradients_are_added_up_in_float32():
    layer, _, shape = pair("square", True)
    x, dy = drawn(shape, 1), drawn((2, 8, 9, 9), 2)
    (weight, _) = layer.parameters
    forward_backward(layer, [x], [dy])
    once = weight.diff.clone()
    weight.diff.fill_(1 / 3)
    forward_backward(layer, [x], [dy])
    assert torch.equal(weight.diff, once + 1 / 3)


@pytest.mark.parametrize("type_", ["LSTM", "RNN"])
def test_recurrent_layers_round_their_products_alone(type_):
    """Each of three steps rounds products of sums S below 15: 3 u S, a slope of at most one, and the step before."""
    text = (
        f"name: 'l' type: '{type_}' bottom: 'x' bottom: 'cont' top: 'y' recurrent_param {{ num_output: 16 "
        "weight_filler { type: 'uniform' min: -0.3 max: 0.3 } }"
    )
    shapes = [(3, 4, 12), (3, 4)]
    rounded, _ = make_layer(text, shapes, context=LayerContext(precision=BF16))
    plain, _ = make_layer(text, shapes, dtype=torch.float32)
    x, cont, dy = drawn((3, 4, 12), 1, narrow=False), torch.ones(3, 4), drawn((3, 4, 16), 2, narrow=False)
    for ours, theirs in zip(rounded.parameters, plain.parameters, strict=True):
        theirs.data = ours.data.clone()
    results = []
    for layer in (rounded, plain):
        tops, diffs = forward_backward(layer, [x, cont], [dy.clone()])
        results.append([tops[0], diffs[0], *(each.diff for each in layer.parameters)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == torch.float32 or ours is results[0][1]
        error = float((ours.float() - theirs).abs().max() / theirs.abs().max())
        assert 1e-5 < error < 16 * UNIT


@pytest.mark.parametrize("operation", [FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT], ids=lambda each: each.name)
def test_every_candidate_that_serves_16_bits_adds_up_in_float32(operation):
    served = set()
    for name in operation.candidates:
        for layer in ("square", "pixels"):
            choices = Forced(name)
            rounded, exact, shape = pair(layer, True, choices)
            x = drawn(shape, 1, memory_format=torch.channels_last)
            dy = drawn(exact.reshape([shape])[0], 2, memory_format=torch.channels_last)
            found, expected = run(rounded, x, dy), run(exact, x.double(), dy.double())
            sums = run(absolute(exact), x.double().abs(), dy.double().abs())
            served |= {name} & {name for used in choices.used if used == operation.name}
            for what in ("y", "dx", "dw"):
                bound = UNIT * expected[what].abs() + x.numel() * 2.0**-23 * sums[what]
                assert ((found[what].double() - expected[what]).abs() <= bound).all(), (name, layer, what)
    assert "aten" in served
    if not needs_float32(torch.ones(1, dtype=torch.bfloat16)):
        assert not served & {"positions", "folded", "folded_mm"}


class Watched(Choices):
    """Takes what the rules say, and remembers the types of the tensors that operations are given."""

    def __init__(self):
        self.types = set()

    def run(self, operation, call):
        self.types |= {value.dtype for value in call if isinstance(value, torch.Tensor)}
        return super().run(operation, call)


@pytest.mark.parametrize("name", ["product", "transposed"])
def test_products_are_made_in_float32_where_the_processor_has_no_instructions_for_others(name, monkeypatch):
    results = []
    for multiplies_bf16, type_ in zip(PROCESSORS.values(), (torch.bfloat16, torch.float32), strict=True):
        set_processor(monkeypatch, multiplies_bf16)
        choices = Watched()
        layer, _, shape = pair(name, False, choices)
        results.append(run(layer, drawn(shape, 1, narrow=False), drawn(layer.reshape([shape])[0], 2, narrow=False)))
        assert choices.types == {type_}
    for what, ours in results[0].items():
        theirs = results[1][what]
        assert ours.dtype == theirs.dtype
        # Sums of the same operands in another order: rounded apart by one step at most, or by little near zero.
        error = (ours.float() - theirs.float()).abs()
        assert (error <= 2 * UNIT * theirs.float().abs() + 1e-5 * float(theirs.abs().max())).all(), what


def test_over_four_spatial_axes_products_stay_in_float32():
    text = "name: 'l' type: 'Convolution' bottom: 'x' top: 'y' convolution_param { num_output: 2 kernel_size: 2 }"
    layer, _ = make_layer(text, [(1, 2, 3, 3, 3, 3)], context=LayerContext(precision=BF16))
    assert layer.forward([drawn((1, 2, 3, 3, 3, 3), 1)])[0].dtype == torch.float32


def eltwise(*coefficients):
    bottoms = " ".join(f"bottom: 'x{number}'" for number in range(len(coefficients)))
    fields = " ".join(f"coeff: {each}" for each in coefficients)
    text = f"name: 'l' type: 'Eltwise' {bottoms} top: 'y' eltwise_param {{ {fields} }}"
    layer, _ = make_layer(text, [(2, 3, 4, 4)] * len(coefficients), context=LayerContext(precision=BF16))
    assert layer.takes_narrow
    return layer


def test_sums_of_two_blobs_of_16_bits_are_rounded_once_and_others_are_of_float32():
    a, b, c = (drawn((2, 3, 4, 4), seed).bfloat16() for seed in (1, 2, 3))
    for first, second in ((1, 1), (1, -1), (-1, 1)):
        exact = first * a.float() + second * b.float()
        assert torch.equal(eltwise(first, second).forward([a, b])[0], exact.bfloat16())
        assert torch.equal(eltwise(first, second).forward([a, b.float()])[0], exact)
    for first, second in ((0.3, 0.7), (1, 0.7), (0.3, 1)):
        exact = first * a.double() + second * b.double()
        y = eltwise(first, second).forward([a, b])[0]
        assert y.dtype == torch.float32
        torch.testing.assert_close(y.double(), exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(eltwise(1, 1, 1).forward([a, b, c])[0], a.float() + b.float() + c.float())


@pytest.mark.parametrize("may_overwrite", [True, False])
def test_gradients_of_a_blob_with_several_readers_are_rounded_once_at_most(may_overwrite):
    kinds = {"nn": torch.bfloat16, "nw": torch.float32, "wn": torch.float32, "nnn": torch.float32}
    for kind, expected in kinds.items():
        tops = " ".join(f"top: 't{number}'" for number in range(len(kind)))
        split, _ = make_layer(f"name: 'l' type: 'Split' bottom: 'x' {tops}", [(40,)])
        types = [torch.bfloat16 if each == "n" else torch.float32 for each in kind]
        diffs = [drawn((40,), seed).to(each) for seed, each in enumerate(types)]
        exact = sum(diff.float() for diff in diffs)
        split.may_overwrite_top_diff = [may_overwrite] * len(kind)
        before = [diff.clone() for diff in diffs]
        (total,) = split.backward(diffs, [True])
        assert total.dtype == expected
        assert torch.equal(total, exact.to(expected))
        assert may_overwrite or all(map(torch.equal, diffs, before))


def convolution(bottom, top, kernel):
    return (
        f"name: '{top}' type: 'Convolution' bottom: '{bottom}' top: '{top}' "
        f"convolution_param {{ num_output: 8 {kernel} {FILLER} }}"
    )


NET = inputs(x=(4, 8, 8, 8), label=(4,)) + "".join(
    f"layer {{ {text} }}\n"
    for text in (
        convolution("x", "c1", "kernel_size: 3 pad: 1"),
        "name: 'n1' type: 'BatchNorm' bottom: 'c1' top: 'c1'",
        "name: 's1' type: 'Scale' bottom: 'c1' top: 'c1' scale_param { bias_term: true }",
        "name: 'r1' type: 'ReLU' bottom: 'c1' top: 'c1'",
        convolution("c1", "c2", "kernel_size: 1"),
        "name: 'r2' type: 'ReLU' bottom: 'c2' top: 'c2'",
        "name: 'sum' type: 'Eltwise' bottom: 'c1' bottom: 'c2' top: 'sum'",
        "name: 'both' type: 'Concat' bottom: 'c2' bottom: 'sum' top: 'both'",
        "name: 'pool' type: 'Pooling' bottom: 'both' top: 'pool' pooling_param { kernel_size: 2 stride: 2 }",
        f"name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip' inner_product_param {{ num_output: 5 {FILLER} }}",
        "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


def gradients(**options):
    net = make_net(NET, dtype=torch.float32, **options)
    net.layers[0].forward([])[0].copy_(drawn((4, 8, 8, 8), 1))
    net.layers[1].forward([])[0].copy_(torch.tensor([0.0, 1, 2, 3]))
    for parameter in net.parameters:
        parameter.data.mul_(0.3)
    net.forward_backward()
    return net


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_a_net_in_bf16_is_close_to_float32_and_keeps_readable_blobs_in_float32(keep_blobs):
    rounded, plain = gradients(keep_blobs=keep_blobs, precision=BF16), gradients(keep_blobs=keep_blobs)
    largest = max(float(each.diff.norm()) for each in plain.parameters)
    for ours, theirs in zip(rounded.parameters, plain.parameters, strict=True):
        assert ours.data.dtype == ours.diff.dtype == torch.float32
        # Beside the largest gradient: that of a bias in front of a BatchNorm is zero but for rounding.
        assert float((ours.diff - theirs.diff).norm()) <= 0.1 * float(theirs.diff.norm()) + 0.01 * largest
    assert not torch.equal(rounded.arena.diff, plain.arena.diff)
    assert rounded.output_values()[0][1].dtype == torch.float32
    if keep_blobs:
        for blob in rounded.blobs.values():
            assert blob.data.dtype == torch.float32
            assert blob.diff is None or blob.diff.dtype == torch.float32


def test_what_a_net_cannot_compute_in_is_said(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert why_not(FLOAT32, cpu, torch.float64) is None
    assert why_not(BF16, cpu, torch.float32) is None
    assert "float64" in why_not(BF16, cpu, torch.float64)[0]
    assert "only GPUs" in why_not(TF32, cpu, torch.float32)[0]
    assert not is_slow(BF16, gpu)
    for capability, refused in (((7, 5), True), ((8, 0), False), ((9, 0), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, capability=capability: capability)
        for precision, what in ((BF16, "bfloat16"), (TF32, "TF32")):
            reason = (f"this GPU has no products in {what}", "take fp16 or float32")
            assert why_not(precision, gpu, torch.float32) == (reason if refused else None)
        assert why_not(FLOAT32, gpu, torch.float32) is why_not(FP16, gpu, torch.float32) is None


def test_a_processor_without_the_instructions_is_slow(monkeypatch):
    for multiplies_bf16 in PROCESSORS.values():
        set_processor(monkeypatch, multiplies_bf16)
        assert is_slow(BF16, torch.device("cpu")) is not multiplies_bf16
        assert not is_slow(FLOAT32, torch.device("cpu"))
        assert is_slow(FP16, torch.device("cpu")) and not is_slow(FP16, torch.device("cuda"))


def test_float64_is_never_narrowed_or_widened():
    x = torch.ones(2, dtype=torch.float64)
    assert BF16.narrow(x) is x
    assert widened(x) is x
