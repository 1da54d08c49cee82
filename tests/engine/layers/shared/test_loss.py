"""What losses share: the divisor, so that ranks with parts of a batch train what one rank with all of it trains."""

import pytest
import torch

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.layer_context import LayerContext
from tests.support.layerkit import forward_backward, make_layer
from tests.support.layouts import random_input

CLASSES = 4
MATRIX = random_input((CLASSES, CLASSES), seed=9)
TYPES = ("SoftmaxWithLoss", "InfogainLoss", "SigmoidCrossEntropyLoss")
MODES = ("FULL", "VALID", "BATCH_SIZE", "NONE")
SHAPE = (6, CLASSES, 2, 3)


def bottoms_of(type_name: str) -> list[torch.Tensor]:
    """A batch of six items, whose ignored labels (2) all lie in the first half but for one."""
    generator = torch.Generator().manual_seed(1)
    shape = SHAPE if type_name == "SigmoidCrossEntropyLoss" else (6, 1, 2, 3)
    labels = torch.randint(2, shape, generator=generator).double()
    labels[:3][torch.rand(labels[:3].shape, generator=generator) < 0.7] = 2
    labels[5, 0, 1, 1] = 2
    return [random_input(SHAPE), labels]


def run(type_name: str, fields: str, bottoms: list[torch.Tensor], context: LayerContext):
    """Loss and gradient."""
    extra = [MATRIX] if type_name == "InfogainLoss" else []
    names = "".join(f' bottom: "b{index}"' for index in range(2 + len(extra)))
    text = f'name: "l" type: "{type_name}"{names} top: "loss" loss_param {{ {fields} }}'
    inputs = [*bottoms, *extra]
    layer, _ = make_layer(text, [tuple(x.shape) for x in inputs], context=context)
    tops, diffs = forward_backward(layer, inputs, [torch.tensor(0.3, dtype=torch.float64)])
    return tops[0], diffs[0]


def context(ranks: int, phase: int = TRAIN, total: float = float("nan")) -> LayerContext:
    return LayerContext(phase=phase, dtype=torch.float64, solver_ranks=ranks, sum_over_ranks=lambda count: total)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("ignore", ["", "ignore_label: 2 "])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_name", TYPES)
def test_the_mean_over_ranks_is_that_of_the_whole_batch(type_name, mode, ignore, ranks):
    fields, bottoms = f"{ignore}normalization: {mode}", bottoms_of(type_name)
    whole_loss, whole_diff = run(type_name, fields, bottoms, context(1, total=float((bottoms[1] != 2).sum())))
    counts: list[float] = []
    for part in zip(*(x.chunk(ranks) for x in bottoms), strict=True):
        counts.append(float((part[1] != 2).sum()))
    assert len(set(counts)) > 1
    parts = [
        run(type_name, fields, list(part), context(ranks, total=sum(counts)))
        for part in zip(*(x.chunk(ranks) for x in bottoms), strict=True)
    ]
    torch.testing.assert_close(sum(loss for loss, _ in parts) / ranks, whole_loss)
    torch.testing.assert_close(torch.cat([diff for _, diff in parts]) / ranks, whole_diff)


@pytest.mark.parametrize("type_name", TYPES)
def test_nothing_counted_on_any_rank_gives_zero(type_name):
    bottoms = bottoms_of(type_name)
    bottoms[1].fill_(2)
    loss, diff = run(type_name, "ignore_label: 2 normalization: VALID", bottoms, context(2, total=0))
    assert loss == 0
    assert not diff.any()


@pytest.mark.parametrize("type_name", TYPES)
def test_a_single_counted_position_is_divided_by_one(type_name):
    bottoms = bottoms_of(type_name)
    bottoms[1].fill_(2).view(-1)[7] = 1
    valid, none = (
        run(type_name, f"ignore_label: 2 normalization: {mode}", bottoms, context(1, total=1))
        for mode in ("VALID", "NONE")
    )
    assert torch.equal(valid[0], none[0]) and torch.equal(valid[1], none[1])
    assert valid[1].any()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("type_name", TYPES)
def test_the_forks_divisor_of_one_is_none(type_name, ranks):
    bottoms = bottoms_of(type_name)
    fixed, none = (run(type_name, f"normalization: {mode}", bottoms, context(ranks)) for mode in ("PRE_FIXED", "NONE"))
    assert torch.equal(fixed[0], none[0]) and torch.equal(fixed[1], none[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_name", TYPES)
def test_the_phase_of_a_net_that_trains_changes_nothing(type_name, mode):
    fields, bottoms = f"ignore_label: 2 normalization: {mode}", bottoms_of(type_name)
    training, testing = (run(type_name, fields, bottoms, context(4, phase, total=40)) for phase in (TRAIN, TEST))
    assert torch.equal(training[0], testing[0]) and torch.equal(training[1], testing[1])
    assert torch.isfinite(testing[0])


@pytest.mark.parametrize("type_name", TYPES)
def test_an_empty_batch_has_no_loss(type_name):
    bottoms = [x[:0] for x in bottoms_of(type_name)]
    loss, diff = run(type_name, "", bottoms, context(1))
    assert loss == 0
    assert tuple(diff.shape) == (0, *SHAPE[1:])
