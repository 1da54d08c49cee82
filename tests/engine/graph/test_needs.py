"""Which gradients are computed, and which bottoms drop them."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.netkit import inputs, make_net

BELOW = """
layer { name: "below" type: "InnerProduct" bottom: "z" top: "made"
        inner_product_param { num_output: 5 weight_filler { type: "constant" value: 0 } } }
"""
ABOVE = 'layer { name: "above" type: "Scale" bottom: "x" top: "scaled" }'
CASES = {
    "ROIPooling": (
        inputs(x=(1, 2, 4, 4), z=(3, 2)),
        'bottom: "scaled" bottom: "made" top: "top" roi_pooling_param { pooled_h: 2 pooled_w: 2 }',
    ),
    "Interp": (
        inputs(x=(1, 2, 4, 4), z=(1, 2, 6, 6)),
        'bottom: "scaled" bottom: "made" top: "top"',
    ),
    "SmoothL1Loss": (
        inputs(x=(3, 5), z=(3, 2), b=(3, 5)),
        'bottom: "scaled" bottom: "b" bottom: "made" bottom: "made" top: "top"',
    ),
    "ContrastiveLoss": (
        inputs(x=(5, 2), z=(1, 2), b=(5, 2)),
        'bottom: "scaled" bottom: "b" bottom: "made" top: "top"',
    ),
}


@pytest.mark.parametrize("type_name", CASES)
@pytest.mark.parametrize("propagate_down", [False, True])
def test_nothing_flows_to_a_bottom_that_drops_gradients_though_layers_before_it_learn(type_name, propagate_down):
    text, rest = CASES[type_name]
    if propagate_down:
        rest = "propagate_down: true " * rest.count("bottom:") + rest
    below = BELOW
    if type_name == "Interp":
        below = 'layer { name: "below" type: "Scale" bottom: "z" top: "made" }'
    elif type_name == "SmoothL1Loss":
        below = BELOW.replace("num_output: 5", 'num_output: 5 bias_filler { type: "constant" value: 1 }')
    net = make_net(text + below + ABOVE + f'layer {{ name: "l" type: "{type_name}" loss_weight: 1 {rest} }}')
    generator = torch.Generator().manual_seed(1)
    for name in net.inputs:
        net.blobs[name].data.normal_(generator=generator)
    net.clear_param_diffs()
    net.forward()
    net.backward()
    below, above = (each.parameters[0].diff for each in net.layers if each.name in ("below", "above"))
    assert not below.any()
    assert above.any()


def test_what_caffe_refuses_stays_refused():
    text = inputs(x=(3, 4), z=(3, 2)) + BELOW.replace("num_output: 5", "num_output: 1") + ABOVE
    with pytest.raises(NetError, match="no gradient can flow to bottom 1, blob 'made'"):
        make_net(text + 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "scaled" bottom: "made" top: "l" }')
