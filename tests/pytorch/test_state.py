"""State, copies and one rank alone."""

import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.testing import CompileCounter

from mgcaffe.comm import run_ranks
from mgcaffe.errors import CommError, RankDisagreement, UsageError
from mgcaffe.pytorch import MergedGradientParallel
from tests.support.ddp_models import GPT, Branches, Checkpointed, Outputs, batch, cnn, mlp


def test_the_state_is_the_modules_own_also_inside_another_module():
    module = cnn()
    model = MergedGradientParallel(module)
    assert list(model.state_dict()) == list(module.state_dict())
    other = MergedGradientParallel(cnn())
    assert not any(other.load_state_dict(model.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    outer, plain = nn.Sequential(nn.Linear(2, 2), MergedGradientParallel(cnn())), nn.Sequential(nn.Linear(2, 2), cnn())
    assert list(outer.state_dict()) == list(plain.state_dict())
    assert not any(outer.load_state_dict(plain.state_dict()))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})
    with pytest.raises(TypeError, match="dict-like"):
        other.load_state_dict("model.pt")


@pytest.mark.parametrize("prefix", ["", "module."])
def test_keys_that_do_not_fit_are_named_as_the_module_names_them(prefix):
    model = MergedGradientParallel(nn.Sequential(nn.Linear(2, 2)))
    found = model.load_state_dict(
        {f"{prefix}0.weight": torch.ones(2, 2), f"{prefix}1.bias": torch.ones(2)}, strict=False
    )
    assert (found.missing_keys, found.unexpected_keys) == (["0.bias"], ["1.bias"])


class PartlySaved(nn.Linear):
    """Leaves its bias out of its state."""

    def state_dict(self, *arguments, **keywords):
        return {"weight": super().state_dict(*arguments, **keywords)["weight"]}

    def load_state_dict(self, state_dict, **keywords):
        return super().load_state_dict(state_dict, strict=False, **keywords)


def test_a_module_that_saves_and_loads_in_its_own_way_does_so_inside():
    first, second = MergedGradientParallel(PartlySaved(2, 2)), MergedGradientParallel(PartlySaved(2, 2))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.module.weight, second.module.weight)
    assert not torch.equal(first.module.bias, second.module.bias)


def test_a_checkpoint_of_ddp_can_be_loaded():
    module = mlp()
    model = MergedGradientParallel(mlp())
    assert not any(model.load_state_dict({f"module.{name}": value for name, value in module.state_dict().items()}))
    assert torch.equal(model.module[0].weight, module[0].weight)


class Versioned(nn.Linear):
    """Reads states of before its version 2 otherwise."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *arguments):
        if local_metadata.get("version", 1) < 2:
            state_dict[f"{prefix}weight"] = state_dict[f"{prefix}weight"] / 10
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *arguments)


@pytest.mark.parametrize("written_by", [MergedGradientParallel, lambda module: nn.ModuleDict({"module": module})])
def test_parts_of_the_module_are_told_the_version_of_their_state(written_by):
    module = nn.Sequential(Versioned(2, 2))
    state = written_by(module).state_dict()
    model = MergedGradientParallel(nn.Sequential(Versioned(2, 2)))
    for _ in range(2):
        model.load_state_dict(state)
        assert torch.equal(model.module[0].weight, module[0].weight)


def test_copies_and_pickles_train_on():
    model = MergedGradientParallel(GPT(), find_unused_parameters=True)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.find_unused_parameters and other.module is not model.module
        other(torch.zeros(1, 3, dtype=torch.int64)).sum().backward()
        assert all(each.grad is not None for each in other.parameters())


def test_other_ranks_than_the_default_ones_are_not_pickled():
    def rank(communicator):
        with pytest.raises(pickle.PicklingError, match="copy its module instead"):
            copy.deepcopy(MergedGradientParallel(mlp(), process_group=communicator))

    run_ranks(2, rank)


def test_one_rank_alone_computes_what_the_module_does_and_misses_gradients_likewise():
    model = MergedGradientParallel(Branches())
    with pytest.raises(CommError, match=r"4 parameters got no gradient .* on rank 0: 'b.weight', 'b.bias', 'never"):
        model(batch(0, 0, 4, 6), 0).sum().backward()
    with pytest.raises(CommError, match="find_unused_parameters=True"):
        model(batch(0, 0, 4, 6), 0)
    module = Branches()
    model = MergedGradientParallel(module, find_unused_parameters=True)
    model(batch(0, 0, 4, 6), 0).sum().backward()
    assert module.b.weight.grad is None and module.a.weight.grad is not None


class Hidden:
    """A result in which no tensors are found."""

    def __init__(self, value):
        self.value = value


class Hiding(nn.Linear):
    def forward(self, inputs):
        return Hidden(super().forward(inputs))


def test_one_rank_alone_gives_groups_at_the_end_of_each_backward_pass():
    module, groups = Hiding(6, 3), []
    model = MergedGradientParallel(module, on_group=groups.append)
    for step in range(3):
        model(batch(0, 0, 4, 6)).value.sum().backward()
        assert len(groups) == step + 1 and {id(each) for each in groups[-1]} == {id(module.weight), id(module.bias)}
    module, passes = mlp(), []
    model = MergedGradientParallel(module)
    model(batch(0, 0, 4, 20)).sum().backward()
    model.on_group = passes.append
    model(batch(0, 0, 4, 20)).sum().backward()
    assert [len(each) for each in passes] == [len(list(module.parameters()))]


def test_one_rank_alone_with_a_result_that_hides_its_tensors():
    model = MergedGradientParallel(Hiding(6, 3))
    for _ in range(2):
        model(batch(0, 0, 4, 6)).value.sum().backward()
    model = MergedGradientParallel(nn.ModuleDict({"used": Hiding(6, 3), "rest": nn.Linear(2, 2)}))
    model.module.forward = lambda inputs: model.module["used"](inputs)
    model(batch(0, 0, 4, 6)).value.sum().backward()
    with pytest.raises(CommError, match=r"2 parameters got no gradient .* on rank 0: 'rest.weight', 'rest.bias'"):
        model(batch(0, 0, 4, 6))


def test_one_rank_alone_with_passes_that_do_not_go_through_it():
    module = nn.Linear(6, 3)
    model = MergedGradientParallel(module)
    for _ in range(3):
        outputs = model(batch(0, 0, 4, 6))
        outputs.sum().backward()
        with model.no_sync():
            model(batch(0, 0, 4, 6)).sum().backward()
        for _ in range(5):
            module(batch(0, 0, 4, 6)).sum().backward()
    outputs = model(batch(0, 0, 4, 6))
    (module.weight.sum() + module.bias.sum()).backward()  # does not reach the outputs, and leaves nothing to come
    model(batch(0, 0, 4, 6)).sum().backward()


def test_one_rank_alone_with_several_forward_passes_before_their_backward_passes():
    module = nn.Linear(6, 3)
    model = MergedGradientParallel(module)
    for _ in range(2):
        inputs = [batch(0, number, 4, 6) for number in range(3)]
        outputs = [model(each) for each in inputs]
        module.zero_grad()
        for number in (0, 2, 1):
            outputs[number].sum().backward()
        assert torch.allclose(module.weight.grad, torch.cat(inputs).sum(0).expand(3, 6), rtol=1e-5, atol=1e-5)
    losses = [model(each).sum() for each in inputs]
    sum(losses).backward()
    model(inputs[0])


def test_one_rank_alone_takes_its_hooks_along():
    module = mlp()
    model = MergedGradientParallel(module)
    assert all(each._post_accumulate_grad_hooks for each in module.parameters())
    del model
    gc.collect()
    assert not any(each._post_accumulate_grad_hooks for each in module.parameters())


B_LACKS = r"2 parameters got no gradient .* on rank 0: 'b.weight', 'b.bias'"


def total(outputs):
    return outputs["a"].sum() + outputs["b"][0].sum()


def test_one_rank_alone_trains_on_after_the_module_was_converted():
    module = Outputs()
    model = MergedGradientParallel(module)
    total(model(batch(0, 0, 4, 6))).backward()
    module.double()
    total(model(batch(0, 0, 4, 6).double())).backward()
    model(batch(0, 0, 4, 6).double())["a"].sum().backward()
    with pytest.raises(CommError, match=B_LACKS):
        model(batch(0, 0, 4, 6).double())
    model = MergedGradientParallel(module, static_graph=True)
    module.float()
    with pytest.raises(UsageError, match=r"parameter 'a.weight' is torch.float32 on cpu now, and was torch.float64"):
        model(batch(0, 0, 4, 6))


@pytest.mark.filterwarnings("ignore:torch._dynamo hit config.recompile_limit")
def test_one_rank_alone_is_compiled_and_runs_on_beyond_the_limit_of_recompilation():
    torch._dynamo.reset()
    module, counter = Outputs(), CompileCounter()
    compiled = torch.compile(MergedGradientParallel(module), backend=counter, dynamic=False)
    try:
        with torch._dynamo.config.patch(recompile_limit=2):
            for size in range(1, 7):
                found = []
                for model in (compiled, module):
                    module.zero_grad()
                    total(model(batch(0, size, size, 6))).backward()
                    found.append([each.grad for each in module.parameters()])
                assert all(torch.equal(*each) for each in zip(*found, strict=True))
            assert 0 < counter.frame_count < 6
            compiled(batch(0, 0, 7, 6))["a"].sum().backward()
            with pytest.raises(CommError, match=B_LACKS):
                compiled(batch(0, 0, 7, 6))
    finally:
        torch._dynamo.reset()


def test_one_rank_alone_refuses_a_converted_module_where_gradients_are_heard_of_one_by_one():
    module = mlp()
    model = MergedGradientParallel(module, on_group=lambda parameters: None)
    module.double()
    with pytest.raises(UsageError, match=r"is torch.float64 on cpu now, and was torch.float32"):
        model(batch(0, 0, 4, 20).double())
    model = MergedGradientParallel(hiding := Hiding(6, 3))
    hiding.double()
    with pytest.raises(UsageError, match=r"parameter 'weight' is torch.float64 on cpu now"):
        model(batch(0, 0, 4, 6).double())


def test_a_forward_pass_without_a_backward_pass_is_forgotten():
    model = MergedGradientParallel(mlp())
    model(batch(0, 0, 4, 20))
    model(batch(0, 0, 4, 20)).sum().backward()
    assert model.module[0].weight.grad is not None


def test_a_parameter_that_is_used_again_after_it_was_complete_is_named():
    with pytest.raises(CommError, match=r"gradient of parameter 'b\.(bias|weight)' came once more"):
        MergedGradientParallel(Checkpointed(True, times=2))(batch(0, 0, 4, 6)).sum().backward()


@pytest.mark.parametrize("option", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_parameters_that_were_all_replaced_are_not_trained_apart_from_each_other(option):
    def rank(ranks):
        model = MergedGradientParallel(mlp(), process_group=ranks, **option)
        model(batch(ranks.rank, 0, 4, 20)).sum().backward()
        model.load_state_dict({name: each.clone() for name, each in model.state_dict().items()}, assign=True)
        with pytest.raises(UsageError, match=r"parameters, such as '0\.weight', have been replaced by others"):
            model(batch(ranks.rank, 1, 4, 20)).sum().backward()

    run_ranks(2, rank)


def test_a_frozen_parameter_that_is_to_be_trained_later_is_refused_unless_it_is_excluded():
    def rank(ranks):
        module = mlp()
        module[0].requires_grad_(False)
        module[2].requires_grad_(False)
        model = MergedGradientParallel(module, process_group=ranks, exclude="2.*")
        module[2].requires_grad_(True)
        model(batch(ranks.rank, 0, 4, 20)).sum().backward()
        module[0].requires_grad_(True)
        with torch.no_grad():
            model(batch(ranks.rank, 1, 4, 20))
        with pytest.raises(UsageError, match=r"frozen .* not averaged: '0\.weight', '0\.bias'\n"):
            model(batch(ranks.rank, 1, 4, 20))
        module[0].requires_grad_(False)
        model(batch(ranks.rank, 1, 4, 20)).sum().backward()

    run_ranks(2, rank)


def test_a_frozen_parameter_that_is_replaced_is_not_kept_and_one_to_be_trained_in_its_place_is_refused():
    def rank(ranks):
        module = mlp()
        module[0].requires_grad_(False)
        model = MergedGradientParallel(module, process_group=ranks)
        before = weakref.ref(module[0].weight)
        module[0].weight = nn.Parameter(torch.zeros(30, 20), requires_grad=False)
        assert before() is None
        model(batch(ranks.rank, 0, 4, 20)).sum().backward()
        module[0].weight = nn.Parameter(torch.zeros(30, 20))
        with pytest.raises(UsageError, match=r"frozen .* not averaged: '0\.weight'\n"):
            model(batch(ranks.rank, 1, 4, 20))
        del module[0].weight
        module[0].weight = torch.zeros(30, 20)
        model(batch(ranks.rank, 1, 4, 20)).sum().backward()

    run_ranks(2, rank)


def test_one_rank_alone_trains_a_parameter_that_was_frozen():
    module = mlp()
    module[0].requires_grad_(False)
    model = MergedGradientParallel(module)
    module[0].requires_grad_(True)
    model(batch(0, 0, 4, 20)).sum().backward()
    assert module[0].weight.grad is not None


def test_modules_that_differ_are_told_apart():
    def make(rank, how):
        module = mlp()
        if rank == 1:
            if how == "type":
                module = module.double()
            elif how == "frozen":
                module[0].weight.requires_grad_(False)
            elif how == "more":
                module.append(nn.Linear(5, 5))
            elif how == "fewer":
                module = module[:-1]
            elif how == "name":
                module = nn.ModuleDict({"other": module})
        return module

    expected = {
        "type": "parameter '0.weight' is float64",
        "frozen": "float32 (30, 20) on cpu, frozen there",
        "more": "it has parameter '5.weight' besides",
        "fewer": "it lacks parameter '4.weight'",
        "name": "parameter 'other.0.weight' stands there where rank 0 has parameter '0.weight'",
    }
    for how, text in expected.items():
        with pytest.raises(RankDisagreement) as error:
            run_ranks(2, lambda ranks, how=how: MergedGradientParallel(make(ranks.rank, how), process_group=ranks))
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"schedule": "wfbp"}, "schedule='wfbp' on rank 1, and 'auto' on 0"),
        ({"find_unused_parameters": True}, "find_unused_parameters=True on rank 1, and False on 0"),
        ({"init_sync": False}, "init_sync=False on rank 1, and True on 0"),
        ({"broadcast_buffers": False}, "broadcast_buffers=False on rank 1, and True on 0"),
        ({"forward_sync_buffers": True}, "forward_sync_buffers=True on rank 1, and None on 0"),
        ({"own_group": "0.*"}, r"own_group=\('0\.\*',\) on rank 1, and \(\) on 0"),
        ({"plan_file": "missing.json"}, "plan_file='a file' on rank 1, and None on 0"),
    ],
)
def test_arguments_that_differ_between_ranks_are_named(arguments, text):
    def rank(ranks):
        MergedGradientParallel(mlp(), process_group=ranks, **(arguments if ranks.rank == 1 else {}))

    with pytest.raises(RankDisagreement, match=f"MergedGradientParallel was called with {text}"):
        run_ranks(2, rank)


def test_files_may_lie_in_other_places_on_other_ranks():
    def rank(ranks):
        MergedGradientParallel(mlp(), process_group=ranks, plan_file=f"{ranks.rank}.json", peer_timeout=9 - ranks.rank)

    run_ranks(2, rank)


def test_names_may_be_excluded_in_another_order_on_each_rank():
    def rank(ranks):
        excluded = ["0.*", "2.*"]
        MergedGradientParallel(mlp(), process_group=ranks, exclude=excluded[:: 1 - 2 * ranks.rank])

    run_ranks(2, rank)


def test_parameters_and_buffers_are_those_of_rank_0_at_the_start():
    def rank(communicator):
        module = cnn()
        module[1].running_mean.fill_(communicator.rank + 1)
        module[1].num_batches_tracked.fill_(communicator.rank + 7)
        with torch.no_grad():
            module[0].weight.fill_(communicator.rank + 1)
        MergedGradientParallel(module, process_group=communicator)
        return (
            module[1].running_mean[0].item(),
            module[1].num_batches_tracked.item(),
            module[0].weight[0, 0, 0, 0].item(),
        )

    assert run_ranks(2, rank) == [(1.0, 7, 1.0)] * 2


def test_a_rank_may_repeat_a_forward_pass_that_failed_though_others_broadcast_buffers_once():
    def rank(communicator):
        module = cnn()
        model = MergedGradientParallel(module, process_group=communicator)
        for step in range(3):
            if (communicator.rank, step) == (1, 1):
                with pytest.raises(RuntimeError, match="shape"):
                    model(batch(1, step, 4, 1, 9, 9))
            model(batch(communicator.rank, step, 4, 1, 8, 8)).sum().backward()
        return module[7].weight.grad

    assert torch.equal(*run_ranks(2, rank))


def test_buffers_are_rank_0s_in_an_evaluation_after_a_forward_pass_that_failed_on_all_ranks():
    def rank(communicator):
        module = cnn()
        model = MergedGradientParallel(module, process_group=communicator)
        model(batch(communicator.rank, 0, 4, 1, 8, 8)).sum().backward()
        with pytest.raises(RuntimeError, match="shape"):
            model(batch(communicator.rank, 1, 4, 1, 9, 9))
        with torch.no_grad():
            return model.eval()(batch(0, 2, 4, 1, 8, 8))

    assert torch.equal(*run_ranks(2, rank))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schedule": "fast"}, "there is no schedule 'fast'"),
        ({"allreduce_type": "int8"}, "allreduce_type='int8'"),
        ({"device_ids": [0]}, "MergedGradientParallel has no argument 'device_ids'"),
        ({"bucket_cap_mb": 1}, "Did you mean 'bucket_mb'?"),
        ({"transport": "tcp"}, "there is no transport 'tcp'"),
        ({"bucket_mb": 0}, "bucket_mb=0 is no size"),
        ({"calibration_iterations": -1}, "is below 0"),
        ({"exclude": "nothing*"}, "exclude: no name fits 'nothing*'"),
        ({"own_group": ["x"]}, "own_group: no name fits 'x'"),
        ({"exclude": "*"}, "no parameter that requires a gradient"),
    ],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(UsageError) as error:
        MergedGradientParallel(mlp(), **options)
    assert text in str(error.value)


def test_modules_that_cannot_be_averaged_are_refused():
    with pytest.raises(UsageError, match=r"'0' has sparse gradients"):
        MergedGradientParallel(nn.Sequential(nn.Embedding(3, 2, sparse=True)))
    with pytest.raises(UsageError, match="device 'meta'"):
        MergedGradientParallel(mlp().to("meta"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules are new, PyTorch says
        lazy = nn.LazyLinear(3)
    with pytest.raises(UsageError, match="'weight' is not initialized"):
        MergedGradientParallel(lazy)


def test_a_gradient_that_turns_out_sparse_is_refused():
    class Sparse(nn.Linear):
        def forward(self, rows):
            return nn.functional.embedding(rows, self.weight, sparse=True)

    def rank(ranks):
        model = MergedGradientParallel(Sparse(3, 5, bias=False), process_group=ranks)
        with pytest.raises(UsageError, match="parameter 'weight' has a sparse gradient"):
            model(torch.tensor([1, 2])).sum().backward()

    run_ranks(2, rank)


def test_a_process_outside_the_process_group_is_refused():
    with pytest.raises(UsageError, match="this process is no member of the process group"):
        MergedGradientParallel(mlp(), process_group=dist.GroupMember.NON_GROUP_MEMBER)


def test_join_needs_a_process_group():
    with pytest.raises(CommError, match="process group"):
        MergedGradientParallel(mlp()).join()
