"""benchmarks/layers.py compares like with like: every layer type, and the same numbers from both sides."""

from __future__ import annotations

import layer_cases
import layers
import pytest
import torch

from mgcaffe.engine import registry

pytestmark = pytest.mark.slow

_RANDOM = {"Dropout"}


def test_every_layer_type_is_compared_or_left_out_for_a_reason():
    compared = {case.type for case in layer_cases.CASES}
    assert compared.isdisjoint(layer_cases.LEFT_OUT)
    assert set(registry.layer_types()) == compared | set(layer_cases.LEFT_OUT)


@pytest.mark.parametrize(
    "case", [case for case in layer_cases.CASES if case.type not in _RANDOM], ids=lambda case: case.name
)
def test_both_sides_compute_the_same(case):
    layer, count = layers.our_layer(case)
    tops, gradients = layers.our_step(case, layer, count)()
    expected_tops, expected_gradients = layers.torch_step(case, layer, last=False)()
    for mine, other in zip(tops, expected_tops, strict=True):
        assert_close(mine.reshape(other.shape), other.detach())
    assert len(gradients) == len(expected_gradients)
    of_bottoms = len(gradients) - sum(parameter.wanted for parameter in layer.parameters)
    expected_gradients[of_bottoms:] = map(case.arrange, expected_gradients[of_bottoms:])
    for mine, other in zip(gradients, expected_gradients, strict=True):
        if other is not None:
            assert mine.layout == other.layout
            assert_close(mine.to_dense(), other.to_dense())


def assert_close(mine: torch.Tensor, other: torch.Tensor) -> None:
    """Float32 sums of up to a million values, in different orders."""
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-12)
