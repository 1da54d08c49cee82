"""Every golden layer case, run through the net: what a real Caffe computed (tests/golden/layers)."""

import pytest

from mgcaffe.engine import registry
from mgcaffe.prototxt import read_net_source
from tests.support.golden import LAYERS, NAMES, check_case


@pytest.mark.parametrize("name", NAMES)
def test_case_agrees_with_caffe(name):
    check_case(name)


def test_the_cases_cover_the_layers_that_have_any():
    types = {layer.type for name in NAMES for layer in read_net_source(LAYERS / name / "net.prototxt").param.layer}
    assert types <= set(registry.layer_types())
    assert len(NAMES) >= 60
