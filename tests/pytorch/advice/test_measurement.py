"""A pass that fails on one of two ranks, which are threads."""

import pytest
import torch
from torch import nn

from mgcaffe.comm import run_ranks
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.advice.measurement import measure
from mgcaffe.pytorch.measuring.pass_times import WARM_UP_PASSES
from mgcaffe.pytorch.measuring.sample import SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.pytorch.options import ExchangeOptions


class Failing(nn.Module):
    """Layers, between which a backward pass fails, from a pass on."""

    def __init__(self, first_failure):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.first_failure = first_failure
        self.passes = 0

    def forward(self, inputs):
        middle = self.layers[1](self.layers[0](inputs))
        middle.register_hook(self.check)
        return self.layers[2](middle)

    def check(self, _):
        self.passes += 1
        if self.first_failure is not None and self.passes >= self.first_failure:
            raise RuntimeError("out of memory")


# The passes that a rank runs alone, those with gradients that travel, and a later one of these.
@pytest.mark.parametrize("first_failure", [1, WARM_UP_PASSES + 6, WARM_UP_PASSES + 7])
def test_a_backward_pass_that_fails_on_a_rank_ends_all_ranks(first_failure):
    def rank(ranks):
        module = Failing(first_failure if ranks.rank == 1 else None)
        options = ExchangeOptions("optimal", calibration_iterations=4)
        with pytest.raises(UsageError) as raised:
            measure(StandIn(module), SampleBatch(torch.ones(2, 4)), ranks, options, may_lack=False)
        return raised.value

    others, own = run_ranks(2, rank, timeout_s=10)
    text = "on rank 1: a pass on the sample batch fails: RuntimeError: out of memory"
    assert others.message == own.message == text
    assert others.__cause__ is None and isinstance(own.__cause__, RuntimeError)
