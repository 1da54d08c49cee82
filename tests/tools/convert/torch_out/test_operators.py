"""Every layer type that has an equivalent, in all its variants: the written module computes what our engine does."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from mgcaffe.engine import registry
from mgcaffe.tools.convert.layer_writer import INPUT, WITHOUT
from mgcaffe.tools.convert.torch_out.helpers import HELPERS
from mgcaffe.tools.convert.torch_out.operators import OPERATORS
from tests.support.layer_cases import CASES, MATRIX, MODULE_CASES, plain
from tests.support.modulekit import module_differences, text_of
from tests.support.netkit import inputs
from tests.support.onnxkit import random_net

pytestmark = pytest.mark.slow

TOLERANCE = 2e-6


def sharing(first, second, x=(2, 4, 7, 9)):
    """A layer `k`, and the layer `l`, which has the same weight but is of another form."""
    layers = (f'layer {{ name: "{name}" bottom: "x" top: "{name}" param {{ name: "w" }} {layer} }}'
              for name, layer in (("k", first), ("l", second)))  # fmt: skip
    return inputs(x=x) + "".join(layers)


def filters(layer_type, fields, others):
    start = f'type: "{layer_type}" convolution_param {{ kernel_size: 3 {fields} '
    return sharing(start + "}", start + others + "}")


PRODUCT = 'type: "InnerProduct" inner_product_param { num_output: '
BAG = 'type: "EmbeddingBag" embedding_bag_param { input_dim: 5 num_output: 3 '
SHARED = {
    "Convolution": filters("Convolution", "num_output: 6 group: 2", "stride: 2 pad: 1 bias_term: false"),
    "Deconvolution": filters("Deconvolution", "num_output: 6 group: 2", "stride: 2 pad: 1 bias_term: false"),
    "DepthwiseConvolution": filters("DepthwiseConvolution", "", "stride: 2"),
    "ConvolutionDepthwise": filters("ConvolutionDepthwise", "", "dilation: 2"),
    "InnerProduct": sharing(PRODUCT + "252 }", PRODUCT + "252 transpose: true bias_term: false }"),
    "Embed": sharing(PRODUCT + "5 }", 'type: "Embed" embed_param { input_dim: 5 num_output: 3 }', (5, 3)),
    "EmbeddingBag": sharing(BAG + "}", BAG + "mode: MEAN }", (4, 3)),
    "Scale": sharing('type: "Scale" scale_param { bias_term: true }', 'type: "Scale"'),
}


@pytest.mark.parametrize("layer_type", CASES)
def test_the_module_computes_the_same_with_exactly_the_functions_in_the_table(layer_type):
    """Each declared module, function or helper is called in some case, and none besides; lines have 100 columns."""
    declared = {name for name in OPERATORS[layer_type].becomes.split(", ") if name}
    called = set()
    cases = {**CASES[layer_type], **MODULE_CASES.get(layer_type, {})}
    for case, text in {**cases, "shared": SHARED.get(layer_type, "")}.items():
        if not text:
            continue
        net = random_net(text)
        found, _ = module_differences(net)
        assert found[0].largest_relative <= TOLERANCE, (case, found[0])
        written = text_of(net)
        assert max(map(len, written.splitlines())) <= 100, case
        called |= {name for name in calls(written) if is_of_layer(name, layer_type)}
    assert called == declared


def calls(text):
    """What the class of the net calls: nn., F., torch. and math. functions, and the file's own."""
    for node in ast.walk(ast.parse(text).body[-2]):
        names = [node.func] if isinstance(node, ast.Call) else []
        names += node.args if isinstance(node, ast.Call) else []
        for name in map(ast.unparse, names):
            of_torch = name.startswith(("nn.", "F.", "torch.", "math.")) and "(" not in name
            if name in HELPERS or of_torch:
                yield name


def is_of_layer(name, layer_type):
    """Whether a call is the tested layer's: some cases have other layers before or behind it, to make its input."""
    of_others = {
        "Log": {"torch.exp"},
        "MultinomialLogisticLoss": {"torch.softmax"},
        "Silence": {"F.relu"},
        "Embed": {"nn.Linear", "nn.Parameter"},
        "Parameter": set(),
    }
    return name != "torch.zeros" and name not in of_others.get(layer_type, {"nn.Parameter"})


def test_every_type_is_in_one_of_the_tables():
    assert set(registry.layer_types()) == {*OPERATORS, *WITHOUT, INPUT}
    assert not set(OPERATORS) & set(WITHOUT)
    assert set(CASES) == set(OPERATORS)


@pytest.mark.parametrize(("fields", "value"), [("power: -1", np.inf), ("power: 0.5 shift: -2", np.nan)])
def test_a_power_of_a_constant_that_is_no_finite_number_is_written_as_that(fields, value):
    found, theirs = module_differences(random_net(plain("Power", f"power_param {{ scale: 0 {fields} }}", MATRIX)))
    assert found[0].largest_absolute == 0
    np.testing.assert_array_equal(theirs["y"], np.full((3, 5), value))
