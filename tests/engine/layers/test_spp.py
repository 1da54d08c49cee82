"""The SPP layer against pooling, flattening and joining written with PyTorch's own operators."""

import pytest
import torch
from torch.nn import functional

from mgcaffe.engine.net import Net
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter, parse_text
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input


def text(fields):
    return f'name: "spp" type: "SPP" bottom: "x" top: "y" spp_param {{ {fields} }}'


def level(x, bins, average):
    """One level, over windows that are cut out one by one."""
    rows, columns = x.shape[2:]
    high, wide = -(-rows // bins), -(-columns // bins)
    above, left = (high * bins - rows + 1) // 2, (wide * bins - columns + 1) // 2
    behind = [bins * wide - columns - left, bins * high - rows - above]
    fill = 0.0 if average else float("-inf")
    padded = functional.pad(x, [left, behind[0], above, behind[1]], value=fill)
    windows = padded.unfold(2, high, high).unfold(3, wide, wide).flatten(4)
    if not average:
        return windows.amax(4)
    # What lies more than one pad behind the image counts neither as pixel nor as padding.
    counted = functional.pad(torch.ones(rows + 2 * above, columns + 2 * left), [0, wide, 0, high])
    areas = counted[: bins * high, : bins * wide].unfold(0, high, high).unfold(1, wide, wide).sum((2, 3))
    return windows.sum(4) / areas


def reference(levels, average):
    def function(x):
        return torch.cat([level(x, 2**number, average).flatten(1) for number in range(levels)], 1)

    return function


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize("size", [(9, 11), (8, 8), (10, 7), (12, 13)])
def test_agrees_with_pooling_flattening_and_joining(layout, pool, size) -> None:
    layer, shapes = make_layer(text(f"pyramid_height: 3 pool: {pool}"), [(2, 3, *size)])
    assert shapes == [(2, 3 * 21)]
    check_against_autograd(layer, [random_input((2, 3, *size), layout)], reference(3, pool == "AVE"))


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_gradients(pool) -> None:
    layer, _ = make_layer(text(f"pyramid_height: 2 pool: {pool}"), [(2, 2, 5, 6)])
    check_gradients(layer, [random_input((2, 2, 5, 6))])


def test_one_level_is_not_flattened() -> None:
    layer, shapes = make_layer(text("pyramid_height: 1"), [(2, 3, 4, 5)])
    assert shapes == [(2, 3, 1, 1)]
    check_against_autograd(layer, [random_input((2, 3, 4, 5))], lambda x: x.amax((2, 3), keepdim=True))


def test_the_length_stays_the_same_for_every_image_size() -> None:
    layer, shapes = make_layer(text("pyramid_height: 3"), [(2, 3, 9, 11)])
    for size in ((20, 17), (4, 4), (9, 11)):
        assert layer.reshape([(1, 3, *size)]) == [(1, shapes[0][1])]
        check_against_autograd(layer, [random_input((1, 3, *size))], reference(3, False))


def test_stochastic_pooling_over_windows_that_need_no_padding() -> None:
    layer, shapes = make_layer(text("pyramid_height: 2 pool: STOCHASTIC"), [(1, 2, 4, 6)], phase=1)
    assert shapes == [(1, 10)]

    def function(x):
        windows = [x.flatten(2).unsqueeze(2), x.unfold(2, 2, 2).unfold(3, 3, 3).flatten(4).flatten(2, 3)]
        return torch.cat([(part.square().sum(3) / part.sum(3)).flatten(1) for part in windows], 1)

    assert layer.keeps_bottoms
    check_against_autograd(layer, [random_input((1, 2, 4, 6)).abs_()], function)


def test_nothing_is_kept_without_backward() -> None:
    layer, _ = make_layer(text("pyramid_height: 2"), [(1, 1, 4, 4)])
    layer.forward([random_input((1, 1, 4, 4))])
    layer.release()
    assert all(level.saved is None for level in layer.levels)


@pytest.mark.parametrize(
    ("fields", "shape", "message", "column"),
    [
        ("", (1, 1, 4, 4), "pyramid_height has to be from 1 to 16, not 0", None),
        ("pyramid_height: 3", (1, 1, 5, 5), "4 x 4 windows do not fit an image of 5 x 5", 12),
        ("pyramid_height: 2", (1, 1, 1, 4), "2 x 2 windows do not fit an image of 1 x 4", 12),
        ("pool: STOCHASTIC pyramid_height: 2", (1, 1, 5, 4), "STOCHASTIC pooling does not take", 12),
        ("pyramid_height: 2", (4, 5), "needs 4 axes", None),
    ],
)
def test_wrong_fields_and_images_are_located_errors(tmp_path, fields, shape, message, column) -> None:
    dims = " ".join(f"dim: {size}" for size in shape)
    path = tmp_path / "net.prototxt"
    path.write_text(
        f'layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}\n'
        f'layer {{ name: "spp" type: "SPP" bottom: "x" top: "y"\nspp_param {{ {fields} }} }}'
    )
    with pytest.raises(NetError, match=message) as caught:
        Net.from_file(path)
    assert "layer 'spp'" in str(caught.value)
    if column:
        assert str(caught.value).startswith(f"{path}:3:")


def test_a_net_runs_in_both_directions() -> None:
    net = Net(
        parse_text(
            'force_backward: true layer { name: "x" type: "Input" top: "x" input_param {'
            " shape { dim: 2 dim: 3 dim: 9 dim: 9 } } } layer { " + text("pyramid_height: 2") + " }",
            NetParameter,
        )
    )
    net.blobs["x"].data.normal_()
    net.forward()
    net.blobs["y"].diff = torch.ones(2, 15)
    net.backward()
    assert net.blobs["x"].diff.sum().item() == 30
