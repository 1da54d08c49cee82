"""Updates on the GPU: the CPU's weights, and no more kernels than there are slices of the arena."""

import dataclasses

import pytest
import torch

from mgcaffe.engine.arena import ParameterArena
from mgcaffe.engine.parameter import Parameter
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers.update.updater import Updater, clip_factor

SIZE = (1 << 19) + 100


def arena_on(device: torch.device | str) -> ParameterArena:
    parameters = [Parameter((count,), lr_mult=rate) for count, rate in ((SIZE, 1.0), (5, 2.0))]
    arena = ParameterArena([(0, "layer", each) for each in parameters], torch.float32, torch.device(device))
    generator = torch.Generator().manual_seed(5)
    for values in (arena.data, arena.diff):
        values.copy_(torch.randn(values.shape, generator=generator))
    return arena


@pytest.mark.parametrize("type_", ["SGD", "Nesterov"])
def test_a_slice_is_updated_in_one_piece_and_as_on_the_cpu(device, type_):
    fields = f'base_lr: 0.01 lr_policy: "fixed" type: "{type_}" weight_decay: 0.1 momentum: 0.9'
    weights, steps = [], []
    for where in ("cpu", device):
        arena = arena_on(where)
        updater = Updater(parse_solver(fields).param, arena)
        calls, step = [], updater.rule.step

        def counted(*values, calls=calls, step=step):
            calls.append(len(values[2]))
            return step(*values)

        updater.rule = dataclasses.replace(updater.rule, step=counted)
        updater.apply(0.01, 0, clip_factor(arena, 100.0))
        weights.append(arena.data.cpu())
        steps.append(calls)
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    # PyTorch's fused kernel takes the lists as they are.
    assert steps[1] == ([] if type_ == "SGD" else [SIZE, 5])
    assert len(steps[0]) == (0 if type_ == "SGD" else 3)
