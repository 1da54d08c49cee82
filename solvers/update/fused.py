"""SGD with momentum and L2 decay in one pass over memory, by PyTorch's fused kernel.

The kernel computes h <- momentum h + (1 - dampening) (g + weight_decay w); w <- w - lr h. With lr = 1,
dampening = 1 - eta and weight_decay = decay that is Caffe's formula, whose history holds the rate. Where it is given
grad_scale = 1 / scale it divides g by that first, and writes it back, which takes 1.15 of the time. The operator is
private to PyTorch, so it is tested once before it is used.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

_LARGEST = torch.finfo(torch.float32).max


def fused_sgd(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    histories: list[torch.Tensor],
    eta: float,
    scale: float,
    decay: float,
    momentum: float,
) -> None:
    """Make one update, h <- momentum h + eta (scale g + decay w); w <- w - h, of float32 slices of one device.

    With a scale of 1 the gradients stay as they are, unless the rate is lost beside 1 (below about 1e-8); else their
    values are lost.
    """
    dampening = 1.0 - eta
    if np.float32(1.0 - dampening) != np.float32(eta):
        dampening, scale, decay = 0.0, eta * scale, eta * decay
    torch._fused_sgd_(
        weights,
        gradients,
        histories,
        weight_decay=decay,
        momentum=momentum,
        lr=1.0,
        dampening=dampening,
        nesterov=False,
        maximize=False,
        is_first_step=False,
        grad_scale=None if scale == 1 else _number(min(1 / scale, _LARGEST) if scale else torch.inf, weights[0].device),
        found_inf=None,
    )


@functools.lru_cache(maxsize=16)
def _number(value: float, device: torch.device) -> torch.Tensor:
    """Return a tensor that holds a number; many updates in a row have the same ones."""
    return torch.full((), value, dtype=torch.float32, device=device)


def fused_sgd_works(like: torch.Tensor) -> bool:
    """Return whether `fused_sgd` can be relied on for tensors of this kind.

    Only for float32, since the kernel reads grad_scale as a float; and only for updates with momentum, since without
    it the kernel keeps no history.
    """
    return like.dtype == torch.float32 and _gives_the_formula(like.device)


@functools.cache
def _gives_the_formula(device: torch.device) -> bool:
    return all(_gives(device, eta, scale) for eta, scale in ((0.25, 0.5), (0.25, 1.0), (2.0, 1.0), (0.0, 1.0)))


def _gives(device: torch.device, eta: float, scale: float) -> bool:
    weights = torch.linspace(-1, 1, 37, device=device)
    gradients, histories = weights.flip(0).mul(3), weights.square()
    expected = 0.9 * histories + eta * (scale * gradients + 0.125 * weights)
    stepped = weights - expected
    try:
        fused_sgd([weights], [gradients], [histories], eta, scale, 0.125, 0.9)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(histories, expected, atol=1e-6) and torch.allclose(weights, stepped, atol=1e-6)
