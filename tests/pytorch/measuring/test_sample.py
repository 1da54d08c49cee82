"""Sample batches of all kinds, and those on which a module fails."""

import pytest
import torch
from torch import nn

from mgcaffe.errors import UsageError
from mgcaffe.pytorch.measuring.sample import SampleBatch
from tests.support.ddp_models import Branches, Outputs, mlp

X = torch.ones(2, 6)


@pytest.mark.parametrize("batch", [(X, 0), [X, 0], {"x": X, "which": 0}], ids=["tuple", "list", "dict"])
def test_a_batch_is_what_the_module_is_called_with(batch):
    module = Branches()
    assert torch.equal(SampleBatch(batch).call(module), module(X, 0).sum())


def test_all_outputs_count_and_of_complex_ones_the_size():
    module = Outputs()
    assert torch.allclose(SampleBatch(X).call(module), module.a(X).sum() + module.b(X).sum())
    spectrum = nn.Linear(6, 6, dtype=torch.complex64)
    assert SampleBatch(X.to(torch.complex64)).call(spectrum).dtype == torch.float32


def test_a_loss_stands_for_the_sum():
    assert SampleBatch(X, lambda output: output["a"].square().mean()).call(Outputs()).dim() == 0


CASES = {
    "kind": (mlp(), "text", None, "sample_batch is of type str"),
    "shape": (mlp(), torch.ones(2, 3), None, "the module fails on the sample batch: RuntimeError"),
    "arguments": (mlp(), (X, X), None, "the module fails on the sample batch: TypeError"),
    "frozen": (nn.Linear(6, 2).requires_grad_(False), X, None, "no tensor in what the module returns has a gradient"),
    "raises": (nn.Linear(6, 2), X, lambda output: output["a"], "loss fails on what the module returns"),
    "vector": (nn.Linear(6, 2), X, lambda output: output, r"loss returns a tensor of shape \(2, 2\)"),
    "number": (nn.Linear(6, 2), X, lambda output: 1.0, "loss returns 1.0"),
    "detached": (nn.Linear(6, 2), X, lambda output: output.sum().detach(), r"shape \(\) without a gradient"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_said_in_one_message(name):
    module, batch, loss, message = CASES[name]
    with pytest.raises(UsageError, match=message):
        SampleBatch(batch, loss).call(module)
