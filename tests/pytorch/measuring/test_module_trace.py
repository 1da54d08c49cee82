"""Traces of modules: what is measured, what stays as it is, and that the tools read them."""

import pytest
import torch
from torch import nn

from mgcaffe.comm.planning.trace import read_trace
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, UsageError
from mgcaffe.pytorch import MergedGradientParallel, trace_module
from mgcaffe.tools.main import main
from tests.support.ddp_models import GPT, Branches, Checkpointed, Types, cnn, mlp


def inputs_of(kind):
    return {"cnn": torch.randn(4, 1, 8, 8), "lstm": torch.randn(3, 2, 4), "gpt": torch.randint(0, 9, (4, 9))}.get(
        kind, torch.randn(2, 6)
    )


MODULES = {
    "cnn": cnn,
    "gpt": GPT,
    "lstm": lambda: nn.LSTM(4, 8, 2),
    "types": Types,
    "checkpointed": lambda: Checkpointed(False),
    "compiled": lambda: torch.compile(nn.Linear(6, 3), backend="eager"),
    "scripted": lambda: torch.jit.script(nn.Linear(6, 3)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", MODULES)
def test_every_parameter_is_measured_and_the_module_stays_as_it_is(kind):
    module, inputs = MODULES[kind](), inputs_of(kind)
    parameters = dict(module.named_parameters())
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    gradients = {name: torch.ones_like(each) for name, each in parameters.items()}
    for name, each in parameters.items():
        each.grad = gradients[name]
    random = torch.get_rng_state()
    trace = trace_module(module, inputs, passes=2)
    assert {layer.name for layer in trace.layers if layer.elements} == set(parameters)
    assert trace.forward_s > 0 and trace.backward_s > 0 and all(layer.backward_s >= 0 for layer in trace.layers)
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
    assert all(each.grad is gradients[name] for name, each in parameters.items())
    assert torch.equal(random, torch.get_rng_state()) and module.training
    assert not any(each._post_accumulate_grad_hooks for each in parameters.values())
    output = module(inputs)
    (output[0] if isinstance(output, tuple) else output).sum().backward()  # it trains on


def test_hooks_of_an_optimizer_do_not_see_a_trace():
    module = mlp()
    stepped = []
    for each in module.parameters():
        each.register_post_accumulate_grad_hook(stepped.append)
    trace_module(module, torch.randn(2, 20), passes=1)
    assert not stepped


def test_times_follow_what_takes_long():
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            end = torch.ones(1)
            import time

            time.sleep(0.02)
            return gradient * end

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)

        def forward(self, x):
            return self.high(Slow.apply(self.low(x)))

    trace = trace_module(Model(), torch.randn(2, 6), passes=3)
    low, high = (layer for layer in trace.layers if layer.elements)
    assert (low.name, high.name, low.elements) == ("low.weight", "high.weight", 36)
    assert low.backward_s >= 0.02 > high.backward_s or low.backward_s > 2 * high.backward_s


def test_sizes_are_what_is_sent():
    elements = {layer.name: layer.elements for layer in trace_module(Types(), torch.randn(2, 6), passes=1).layers}
    assert [elements[f"{part}.weight"] for part in "abc"] == [36, 72, 36]  # float32, float64, and bfloat16 as float32


def test_what_gets_no_gradient_is_left_out_and_named(tmp_path):
    path = tmp_path / "trace.csv"
    trace = trace_module(Branches(), (torch.randn(2, 6), 0), path, passes=1)
    assert {layer.name.partition(".")[0] for layer in trace.layers if layer.elements} == {"a", "c"}
    assert "# without a gradient: 'b.weight', 'b.bias', 'never.weight', 'never.bias'" in path.read_text()


def test_engine_plan_and_engine_simulate_read_it(tmp_path, capsys):
    path, plan = str(tmp_path / "mlp.csv"), str(tmp_path / "plan.json")
    trace = trace_module(mlp(), torch.randn(8, 20), path, passes=2)
    assert [layer.name for layer in read_trace(path).layers] == [layer.name for layer in trace.layers]
    network = ["--network", "affine:a=1e-5,b=1e-9"]
    options = ["--workers", "4", "--schedule", "wfbp", "--export", plan]
    assert main(["plan", "--trace", path, *network, *options]) == 0
    output = capsys.readouterr().out
    assert "6 layers with" in output and "0.weight" in output and "4.bias" in output
    assert main(["simulate", path, *network, "--workers", "2,4", "--schedules", "mgwfbp,optimal"]) == 0
    assert "optimal" in capsys.readouterr().out


def test_a_plan_from_a_trace_can_be_pinned(tmp_path, train):
    path, plan = str(tmp_path / "mlp.csv"), tmp_path / "plan.json"
    trace_module(mlp(), torch.randn(8, 20), path, passes=2)
    network = ["--network", "affine:a=1e-5,b=1e-9"]
    assert main(["plan", "--trace", path, *network, "--workers", "2", "--schedule", "wfbp", "--export", str(plan)]) == 0
    pinned = train(steps=2, plan_file=plan, finish=lambda model, _: model.plan)[0]
    assert pinned.schedule == "wfbp" and len(pinned.groups) == 6


def test_a_wrapped_module_is_measured_inside():
    model = MergedGradientParallel(mlp())
    assert [layer.name for layer in trace_module(model, torch.randn(2, 20), passes=1).layers][-1] == "4.bias"
    assert model.reports == []


def test_what_cannot_be_traced_is_said(tmp_path):
    with pytest.raises(UsageError, match="no parameter that requires a gradient"):
        trace_module(nn.ReLU(), torch.randn(2))
    with pytest.raises(UsageError, match="of type function"):
        trace_module(lambda x: x, torch.randn(2))
    with pytest.raises(UsageError, match="parameter 'weight' is not initialized"):
        trace_module(nn.LazyLinear(3), torch.randn(2, 2))
    with pytest.raises(UsageError, match="passes=0"):
        trace_module(mlp(), torch.randn(2, 20), passes=0)
    with pytest.raises(EngineError) as caught:
        trace_module(mlp(), torch.randn(2, 20), tmp_path / "absent" / "trace.csv", passes=1)
    assert caught.value.exit_code == EXIT_CANNOT_WRITE
