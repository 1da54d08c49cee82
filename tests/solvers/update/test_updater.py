"""The update against one written here in numpy, in float64, and the layout of what it works on."""

import numpy as np
import pytest
import torch

from mgcaffe.engine.arena import ParameterArena
from mgcaffe.engine.parameter import Parameter
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.update import updater as updater_module
from mgcaffe.solvers.update.groups import make_groups
from mgcaffe.solvers.update.updater import Updater, clip_factor, solver_type

MULTIPLIERS = [(1.0, 1.0), (2.0, 0.0), (1.0, 1.0), (0.5, 3.0), (0.0, 1.0), (2.0, 0.0)]
COUNTS = [7, 3, 12, 5, 4, 1]


def make_arena(dtype=torch.float64, device="cpu"):
    parameters = [
        Parameter((count,), lr_mult=rate, decay_mult=decay)
        for count, (rate, decay) in zip(COUNTS, MULTIPLIERS, strict=True)
    ]
    layers = [(index, f"layer{index}", parameter) for index, parameter in enumerate(parameters)]
    arena = ParameterArena(layers, dtype, torch.device(device))
    generator = torch.Generator().manual_seed(5)
    arena.data.copy_(torch.randn(arena.data.shape, generator=generator, dtype=torch.float64))
    return arena, parameters


def gradient(arena, iteration):
    generator = torch.Generator().manual_seed(100 + iteration)
    values = torch.randn(arena.diff.shape, generator=generator, dtype=torch.float64)
    values[arena.trainable :] = 0  # the net leaves the gradients of frozen parameters alone
    return values


def reference(parameters, arena, param, rates, iter_size=1, clip=-1.0):
    """SGD by the book, one parameter at a time: the values after each update."""
    values = {id(p): p.data.double().numpy().copy() for p in parameters}
    history = {id(p): np.zeros(p.count) for p in parameters}
    for iteration, rate in enumerate(rates):
        flat = gradient(arena, iteration)
        gradients = {id(p): arena.view(flat, p).numpy() for p in parameters}
        norm = np.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        factor = clip / norm if 0 <= clip < norm else 1.0
        for p in parameters:
            w, h = values[id(p)], history[id(p)]
            g = gradients[id(p)] * factor / iter_size
            decay = param.weight_decay * p.decay_mult
            g = g + decay * (np.sign(w) if param.regularization_type == "L1" else w)
            h[:] = param.momentum * h + rate * p.lr_mult * g
            w -= h
    return [values[id(p)] for p in parameters], [history[id(p)] for p in parameters]


@pytest.mark.parametrize("regularization", ["L1", "L2"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize(("iter_size", "clip"), [(1, -1.0), (3, 0.7), (1, 1e9)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_sgd_is_caffes_formula(regularization, momentum, decay, iter_size, clip, dtype, tolerance):
    param = SolverParameter(momentum=momentum, weight_decay=decay, regularization_type=regularization)
    arena, parameters = make_arena(dtype)
    rates = [0.1, 0.1, 0.03, 0.0, 0.02]
    expected, histories = reference(parameters, arena, param, rates, iter_size, clip)
    updater = Updater(param, arena)
    for iteration, rate in enumerate(rates):
        arena.diff.copy_(gradient(arena, iteration))
        updater.apply(rate, iteration, clip_factor(arena, clip) / iter_size)
    for parameter, values, history in zip(parameters, expected, histories, strict=True):
        np.testing.assert_allclose(parameter.data.numpy(), values, rtol=tolerance, atol=tolerance)
        kept = arena.view(updater.histories[0], parameter).numpy()
        np.testing.assert_allclose(kept, history, rtol=tolerance, atol=tolerance)


def test_small_pieces_give_the_same_bits_as_large_ones(monkeypatch):
    results = []
    for piece in (4, 1 << 20):
        monkeypatch.setattr(updater_module, "_PIECE", piece)
        arena, _ = make_arena()
        updater = Updater(SolverParameter(momentum=0.9, weight_decay=0.1, regularization_type="L1"), arena)
        for iteration in range(3):
            arena.diff.copy_(gradient(arena, iteration))
            updater.apply(0.1, iteration)
        results.append(arena.data.clone())
    assert torch.equal(*results)


def test_sgd_goes_on_without_the_fused_kernel(monkeypatch):
    results = []
    for works in (True, False):
        monkeypatch.setattr(updater_module, "fused_sgd_works", lambda *_, works=works: works)
        arena, _ = make_arena(torch.float32)
        updater = Updater(SolverParameter(momentum=0.9, weight_decay=0.1), arena)
        for iteration in range(3):
            arena.diff.copy_(gradient(arena, iteration))
            updater.apply(0.1, iteration, 0.5)
        results.append((arena.data.clone(), updater.histories[0]))
    torch.testing.assert_close(results[0], results[1])


def test_frozen_parameters_never_change():
    arena, parameters = make_arena()
    before = parameters[4].data.clone()
    updater = Updater(SolverParameter(momentum=0.9, weight_decay=1.0), arena)
    updater.apply(0.1, 0)
    assert torch.equal(parameters[4].data, before)


def test_slices_of_equal_multipliers_form_one_group():
    arena, _ = make_arena()
    groups = make_groups(arena, [arena.like()])
    assert [(group.lr_mult, group.decay_mult) for group in groups] == [(1, 1), (2, 0), (0.5, 3)]
    assert [[len(view) for view in group.weights] for group in groups] == [[7, 12], [3, 1], [5]]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_snapshot_diff_finds_the_last_step_in_the_gradients(momentum, dtype):
    arena, _ = make_arena(dtype)
    before = arena.data.clone()
    updater = Updater(SolverParameter(momentum=momentum, weight_decay=0.1, snapshot_diff=True), arena)
    arena.diff.copy_(gradient(arena, 0))
    updater.apply(0.1, 0)
    torch.testing.assert_close(arena.diff[: arena.trainable], (before - arena.data)[: arena.trainable])


def test_without_momentum_the_history_is_the_step_that_lies_in_the_place_of_the_gradients():
    arena, _ = make_arena()
    updater = Updater(SolverParameter(weight_decay=0.1), arena)
    assert not updater.histories[0].any()
    for iteration in range(2):
        before = arena.data.clone()
        arena.diff.copy_(gradient(arena, iteration))
        updater.apply(0.1, iteration)
        (history,) = updater.histories
        assert history.data_ptr() == arena.diff.data_ptr()
        torch.testing.assert_close(history, before - arena.data)


def test_without_momentum_no_history_is_made_of_gradients_that_are_not_applied():
    arena, _ = make_arena()
    updater = Updater(SolverParameter(), arena)
    updater.apply(0.1, 0)
    arena.diff.fill_(torch.nan)
    assert not updater.histories[0].any()
    assert arena.diff.isnan().all()


@pytest.mark.parametrize(
    "fields",
    [
        "momentum_policy: 'poly' max_momentum: 0.9 max_iter: 9",
        "larc: true larc_turbo: true",
        "decoupled_weight_decay: true weight_decay: 0.1 snapshot_diff: true",
        "comm_param { hogwild_threads: 2 }",
    ],
)
def test_a_history_that_is_another_than_the_step_or_is_read_lies_apart(fields):
    arena, _ = make_arena()
    updater = Updater(parse_solver(fields).param, arena)
    arena.diff.copy_(gradient(arena, 0))
    updater.apply(0.1, 0)
    assert updater.histories[0].data_ptr() != arena.diff.data_ptr()


def test_the_clipping_norm_spans_all_parameters():
    arena, _ = make_arena(torch.float32)
    arena.diff.copy_(gradient(arena, 0))
    norm = float(arena.diff.double().norm())
    assert clip_factor(arena, norm / 4) == pytest.approx(0.25, rel=1e-6)
    assert clip_factor(arena, norm * 1.01) == 1.0
    assert clip_factor(arena, -1) == 1.0


def nesterov(w, g, h, param, eta, t):
    new = param.momentum * h[0] + eta * g
    step = (1 + param.momentum) * new - param.momentum * h[0]
    return step, [new]


def adagrad(w, g, h, param, eta, t):
    new = h[0] + g**2
    return eta * g / (np.sqrt(new) + param.delta), [new]


def rmsprop(w, g, h, param, eta, t):
    new = param.rms_decay * h[0] + (1 - param.rms_decay) * g**2
    return eta * g / (np.sqrt(new) + param.delta), [new]


def adadelta(w, g, h, param, eta, t):
    squares = param.momentum * h[0] + (1 - param.momentum) * g**2
    step = g * np.sqrt((h[1] + param.delta) / (squares + param.delta))
    return eta * step, [squares, param.momentum * h[1] + (1 - param.momentum) * step**2]


def adam(w, g, h, param, eta, t):
    mean = param.momentum * h[0] + (1 - param.momentum) * g
    square = param.momentum2 * h[1] + (1 - param.momentum2) * g**2
    correction = np.sqrt(1 - param.momentum2**t) / (1 - param.momentum**t)
    return eta * correction * mean / (np.sqrt(square) + param.delta), [mean, square]


@pytest.mark.parametrize(
    ("name", "rule", "fields"),
    [
        ("Nesterov", nesterov, {"momentum": 0.9}),
        ("AdaGrad", adagrad, {"delta": 1e-6}),
        ("RMSProp", rmsprop, {"rms_decay": 0.95, "delta": 1e-5}),
        ("AdaDelta", adadelta, {"momentum": 0.95, "delta": 1e-6}),
        ("Adam", adam, {"momentum": 0.9, "momentum2": 0.99}),
    ],
)
@pytest.mark.parametrize("regularization", ["L1", "L2"])
def test_the_other_rules_are_caffes_formulas(name, rule, fields, regularization):
    param = SolverParameter(type=name, weight_decay=0.05, regularization_type=regularization, **fields)
    arena, parameters = make_arena()
    updater = Updater(param, arena)
    values = {id(p): p.data.numpy().copy() for p in parameters}
    histories = {id(p): [np.zeros(p.count)] * len(updater.histories) for p in parameters}
    for iteration, rate in enumerate([0.1, 0.05, 0.2]):
        flat = gradient(arena, iteration)
        arena.diff.copy_(flat)
        updater.apply(rate, iteration, 0.5)
        for p in parameters:
            w = values[id(p)]
            decayed = np.sign(w) if regularization == "L1" else w
            g = 0.5 * arena.view(flat, p).numpy() + param.weight_decay * p.decay_mult * decayed
            if p.lr_mult:
                step, histories[id(p)] = rule(w, g, histories[id(p)], param, rate * p.lr_mult, iteration + 1)
                values[id(p)] = w - step
    for p in parameters:
        np.testing.assert_allclose(p.data.numpy(), values[id(p)], rtol=1e-12, atol=1e-14)
        for flat, expected in zip(updater.histories, histories[id(p)], strict=True):
            np.testing.assert_allclose(arena.view(flat, p).numpy(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "AdaGrad" momentum: 0.5', "momentum is 0.5; solver type AdaGrad has no momentum"),
        ('type: "RMSProp" momentum: 0.5', "RMSProp has no momentum"),
        ('type: "RMSProp" rms_decay: 1', "rms_decay is 1 and must be"),
        ('type: "Adam" momentum: 1', "momentum is 1; with Adam"),
    ],
)
def test_fields_that_a_rule_cannot_follow_are_refused(text, message):
    source = parse_solver(text, file="s.prototxt")
    arena, _ = make_arena()
    with pytest.raises(SolverError) as caught:
        Updater(source.param, arena, source)
    assert message in str(caught.value)
    assert str(caught.value).startswith("s.prototxt:1:")


def test_adam_without_momentum_warns():
    arena, _ = make_arena()
    assert "momentum (beta 1)" in Updater(SolverParameter(type="Adam"), arena).warnings[0]
    assert Updater(SolverParameter(type="Adam", momentum=0.9), arena).warnings == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "Sgd"', "s.prototxt:1:1: unknown solver type 'Sgd'. Did you mean 'SGD'"),
        ('type: "Newton"', "known types: SGD"),
        ("solver_type: SAG", "unknown solver type 'SAG'"),
        ('regularization_type: "L3"', "s.prototxt:1:1: unknown regularization_type 'L3'"),
    ],
)
def test_unknown_types_are_refused_with_their_place(text, message):
    source = parse_solver(text, file="s.prototxt")
    arena, _ = make_arena()
    with pytest.raises(SolverError) as caught:
        Updater(source.param, arena, source)
    assert message in str(caught.value)


def test_sgd_is_the_default():
    assert solver_type(SolverParameter()) == "SGD"


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("policy", ["poly", "opt"])
def test_sgd_follows_momentum_and_decay_policies_and_a_warm_up(policy, dtype, tolerance):
    """NVIDIA's policies and Intel's correction; momentum is 0 in the first update, where no fused kernel helps."""
    fields = {"momentum": 0.0, "momentum_policy": policy, "max_momentum": 0.75, "momentum_power": 2, "max_iter": 8}
    decays = {"weight_decay": 0.5, "weight_decay_policy": "poly", "max_weight_decay": 0.125, "weight_decay_power": 0.5}
    warm_up = {"base_lr": 0.25, "warmup_iter": 3, "warmup_start_lr": 0.0625}
    arena, parameters = make_arena(dtype)
    updater = Updater(SolverParameter(**fields, **decays, **warm_up), arena)
    rates = [0.0625 + 0.1875 * i / 3 for i in range(3)] + [0.25, 0.125, 0.0625]
    values = {id(p): p.data.double().numpy().copy() for p in parameters}
    history = {id(p): np.zeros(p.count) for p in parameters}
    for iteration, rate in enumerate(rates):
        momentum = 0.75 * (iteration / 8) ** 2 if policy == "poly" else min(0.75, (1 - 0.5 * np.sqrt(rate)) ** 2)
        if 0 < iteration < 3:
            momentum *= rate / rates[iteration - 1]
        decay = 0.5 + (0.125 - 0.5) * (iteration / 8) ** 0.5
        flat = gradient(arena, iteration)
        for p in parameters:
            w, h = values[id(p)], history[id(p)]
            h[:] = momentum * h + rate * p.lr_mult * (arena.view(flat, p).numpy() + decay * p.decay_mult * w)
            w -= h
        arena.diff.copy_(flat)
        updater.apply(rate, iteration)
        for p in parameters:
            np.testing.assert_allclose(p.data.double().numpy(), values[id(p)], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_decoupled_decay_scales_the_weights_and_leaves_histories_alone(kind):
    """W <- (1 - rate lr_mult decay decay_mult) W - step, where the step and its histories know no decay."""
    fields = {"type": kind, "momentum": 0.0 if kind in ("AdaGrad", "RMSProp") else 0.75}
    arena, _ = make_arena()
    updater = Updater(SolverParameter(weight_decay=0.25, decoupled_weight_decay=True, **fields), arena)
    other, plain = make_arena()[0], None
    for iteration, rate in enumerate([0.5, 0.25, 0.125]):
        before = arena.data.clone()
        plain = plain or Updater(SolverParameter(**fields), other)
        other.data.copy_(before)
        for each in (arena, other):
            each.diff.copy_(gradient(arena, iteration))
        updater.apply(rate, iteration)
        plain.apply(rate, iteration)
        for piece in arena.slices:
            part = slice(piece.offset, piece.offset + piece.count)
            decayed = rate * piece.lr_mult * 0.25 * piece.decay_mult * before[part]
            torch.testing.assert_close(arena.data[part], other.data[part] - decayed, rtol=1e-12, atol=1e-12)
        assert all(torch.equal(mine, its) for mine, its in zip(updater.histories, plain.histories, strict=True))


def test_decoupled_adam_is_pytorchs_adamw():
    """Where delta is 0, since PyTorch adds its eps elsewhere."""
    parameter = Parameter((6,), lr_mult=1.0, decay_mult=1.0)
    arena = ParameterArena([(0, "layer", parameter)], torch.float64, torch.device("cpu"))
    arena.data.copy_(torch.linspace(-1, 1, 6))
    theirs = arena.data.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=0.125, betas=(0.75, 0.875), eps=0.0, weight_decay=0.25)
    fields = {"momentum": 0.75, "momentum2": 0.875, "delta": 0.0, "weight_decay": 0.25}
    updater = Updater(SolverParameter(type="Adam", decoupled_weight_decay=True, **fields), arena)
    for iteration in range(6):
        theirs.grad = gradient(arena, iteration)
        arena.diff.copy_(theirs.grad)
        optimizer.step()
        updater.apply(0.125, iteration)
    torch.testing.assert_close(arena.data, theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decoupled_decay_is_part_of_the_step_that_snapshot_diff_keeps(dtype):
    arena, _ = make_arena(dtype)
    param = SolverParameter(momentum=0.9, weight_decay=0.25, decoupled_weight_decay=True, snapshot_diff=True)
    updater = Updater(param, arena)
    for iteration in range(2):
        before = arena.data.clone()
        arena.diff.copy_(gradient(arena, iteration))
        updater.apply(0.1, iteration)
        torch.testing.assert_close(arena.diff[: arena.trainable], (before - arena.data)[: arena.trainable])


def test_sgd_without_momentum_keeps_its_history():
    arena, _ = make_arena(torch.float32)
    updater = Updater(SolverParameter(), arena)
    arena.diff.copy_(gradient(arena, 0))
    expected = 0.5 * arena.diff[0]
    updater.apply(0.5, 0)
    assert updater.histories[0][0] == expected
