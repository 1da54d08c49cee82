import pytest
import torch

from tests.support.layerkit import check_gradients, make_layer
from tests.support.layouts import LAYOUTS, random_input


def text(fields: str, bottoms: int = 1) -> str:
    names = 'bottom: "x" bottom: "b"' if bottoms == 2 else 'bottom: "x"'
    return f'name: "bias" type: "Bias" {names} top: "y" bias_param {{ {fields} }}'


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("axis", "num_axes", "view"),
    [(1, 1, (3, 1, 1)), (0, 1, (2, 1, 1, 1)), (0, -1, (2, 3, 4, 5)), (-2, 2, (4, 5)), (1, 0, ())],
)
def test_learned_blob_stretches_over_its_axes(layout, axis, num_axes, view) -> None:
    fields = f'axis: {axis} num_axes: {num_axes} filler {{ type: "gaussian" }}'
    layer, _ = make_layer(text(fields), [(2, 3, 4, 5)])
    x = random_input((2, 3, 4, 5), layout)
    torch.testing.assert_close(layer.forward([x])[0], x + layer.parameters[0].data.reshape(view))


@pytest.mark.parametrize(("axis", "num_axes"), [(1, 1), (0, 2), (1, 0)])
def test_gradients_of_a_learned_blob(axis, num_axes) -> None:
    layer, _ = make_layer(text(f"axis: {axis} num_axes: {num_axes}"), [(2, 3, 2, 2)])
    check_gradients(layer, [random_input((2, 3, 2, 2))])


@pytest.mark.parametrize(("axis", "blob"), [(0, (2, 3)), (1, (3,)), (0, (2, 3, 2, 2)), (1, ())])
def test_gradients_of_a_second_bottom(axis, blob) -> None:
    layer, _ = make_layer(text(f"axis: {axis}", 2), [(2, 3, 2, 2), blob])
    assert not layer.parameters
    check_gradients(layer, [random_input((2, 3, 2, 2)), random_input(blob, seed=8)])


def test_the_default_filler_is_zero() -> None:
    layer, _ = make_layer(text(""), [(2, 3)])
    assert layer.parameters[0].data.tolist() == [0.0] * 3


def test_storage_is_reused_where_the_net_allows_it() -> None:
    layer, _ = make_layer(text('filler { value: 2 type: "constant" }'), [(2, 3)])
    x, dy = random_input((2, 3)), random_input((2, 3), seed=4)
    layer.may_overwrite_bottom = True
    layer.may_overwrite_top_diff = [True]
    (y,) = layer.forward([x])
    (dx,) = layer.backward([dy], [True])
    assert y.data_ptr() == x.data_ptr()
    assert dx.data_ptr() == dy.data_ptr()
