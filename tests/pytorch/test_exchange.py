"""How gradients travel: schedules, plans, groups of their own, types; ranks are threads."""

import pytest
import torch
from torch import nn

from mgcaffe.comm.planning.schedules import SCHEDULES
from mgcaffe.errors import CommError, UsageError
from mgcaffe.pytorch import StepOnGroups
from mgcaffe.solvers.events import PlanChosen, Warned
from tests.support.ddp_models import Branches, Types, batch, mlp


def equal(results, others):
    return all(
        torch.equal(a, b) for one, other in zip(results, others, strict=True) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("schedule", ["auto", *SCHEDULES])
def test_every_schedule_gives_the_same_bits(train, schedule):
    expected = train(steps=8, schedule="single", deterministic=True)
    chosen = []
    assert equal(expected, train(steps=8, schedule=schedule, calibration_iterations=4, listener=chosen.append))
    assert schedule == "auto" or {event.schedule for event in chosen if isinstance(event, PlanChosen)} == {schedule}


def test_groups_follow_the_order_in_which_gradients_come(train):
    class Crossed(nn.Module):
        """Its second layer is used first."""

        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(20, 5), nn.Linear(20, 20)

        def forward(self, x):
            return self.last(self.first(x).relu())

    def names(model, _):
        return [segment.name for segment in model._flow._exchange._lanes[0].gradients.segments]

    order = train(Crossed(), schedule="wfbp", finish=names)[0]
    assert order.index("first.weight") < order.index("last.weight")


def test_a_plan_file_is_written_read_and_kept_to(train, tmp_path):
    path = tmp_path / "plan.json"

    def write(model, communicator):
        model.write_plan(path)
        communicator.barrier()
        return model.plan

    plan = train(steps=8, schedule="wfbp", calibration_iterations=4, finish=write)[0]
    assert len(plan.groups) == len(list(mlp().parameters()))
    for pinned in train(steps=2, plan_file=path, finish=lambda model, _: model.plan):
        assert pinned.hash == plan.hash and pinned.schedule == "wfbp"


def test_a_plan_file_of_another_module_is_refused(train, tmp_path):
    path = tmp_path / "plan.json"
    train(steps=8, schedule="wfbp", calibration_iterations=4, finish=lambda model, _: model.write_plan(path))
    with pytest.raises(CommError, match="plan file"):
        train(nn.Linear(20, 3), plan_file=path)


def test_there_is_nothing_to_write_before_a_plan_was_found(train, tmp_path):
    with pytest.raises(CommError, match="no plan was found yet"):
        train(steps=2, finish=lambda model, _: model.write_plan(tmp_path / "plan.json"))


def test_own_groups_and_several_types_have_buffers_of_their_own(train):
    expected = train(deterministic=True)
    results = train(own_group=["0.*", "4.bias"], finish=lambda model, _: (len(model.reports), list(model.parameters())))
    assert [count for count, _ in results] == [3, 3]
    assert equal(expected, [values for _, values in results])
    loss = lambda model, inputs: model(inputs[:, :6]).square().mean()  # noqa: E731
    assert train(Types(), loss=loss, finish=lambda model, _: len(model.reports)) == [2, 2]
    with pytest.raises(UsageError, match="plan for one buffer"):
        train(Types(), loss=loss, plan_file="absent")


def test_what_is_excluded_stays_each_ranks_own(train):
    def gradients(model, communicator):
        return communicator.allgather([each.grad.clone() for each in model.parameters()])

    first, second = train(steps=1, exclude="0.bias", finish=gradients)[0]
    differing = [index for index, (a, b) in enumerate(zip(first, second, strict=True)) if not torch.equal(a, b)]
    assert differing == [1]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_for_each_group_gives_the_bits_of_one_step(train, optimizer):
    results = []
    for grouped in (False, True):

        def loop(model, communicator, grouped=grouped):
            updates = optimizer(model.parameters(), 0.01)
            model.on_group = StepOnGroups(updates) if grouped else None
            for step in range(3):
                updates.zero_grad()
                model(batch(communicator.rank, step, 4, 20)).square().mean().backward()
                if not grouped:
                    updates.step()
            return [each.detach().clone() for each in model.parameters()]

        results.append(train(steps=0, schedule="wfbp", deterministic=True, finish=loop))
    assert equal(*results)


@pytest.mark.parametrize("size", [1, 2])
def test_a_step_for_each_group_decays_parameters_that_no_rank_used(train, size):
    module, results = Branches(), []
    for grouped in (False, True):

        def loop(model, communicator, grouped=grouped):
            updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=0.1)
            model.on_group = StepOnGroups(updates) if grouped else None
            for step in range(4):
                updates.zero_grad(set_to_none=False)
                model(batch(communicator.rank, step, 4, 6), step % 2).square().mean().backward()
                if not grouped:
                    updates.step()
            return [each.detach().clone() for each in model.parameters()]

        results.append(train(module, 0, size, find_unused_parameters=True, deterministic=True, finish=loop))
    assert equal(*results)


def test_groups_are_handed_over_each_with_its_parameters(train):
    groups = []
    train(size=1, steps=1, on_group=groups.append)
    train(steps=2, schedule="wfbp", deterministic=True, on_group=groups.append)
    sizes = sorted(len(group) for group in groups)
    assert sizes == [1] * 24 + [6]


def test_gradients_of_parameters_that_no_rank_used_stay_what_they_were(train):
    def unused(model, communicator):
        kept = list(model.module.never.parameters())
        for each in kept:
            each.grad = torch.full_like(each, communicator.rank + 1.0)
        for step in range(2):
            model(batch(communicator.rank, step, 4, 6), step).sum().backward()
        return [each.grad.unique().tolist() for each in kept]

    found = train(Branches(), steps=0, finish=unused, find_unused_parameters=True, deterministic=True)
    assert found == [[[1.0], [1.0]], [[2.0], [2.0]]]


def test_sixteen_bits_are_close_and_equal_on_all_ranks(train):
    expected = train(deterministic=True)
    for kind in ("float16", "bfloat16"):
        (first, second) = train(deterministic=True, allreduce_type=kind)
        assert equal([first], [second]) and not equal([first], expected[:1])
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(first, expected[0], strict=True))


def test_what_has_no_effect_is_said(train):
    events = []
    train(hierarchical=True, schedule="optimal", deterministic=True, listener=events.append)
    texts = " ".join(event.text for event in events if isinstance(event, Warned))
    assert "hierarchical has no effect" in texts and "nothing to plan with" in texts
