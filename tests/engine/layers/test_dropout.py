"""Dropout: how much it drops, that backward drops the same, and phases."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.layerkit import forward_backward, make_layer
from tests.support.netkit import inputs, make_net

COUNT = 20_000


def dropout(ratio: float, extra: str = "", fields: str = "", **options):
    text = f'name: "d" type: "Dropout" bottom: "x" top: "x" dropout_param {{ dropout_ratio: {ratio} {fields} }} {extra}'
    return make_layer(text, [(COUNT,)], **options)[0]


@pytest.mark.parametrize("ratio", [0.5, 0.75, 0.1])
def test_drops_its_share_and_scales_the_rest(ratio):
    layer = dropout(ratio)
    (y,) = layer.forward([torch.ones(COUNT, dtype=torch.float64)])
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - ratio)), rtol=1e-6, atol=0)
    deviation = (ratio * (1 - ratio) / COUNT) ** 0.5
    assert abs(len(kept) / COUNT - (1 - ratio)) < 5 * deviation


@pytest.mark.parametrize("in_place", [False, True])
def test_backward_drops_what_forward_dropped(in_place):
    layer = dropout(0.4)
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = in_place, [in_place]
    (y,) = layer.forward([torch.ones(COUNT, dtype=torch.float64)])
    (dx,) = layer.backward([torch.ones(COUNT, dtype=torch.float64)], [True])
    assert torch.equal(dx, y)


def test_keeps_one_byte_a_value_and_nothing_without_backward():
    layer = dropout(0.5)
    layer.forward([torch.ones(COUNT, dtype=torch.float64)])
    assert layer.saved.element_size() == 1
    assert not layer.keeps_bottoms
    assert not layer.keeps_tops
    layer.backward_follows = False
    layer.forward([torch.ones(COUNT, dtype=torch.float64)])
    assert layer.saved is None


def test_random_numbers_come_from_the_nets_stream():
    layer, x = dropout(0.5), torch.ones(COUNT, dtype=torch.float64)
    (first,), (second,) = layer.forward([x]), layer.forward([x])
    assert not torch.equal(first, second)
    layer.context.generator.manual_seed(1701)
    assert torch.equal(layer.forward([x])[0], first)


@pytest.mark.parametrize("options", [{"phase": 1}, {"extra": "phase: TEST"}])
def test_test_phase_hands_its_bottom_on(options):
    layer = dropout(0.5, **options)
    x, dy = torch.randn(COUNT, dtype=torch.float64), torch.randn(COUNT, dtype=torch.float64)
    tops, diffs = forward_backward(layer, [x], [dy])
    assert tops[0] is x
    assert diffs[0] is dy
    assert layer.tops_share_bottoms


def test_layers_own_phase_wins_over_the_nets():
    layer = dropout(0.5, extra="phase: TRAIN", phase=1)
    assert (layer.forward([torch.ones(COUNT, dtype=torch.float64)])[0] == 0).any()


def test_drawing_in_tests_is_refused():
    with pytest.raises(NetError, match="sample_weights_test is a field of another Caffe"):
        dropout(0.5, fields="sample_weights_test: true", phase=1)
    dropout(0.5, fields="sample_weights_test: false", phase=1)


def test_ratio_zero_drops_nothing():
    layer = dropout(0)
    x = torch.ones(COUNT, dtype=torch.float64)
    assert layer.forward([x])[0] is x


def test_ratio_one_is_taken_where_nothing_is_dropped():
    """Nets in use have a second Dropout for the TEST phase, with a ratio of 1."""
    layer = dropout(1, phase=1)
    x = torch.ones(COUNT, dtype=torch.float64)
    assert layer.forward([x])[0] is x


@pytest.mark.parametrize("in_place", [False, True])
def test_without_scale_train_tests_scale_down_instead(in_place):
    """As in the Caffe of Faster R-CNN, whose nets have weights that were trained so."""
    ones, dy = torch.ones(COUNT, dtype=torch.float64), torch.full((COUNT,), 3.0, dtype=torch.float64)
    layer = dropout(0.25, fields="scale_train: false")
    layer.may_overwrite_bottom, layer.may_overwrite_top_diff = in_place, [in_place]
    tops, diffs = forward_backward(layer, [ones.clone()], [dy.clone()])
    assert set(tops[0].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(diffs[0], 3 * tops[0])
    tested = dropout(0.25, fields="scale_train: false", phase=1)
    tested.may_overwrite_bottom, tested.may_overwrite_top_diff = in_place, [in_place]
    tops, diffs = forward_backward(tested, [ones.clone()], [dy.clone()])
    assert torch.equal(tops[0], 0.75 * ones) and torch.equal(diffs[0], 0.75 * dy)
    assert not tested.tops_share_bottoms


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5])
def test_impossible_ratio_is_refused(ratio):
    with pytest.raises(NetError, match=r"dropout_ratio has to be at least 0 and below 1.*layer 'd'"):
        dropout(ratio)


def test_a_forks_random_seed_is_refused():
    with pytest.raises(NetError, match="random_seed is a field of another Caffe"):
        make_layer('name: "d" type: "Dropout" bottom: "x" top: "x" dropout_param { random_seed: 7 }', [(COUNT,)])


def test_behind_pooling_it_drops_whole_windows():
    text = (
        "force_backward: true\n"
        + inputs(x=(2, 3, 6, 5))
        + 'layer { name: "pool" type: "Pooling" bottom: "x" top: "p" pooling_param { kernel_size: 3 stride: 2 } }\n'
        + 'layer { name: "drop" type: "Dropout" bottom: "p" top: "y" dropout_param { dropout_ratio: 0.5 } }\n'
    )
    net = make_net(text)
    net.blobs["x"].data.fill_(1)
    net.forward()
    y = net.blobs["y"].data
    assert y.shape == (2, 3, 3, 2)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    net.blobs["y"].diff = torch.ones_like(y)
    net.backward()
    dx = net.blobs["x"].diff
    # Each kept window hands its gradient, doubled, to the first of its equal values.
    assert dx.sum() == y.sum()
    assert dx[:, :, ::2, ::2][:, :, :3, :2].eq(y).all()
