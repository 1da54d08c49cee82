"""Filter: which items pass, into batches of varying size."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input
from tests.support.netkit import inputs, make_net

CHOICE = torch.tensor([0.0, 1, 0, -2], dtype=torch.float64).view(4, 1, 1, 1)


def keep(shapes, selector=(4, 1, 1, 1), tops=None):
    names = "".join(f' bottom: "x{index}"' for index in range(len(shapes)))
    outputs = "".join(f' top: "y{index}"' for index in range(len(shapes) if tops is None else tops))
    return make_layer(f'name: "f" type: "Filter"{names} bottom: "s"{outputs}', [*shapes, selector])


def test_setup_assumes_a_whole_batch():
    assert keep([(4, 3, 2, 2), (4, 1)])[1] == [(4, 3, 2, 2), (4, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_agrees_with_autograd(layout):
    layer, _ = keep([(4, 3, 2, 2), (4, 5)])
    bottoms = [random_input((4, 3, 2, 2), layout), random_input((4, 5), seed=8), CHOICE]
    check_against_autograd(layer, bottoms, lambda x, z, s: (x[[1, 3]], z[[1, 3]]))


def test_gradient_agrees_with_differences():
    check_gradients(keep([(4, 2)])[0], [random_input((4, 2)), CHOICE])


def test_nothing_selected_is_an_empty_batch():
    layer, _ = keep([(4, 2)])
    check_against_autograd(layer, [random_input((4, 2)), torch.zeros_like(CHOICE)], lambda x, s: x[:0])


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_layers_behind_it_follow_the_size_of_the_batch(keep_blobs):
    net = make_net(
        inputs(x=(4, 3), t=(4, 2), s=(4,))
        + 'layer { name: "i" type: "InnerProduct" bottom: "x" top: "h" inner_product_param { num_output: 2'
        ' weight_filler { type: "xavier" } } }\n'
        'layer { name: "f" type: "Filter" bottom: "h" bottom: "t" bottom: "s" top: "g" top: "u" }\n'
        'layer { name: "l" type: "EuclideanLoss" bottom: "g" bottom: "u" top: "l" propagate_down: true'
        " propagate_down: false }\n",
        keep_blobs=keep_blobs,
    )
    x, _, selector = (layer.values[0] for layer in net.layers if layer.type == "Input")
    x.copy_(random_input((4, 3)))
    weight, bias = net.parameters
    for choice in ([1, 0, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0]):
        selector.copy_(torch.tensor(choice))
        net.clear_param_diffs()
        loss = net.forward_backward()
        rows = x[selector != 0]
        y = rows @ weight.data.t() + bias.data
        assert loss == pytest.approx(float(y.square().sum()) / (2 * max(1, len(rows))))
        torch.testing.assert_close(weight.diff, y.t() @ rows / max(1, len(rows)))


@pytest.mark.parametrize(
    ("shapes", "selector", "tops", "message"),
    [
        ([(4, 2)], (4, 2), None, r"needs one value an item; its shape is \(4, 2\)"),
        ([(4, 2)], (), None, "needs one value an item"),
        ([(4, 2), (3, 2)], (4,), None, r"bottom 1 has shape \(3, 2\), but the selector is for 4 items"),
        ([(4, 2), (4, 2)], (4,), 1, "3 bottoms, the last of them the selector, need 2 tops, not 1"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, selector, tops, message):
    with pytest.raises(NetError, match=message):
        keep(shapes, selector, tops)
