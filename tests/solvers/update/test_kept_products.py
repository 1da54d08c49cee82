"""Gradients of large inner products that are made by the update: the same weights, and which gradients they are."""

import pytest
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.errors import NotFiniteError
from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Warned
from tests.support.products import DATA, OUTPUTS, enlarge, net, suit, without_room
from tests.support.solverkit import Recorder, make_solver, weights_of


def kept_by(solver):
    """The names of the layers whose gradients are kept as products in the next iteration, and the product's layer."""
    found = []

    def look(index):
        found.extend(layer.name for layer in solver.net.layers for each in layer.parameters if each.product is not None)

    first = solver.net.steps[0].index
    solver.net.after_backward.append(lambda index: look(index) if index == first else None)
    solver.step(1)
    return found


def trained(tmp_path, fields, iterations=4, text=None):
    with make_solver(text or net(), fields, tmp_path, dtype=torch.float32) as solver:
        solver.step(iterations)
        return weights_of(solver), [history.clone() for history in solver._updater.histories]


@pytest.mark.parametrize(
    "fields",
    [
        "momentum: 0.9 weight_decay: 0.01",
        "momentum: 0.9 weight_decay: 0.01 regularization_type: 'L1'",
        "momentum: 0.9 weight_decay: 0.01 decoupled_weight_decay: true",
        "type: 'Nesterov' momentum: 0.9",
        "type: 'AdaGrad' weight_decay: 0.01",
        "type: 'RMSProp' rms_decay: 0.9",
        "type: 'AdaDelta' momentum: 0.9 delta: 1e-6",
        "type: 'Adam' momentum: 0.9 momentum2: 0.99",
    ],
)
@pytest.mark.parametrize("transpose", ["", "transpose: true"])
def test_weights_and_histories_are_those_of_gradients_that_lie_in_their_place(
    tmp_path, monkeypatch, small_is_large, fields, transpose
):
    text = net(transpose=transpose)
    with make_solver(text, fields, tmp_path, dtype=torch.float32) as solver:
        assert kept_by(solver) == ["large"]
    weights, histories = trained(tmp_path, fields, text=text)
    suit(monkeypatch, lambda rows, shape: False)
    expected_weights, expected_histories = trained(tmp_path, fields, text=text)
    assert torch.equal(weights, expected_weights)
    for found, expected in zip(histories, expected_histories, strict=True):
        assert torch.equal(found, expected)


def test_the_gradients_own_place_stays_untouched(tmp_path, small_is_large):
    with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32) as solver:
        solver.step(2)
        weight, bias = solver.net.layers[1].parameters
        assert not weight.diff.any() and bias.diff.any()
        assert weight.product is None and not weight.keeps_product


@pytest.mark.parametrize(
    ("fields", "layer"),
    [
        ("iter_size: 2", ""),
        ("clip_gradients: 100", ""),
        ("local_gw_ratio: 0.01 local_lr_auto: true", ""),
        ("snapshot_diff: true", ""),
        ("debug_info: true", ""),
        ("", "param { lr_mult: 0 }"),
        ("momentum: 0", ""),  # the history lies in the gradient's place
    ],
)
def test_gradients_that_something_else_reads_lie_in_their_place(tmp_path, small_is_large, fields, layer):
    momentum = "" if "momentum" in fields else "momentum: 0.9"
    with make_solver(net(layer), f"{momentum} {fields}", tmp_path, dtype=torch.float32) as solver:
        assert kept_by(solver) == []
        assert not solver.net.arena.apart


def test_a_weight_that_two_layers_share_has_its_gradient_in_its_place(tmp_path, small_is_large):
    text = (
        DATA
        + """
    layer { name: "one" type: "InnerProduct" bottom: "data" top: "one" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
    layer { name: "two" type: "InnerProduct" bottom: "data" top: "two" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "EuclideanLoss" bottom: "one" bottom: "two" top: "loss" }
    """
    )
    with make_solver(text, "momentum: 0.9", tmp_path, dtype=torch.float32) as solver:
        assert kept_by(solver) == []


def test_nets_that_keep_their_blobs_keep_no_products(tmp_path, small_is_large):
    with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32, keep_blobs=True) as solver:
        assert kept_by(solver) == []


def test_callbacks_find_the_gradients_in_their_place(tmp_path, small_is_large):
    with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32) as solver:
        found = []
        weight = solver.net.layers[1].parameters[0]
        solver.add_callback(lambda: None, lambda: found.append(weight.diff.clone()))
        solver.step(1)
        assert found[0].any()


def overflowing(tmp_path, fields, monkeypatch, recorder=None):
    """A solver, the matrices of whose gradient are finite; their product is not, in iteration 2."""
    solver = make_solver(net(), f"momentum: 0.9 {fields}", tmp_path, dtype=torch.float32, recorder=recorder)
    enlarge(solver, monkeypatch)
    return solver


def test_a_product_that_overflows_refuses_the_update(tmp_path, small_is_large, monkeypatch):
    with overflowing(tmp_path, "", monkeypatch) as solver:
        solver.step(2)
        before = weights_of(solver)
        with pytest.raises(NotFiniteError, match="the gradient of parameter 0, made by layer 'large'"):
            solver.step(1)
        assert torch.equal(weights_of(solver), before)


def test_a_refused_product_is_not_used_later(tmp_path, small_is_large, monkeypatch):
    recorder = Recorder()
    with overflowing(tmp_path, "nan_effect: SKIP", monkeypatch, recorder) as solver:
        solver.step(2)
        before = weights_of(solver)
        solver.step(1)
        assert torch.equal(weights_of(solver), before)
        assert any("passed over" in event.text for event in recorder.of(Warned))
        assert solver.net.layers[1].parameters[0].product is None
        solver.step(1)
        assert torch.isfinite(weights_of(solver)).all() and not torch.equal(weights_of(solver), before)


def test_a_loss_that_is_not_finite_leaves_no_product(tmp_path, small_is_large, monkeypatch):
    with make_solver(net(), "momentum: 0.9 nan_effect: SKIP", tmp_path, dtype=torch.float32) as solver:
        forward = solver.net.layers[1].forward
        with monkeypatch.context() as context:
            context.setattr(solver.net.layers[1], "forward", lambda bottoms: [forward(bottoms)[0] * torch.nan])
            before = weights_of(solver)
            solver.step(1)
        assert torch.equal(weights_of(solver), before)
        assert solver.net.layers[1].parameters[0].product is None


def test_passes_of_a_net_with_a_large_inner_product_are_not_captured(tmp_path, small_is_large):
    """A captured pass would write the gradient to its place."""
    with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32) as solver:
        solver.step(5)
        assert not any("large" in [step.layer.name for step in part.steps] for part in solver._trainer._pass.ranges)
        assert kept_by(solver) == ["large"]


class Watched(InnerProduct):
    """Freezes its weight by its gradient."""

    def backward(self, top_diffs, wanted):
        found = super().backward(top_diffs, wanted)
        self.parameters[0].diff.zero_()
        return found


def test_a_class_derived_from_inner_product_keeps_its_gradient_in_its_place(tmp_path, small_is_large, monkeypatch):
    monkeypatch.setitem(registry._TYPES, "Watched", Watched)
    text = net().replace('"InnerProduct" bottom: "data"', '"Watched" bottom: "data"')
    with make_solver(text, "momentum: 0.9", tmp_path) as solver:
        weight = solver.net.layers[1].parameters[0]
        before = weight.data.clone()
        solver.step(2)
        assert torch.equal(weight.data, before)


def test_test_nets_share_the_gradients_places(tmp_path, small_is_large):
    fields = "momentum: 0.9 test_iter: 1 test_interval: 100 test_initialization: false"
    source = parse_solver(f"base_lr: 0.1 lr_policy: 'fixed' {fields} solver_mode: CPU snapshot_after_train: false")
    source.param.net_param.CopyFrom(parse_net(net()).param)
    source.param.test_net_param.add().CopyFrom(parse_net(net()).param)
    with Solver(source.param) as solver:
        (test_net,) = solver.test_nets
        for mine, lent in zip(
            solver.net.parameters, (p for layer in test_net.layers for p in layer.parameters), strict=True
        ):
            assert mine.diff.data_ptr() == lent.diff.data_ptr() and mine.diff.shape == lent.diff.shape


def test_without_room_for_places_of_their_own_gradients_stay_where_they_are(tmp_path, small_is_large, monkeypatch):
    expected, _ = trained(tmp_path, "momentum: 0.9")
    without_room(monkeypatch)
    with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32) as solver:
        assert kept_by(solver) == []
        solver.step(3)
        assert torch.equal(weights_of(solver), expected)


def test_what_ranks_exchange_is_no_matter_for_one(tmp_path, small_is_large):
    fields = "momentum: 0.9 comm_param { exchange_products: false allreduce_type: FLOAT16 }"
    with make_solver(net(), fields, tmp_path, dtype=torch.float32) as solver:
        assert kept_by(solver) == ["large"]
        assert len(solver.net.arena.diff) == OUTPUTS + 165  # nothing for what others would exchange
