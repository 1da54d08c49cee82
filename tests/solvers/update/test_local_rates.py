"""LARS and LARC against the forks' formulas, written here in numpy."""

import numpy as np
import pytest
import torch

from mgcaffe.engine.arena import ParameterArena
from mgcaffe.engine.parameter import Parameter
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, parse_solver
from mgcaffe.solvers.update.updater import Updater

# (layer, values, lr_mult, decay_mult)
PARAMETERS = [(0, 12, 1.0, 1.0), (0, 3, 1.0, 0.0), (1, 7, 1.0, 1.0), (2, 5, 0.0, 1.0), (3, 9, 1.0, 2.0)]
RATES = [0.5, 0.4, 0.3, 0.0, 0.2]
SCALE = 0.5


def make_arena(dtype=torch.float64, parameters=PARAMETERS):
    entries = [
        (layer, f"layer{layer}", Parameter((count,), lr_mult=rate, decay_mult=decay))
        for layer, count, rate, decay in parameters
    ]
    arena = ParameterArena(entries, dtype, torch.device("cpu"))
    arena.data.copy_(torch.from_numpy(np.random.default_rng(3).standard_normal(arena.data.numel())))
    return arena


def gradient(arena, iteration):
    values = np.random.default_rng(50 + iteration).standard_normal(arena.diff.numel())
    values[arena.trainable :] = 0
    return values


def reference(arena, local_rate, momentum=0.875, decay=0.0625):
    """The weights after all updates, parameter by parameter; `local_rate(rate, |w|, |g|)` is the formula."""
    weights = arena.data.double().numpy().copy()
    history = np.zeros_like(weights)
    for iteration, rate in enumerate(RATES):
        flat = gradient(arena, iteration) * SCALE
        for piece in arena.slices:
            if piece.lr_mult == 0:
                continue
            part = slice(piece.offset, piece.offset + piece.count)
            w, g, h = weights[part], flat[part], history[part]
            eta = local_rate(rate, np.sqrt((w**2).sum()), np.sqrt((g**2).sum()))
            h[:] = momentum * h + eta * (g + decay * piece.decay_mult * w)
            w -= h
    return weights


def train(arena, parts=None, **fields):
    updater = Updater(SolverParameter(momentum=0.875, weight_decay=0.0625, **fields), arena)
    for iteration, rate in enumerate(RATES):
        arena.diff.copy_(torch.from_numpy(gradient(arena, iteration)))
        if parts is None:
            updater.apply(rate, iteration, SCALE)
        else:
            for offset, count in parts:
                updater.apply_part(offset, count, rate, iteration, SCALE)
    return arena.data


KINDS = {
    "lars": ({"local_lr_auto": True, "local_gw_ratio": 0.25}, lambda rate, w, g: rate * 0.25 * w / (g + 0.0625 * w)),
    "scale": ({"larc": True, "larc_eta": 0.5}, lambda rate, w, g: rate * (1 - 0.875) * 0.5 * w / g),
    "clip": (
        {"larc": True, "larc_eta": 2, "larc_policy": "clip"},
        lambda rate, w, g: min(rate, (1 - 0.875) * 2 * w / g),
    ),
}


def turbo_reference(arena, policy, eta, momentum=0.875, decay=0.0625):
    """The weights after all updates with larc_turbo, and each parameter's c."""
    weights = arena.data.double().numpy().copy()
    history = np.zeros_like(weights)
    seen = [0.0] * len(arena.slices)
    for iteration, rate in enumerate(RATES):
        flat = gradient(arena, iteration) * SCALE
        for index, piece in enumerate(arena.slices):
            if piece.lr_mult == 0:
                continue
            part = slice(piece.offset, piece.offset + piece.count)
            w, g, h = weights[part], flat[part], history[part]
            norm = np.linalg.norm
            cosine = g @ h / (norm(g) * norm(h)) if norm(h) > 0 else 0.0
            seen[index] = 0.95 * seen[index] + 0.05 * cosine
            factor = (1 - momentum) * eta * norm(w) / norm(g) - 0.9 * seen[index]
            eta_of_it = min(rate, factor) if policy == "clip" else rate * factor
            h[:] = momentum * h + eta_of_it * (g + decay * piece.decay_mult * w)
            w -= h
    return weights, [c for c, piece in zip(seen, arena.slices, strict=True) if piece.lr_mult]


@pytest.mark.parametrize("policy", ["scale", "clip"])
@pytest.mark.parametrize("parts", [None, "layers"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_larc_turbo_slows_down_what_goes_on_in_its_direction(policy, parts, dtype, tolerance):
    arena = make_arena(dtype)
    expected, seen = turbo_reference(arena, policy, eta=0.5)
    param = SolverParameter(
        momentum=0.875, weight_decay=0.0625, larc=True, larc_turbo=True, larc_policy=policy, larc_eta=0.5
    )
    updater = Updater(param, arena)
    assert arena.data.storage_offset() == 0
    segments = [(0, arena.trainable)] if parts is None else [(o, c) for _, _, o, c in arena.segments()][::-1]
    for iteration, rate in enumerate(RATES):
        arena.diff.copy_(torch.from_numpy(gradient(arena, iteration)))
        for offset, count in segments:
            updater.apply_part(offset, count, rate, iteration, SCALE)
    np.testing.assert_allclose(arena.data.double().numpy(), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(updater.correlations, seen, rtol=tolerance, atol=tolerance)
    assert any(abs(c) > 1e-3 for c in seen)


def test_larc_turbo_goes_on_from_what_a_snapshot_holds():
    fields = {"larc": True, "larc_turbo": True, "larc_eta": 0.5, "momentum": 0.875}
    whole, parted = make_arena(), make_arena()
    first, second = Updater(SolverParameter(**fields), whole), Updater(SolverParameter(**fields), parted)
    for iteration, rate in enumerate(RATES):
        for arena, updater in ((whole, first), (parted, second)):
            arena.diff.copy_(torch.from_numpy(gradient(arena, iteration)))
            updater.apply(rate, iteration)
        again = Updater(SolverParameter(**fields), parted)
        for new, old in zip(again.histories, second.histories, strict=True):
            new.copy_(old)
        assert again.resume(second.correlations) is None
        second = again
    assert torch.equal(whole.data, parted.data) and first.correlations == second.correlations
    assert "larc_turbo" in second.resume([]) and "begins anew" in second.resume([0.5])
    assert Updater(SolverParameter(larc=True), make_arena()).resume([]) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_each_parameter_has_the_rate_of_the_forks_formula(kind, dtype, tolerance):
    fields, formula = KINDS[kind]
    arena = make_arena(dtype)
    expected = reference(arena, formula)
    result = train(arena, **fields).double().numpy()
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def test_clip_takes_the_lower_rate_on_both_sides():
    _, formula = KINDS["clip"]
    seen = []

    def watched(rate, w, g):
        seen.append((1 - 0.875) * 2 * w / g < rate)
        return formula(rate, w, g)

    reference(make_arena(), watched)
    assert 0 < sum(seen) < len(seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rates_do_not_depend_on_how_gradients_were_merged(kind, dtype):
    fields, _ = KINDS[kind]
    arena = make_arena(dtype)
    whole = train(arena, **fields)
    segments = [(offset, count) for _, _, offset, count in arena.segments()]
    assert len(segments) == 3
    merged = [segments[2], (0, segments[0][1] + segments[1][1])]
    for parts in (segments[::-1], merged):
        assert torch.equal(train(make_arena(dtype), parts, **fields), whole)


@pytest.mark.parametrize("fields", [{"larc": True}, {"local_lr_auto": True}])
def test_a_norm_of_zero_leaves_the_rate_as_it_is(fields):
    arena = make_arena()
    arena.data[: PARAMETERS[0][1]] = 0
    arena.diff.copy_(torch.from_numpy(gradient(arena, 0)))
    step = arena.diff[: PARAMETERS[0][1]].clone()
    Updater(SolverParameter(**fields), arena).apply(0.5, 0)
    torch.testing.assert_close(arena.data[: PARAMETERS[0][1]], -0.5 * step)


def test_larc_reads_the_momentum_of_the_iteration_without_a_warm_ups_correction():
    fields = {"larc": True, "larc_eta": 1, "momentum": 0.5, "momentum_policy": "poly", "max_momentum": 0.75}
    arena = make_arena(parameters=[(0, 6, 1.0, 1.0)])
    param = SolverParameter(**fields, max_iter=4, base_lr=1, warmup_iter=4, warmup_start_lr=0.1)
    arena.diff.fill_(0.5)
    before = arena.data.clone()
    Updater(param, arena).apply(2.0, 2)
    momentum = 0.5 + 0.25 * 2 / 4
    eta = 2.0 * (1 - momentum) * before.norm() / (0.5 * 6**0.5)
    torch.testing.assert_close(arena.data, before - eta * 0.5)


def test_multipliers_that_have_no_effect_are_reported():
    param = SolverParameter(larc=True)
    assert Updater(param, make_arena()).warnings == []
    arena = make_arena(parameters=[(0, 4, 1.0, 1.0), (0, 2, 2.0, 0.0)])
    (warning,) = Updater(param, arena).warnings
    assert "larc takes the place of lr_mult: that of 1 parameter(s)" in warning and "2 in layer 'layer0'" in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_lr_auto: true larc: true", "larc and local_lr_auto are both given"),
        ('larc: true type: "Adam"', "larc is given with solver type Adam"),
        ('local_lr_auto: true type: "Nesterov"', "local_lr_auto is given with solver type Nesterov"),
        ("larc_eta: 0 larc: true", "larc_eta is 0 and must be above 0"),
        ("local_gw_ratio: -1 local_lr_auto: true", "local_gw_ratio is -1"),
        ('larc_policy: "scal" larc: true', "unknown larc_policy 'scal'. Did you mean 'scale'"),
        ("momentum: 1 larc: true", "momentum is 1; with larc it must be at least 0 and below 1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text, message):
    source = parse_solver(f"base_lr: 1\n{text}", file="s.prototxt")
    with pytest.raises(SolverError, match=rf"s\.prototxt:2:1: .*{message}"):
        Updater(source.param, make_arena(), source)
