"""SGD by PyTorch's fused kernel: exact for rates of any size, and not used where the kernel gives something else."""

import pytest
import torch

from mgcaffe.solvers.update import fused


def test_the_fused_kernel_of_this_pytorch_gives_the_formula():
    assert fused.fused_sgd_works(torch.zeros(1))
    assert not fused.fused_sgd_works(torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("eta", [2.0, 0.01, 1e-6, 3e-9, 3e-12, 1e-18, 0.0])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 2.0**-24])
def test_the_fused_kernel_is_exact_for_rates_of_any_size(eta, scale):
    weights = torch.linspace(-1, 1, 101)
    gradients, histories = weights.flip(0).mul(3 / scale), torch.zeros(101)
    expected = eta * (scale * gradients.double() + 0.125 * weights.double())
    stepped = weights.double() - expected
    fused.fused_sgd([weights], [gradients], [histories], eta, scale, 0.125, 0.9)
    torch.testing.assert_close(histories.double(), expected, rtol=5e-7, atol=1e-7 * eta)
    torch.testing.assert_close(weights.double(), stepped, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("eta", [1e-40, 1e-45, 1e-60])
@pytest.mark.parametrize("scale", [1.0, 2.0**-24])
def test_rates_below_the_range_of_float32_change_no_weight(eta, scale):
    weights, gradients, histories = torch.linspace(1, 2, 9), torch.full((9,), 3 / scale), torch.zeros(9)
    before = weights.clone()
    fused.fused_sgd([weights], [gradients], [histories], eta, scale, 0.125, 0.9)
    assert torch.equal(weights, before) and histories.abs().max() < 1e-29


@pytest.mark.parametrize(("eta", "scale", "stay"), [(0.01, 1.0, True), (0.01, 0.5, False), (1e-12, 1.0, False)])
def test_gradients_stay_as_they_are_unless_they_are_scaled_or_the_rate_is_tiny(eta, scale, stay):
    weights, gradients, histories = torch.ones(9), torch.linspace(-1, 1, 9), torch.zeros(9)
    before = gradients.clone()
    fused.fused_sgd([weights], [gradients], [histories], eta, scale, 0.5, 0.9)
    assert torch.equal(gradients, before) == stay


def test_an_operator_that_refuses_a_rate_above_1_is_not_used(monkeypatch):
    """It is private to PyTorch, where the rate is 1 - dampening."""
    fused_sgd = torch._fused_sgd_

    def refusing(*args, dampening, **options):
        if dampening < 0:
            raise RuntimeError("dampening is negative")
        fused_sgd(*args, dampening=dampening, **options)

    monkeypatch.setattr(torch, "_fused_sgd_", refusing)
    fused._gives_the_formula.cache_clear()
    try:
        assert not fused.fused_sgd_works(torch.zeros(1))
    finally:
        fused._gives_the_formula.cache_clear()
