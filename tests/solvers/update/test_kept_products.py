"""Gradients of large inner products that are made by the update: the same weights, and which gradients they are."""

import pytest
import torch

from mgcaffe.comm import AffineCost, Segment, make_plan, run_ranks
from mgcaffe.comm.planning.plan_file import PlanBasis, plan_text
from mgcaffe.engine import Net, product_gradient, registry
from mgcaffe.engine.kernels import linear_ways
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.errors import NetError, NotFiniteError
from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Noted, Warned
from mgcaffe.solvers.update import kept_products
from mgcaffe.solvers.update.kept_products import KeptProducts
from mgcaffe.solvers.update.updater import Updater
from tests.support.solverkit import Recorder, make_solver, weights_of

INPUTS, OUTPUTS = 24, 32
DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 3 dim: 24 } shape { dim: 3 dim: 5 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: -1 max: 1 } } }
"""
NET = (
    DATA
    + """
layer { name: "large" type: "InnerProduct" bottom: "data" top: "large" FIELDS
  inner_product_param { num_output: 32 weight_filler { type: "xavier" } TRANSPOSE } }
layer { name: "relu" type: "ReLU" bottom: "large" top: "large" }
layer { name: "last" type: "InnerProduct" bottom: "large" top: "last" param { lr_mult: 2 decay_mult: 0.5 }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "last" bottom: "label" top: "loss" }
"""
)


def net(fields="", transpose="", text=NET):
    return text.replace("FIELDS", fields).replace("TRANSPOSE", transpose)


def suit(monkeypatch, suits):
    for module in (product_gradient, kept_products):
        monkeypatch.setattr(module, "suits_product", suits)


@pytest.fixture
def small_is_large(monkeypatch):
    """The first layer's weight is large, and its gradient has two pieces."""
    size = INPUTS * OUTPUTS
    monkeypatch.setattr(linear_ways, "LARGE_WEIGHT", size)
    monkeypatch.setattr(linear_ways, "PIECE", size // 2)
    suit(monkeypatch, lambda rows, shape: shape[0] * shape[1] >= size)


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


def enlarge(solver, monkeypatch, of_x=1e30, of_dy=1e30):
    """Multiply the matrices whose product the gradient is in iteration 2."""
    layer = solver.net.layers[1]
    backward = layer.backward

    def enlarged(top_diffs, wanted):
        if solver.iteration == 2:
            layer.saved = (layer.saved[0] * of_x, *layer.saved[1:])
            top_diffs = [top_diffs[0] * of_dy]
        return backward(top_diffs, wanted)

    monkeypatch.setattr(layer, "backward", enlarged)


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


# -- several ranks ---------------------------------------------------------------------------------------


def train_on_ranks(tmp_path, fields="", *, ranks=2, iterations=4, text=None, dtype=torch.float32):
    """For each rank its weights, losses, and what its first segments and notes are."""

    def rank(communicator):
        recorder = Recorder()
        options = {"communicator": communicator, "dtype": dtype, "recorder": recorder}
        with make_solver(text or net(), f"momentum: 0.9 weight_decay: 0.01 {fields}", tmp_path, **options) as solver:
            solver.step(iterations)
            notes = [event.text for event in recorder.of(Noted) if "exchanged as" in event.text]
            sizes = [count for _, _, _, count in solver.net.arena.segments()]
            return weights_of(solver), recorder.losses, sizes, notes

    return run_ranks(ranks, rank)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("transpose", ["", "transpose: true"])
def test_ranks_that_exchange_products_train_as_those_that_exchange_gradients(
    tmp_path, small_is_large, ranks, transpose
):
    text = net(transpose=transpose)
    found = train_on_ranks(tmp_path, ranks=ranks, text=text, dtype=torch.float64)
    expected = train_on_ranks(
        tmp_path, "comm_param { exchange_products: false }", ranks=ranks, text=text, dtype=torch.float64
    )
    for weights, losses, sizes, notes in found:
        assert sizes == [ranks * 3 * (INPUTS + OUTPUTS) + OUTPUTS, 165]
        assert len(notes) == 1 and "weights of large are exchanged" in notes[0]
        assert torch.equal(weights, found[0][0])
        torch.testing.assert_close(weights, expected[0][0], rtol=1e-12, atol=1e-14)
        assert losses == pytest.approx(expected[0][1], rel=1e-12)
    for _, _, sizes, notes in expected:
        assert sizes == [INPUTS * OUTPUTS + OUTPUTS, 165] and not notes


@pytest.mark.parametrize("schedule", ["WFBP", "SINGLE", "THRESHOLD", "OPTIMAL", "AUTO"])
@pytest.mark.parametrize("overlap", ["", "overlap_forward: true"])
def test_all_schedules_give_the_same_bits(tmp_path, small_is_large, schedule, overlap):
    plain = train_on_ranks(tmp_path, "comm_param { schedule: SINGLE calibration_iterations: 0 }", iterations=8)
    fields = f"comm_param {{ schedule: {schedule} calibration_iterations: 2 {overlap} }}"
    for weights, losses, _, _ in train_on_ranks(tmp_path, fields, iterations=8):
        assert torch.equal(weights, plain[0][0]) and losses == plain[0][1]


@pytest.mark.parametrize(
    "fields",
    [
        "comm_param { allreduce_type: FLOAT16 }",
        "comm_param { exchange_products: false }",
        "iter_size: 2",
        "clip_gradients: 10",
    ],
)
def test_ranks_exchange_gradients_where_products_would_not_do(tmp_path, small_is_large, fields):
    for _, _, sizes, notes in train_on_ranks(tmp_path, fields, iterations=1):
        assert sizes == [INPUTS * OUTPUTS + OUTPUTS, 165] and not notes


def test_ranks_exchange_gradients_where_a_rank_has_another_processor(tmp_path, small_is_large, monkeypatch):
    names = iter("ab")
    monkeypatch.setattr(kept_products.processor, "name", lambda: next(names))
    for _, _, sizes, notes in train_on_ranks(tmp_path, iterations=1):
        assert sizes == [INPUTS * OUTPUTS + OUTPUTS, 165] and not notes


def test_a_plan_file_is_one_for_gradients(tmp_path, small_is_large):
    segments = [Segment("large", 0, 800), Segment("last", 800, 165)]
    basis = PlanBasis(segments, [0.0, 0.0], AffineCost(1e-4, 1e-9))
    plan = make_plan("single", segments, basis.ready, basis.cost, element_bytes=4)
    (tmp_path / "plan.json").write_text(plan_text(plan, basis))
    for _, _, sizes, _ in train_on_ranks(tmp_path, f"comm_param {{ plan_file: '{tmp_path}/plan.json' }}"):
        assert sizes == [800, 165]


def test_callbacks_of_ranks_find_the_means_in_their_place(tmp_path, small_is_large):
    fields = "momentum: 0.9 weight_decay: 0.01"

    def rank(communicator):
        found = []
        with make_solver(net(), fields, tmp_path, dtype=torch.float64, communicator=communicator) as solver:
            weight = solver.net.layers[1].parameters[0]
            solver.add_callback(lambda: None, lambda: found.append(weight.diff.clone()))
            solver.step(2)
            assert weight.product is None
            return found, weights_of(solver)

    (first, weights), (second, others) = run_ranks(2, rank)
    assert first[0].any() and torch.equal(weights, others)
    for mine, theirs in zip(first, second, strict=True):
        assert torch.equal(mine, theirs)
    expected = train_on_ranks(tmp_path, iterations=2, dtype=torch.float64)
    assert torch.equal(weights, expected[0][0])


@pytest.mark.parametrize("factors", [(1e30, 1e30), (float("nan"), 1.0)])
def test_a_product_of_one_rank_that_is_not_finite_refuses_the_update_on_all(
    tmp_path, small_is_large, monkeypatch, factors
):
    def rank(communicator):
        solver = make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32, communicator=communicator)
        with solver:
            if communicator.rank == 1:
                enlarge(solver, monkeypatch, *factors)
            solver.step(2)
            before = weights_of(solver)
            with pytest.raises(NotFiniteError, match=r"rank 1 .*the gradient of parameter 0, made by layer 'large'"):
                solver.step(1)
            return torch.equal(weights_of(solver), before)

    assert run_ranks(2, rank) == [True, True]


def batches(solver, sizes):
    """Let the data layer give these numbers of rows, one after the other."""
    layer, forward = solver.net.layers[0], solver.net.layers[0].forward
    left = iter(sizes)

    def cut(bottoms):
        rows = next(left)
        return [top.repeat(2, 1)[:rows] for top in forward(bottoms)]

    layer.forward = cut


@pytest.mark.parametrize("rows", [[3, 2, 3], [1, 3, 2]])
def test_ranks_may_have_fewer_rows_in_some_iterations(tmp_path, small_is_large, rows):
    def trained_with(fields):
        def rank(communicator):
            options = {"dtype": torch.float64, "communicator": communicator}
            with make_solver(net(), f"momentum: 0.9 {fields}", tmp_path, **options) as solver:
                batches(solver, rows[communicator.rank :] + rows[: communicator.rank])
                solver.step(3)
                return weights_of(solver)

        return run_ranks(2, rank)

    found, expected = trained_with(""), trained_with("comm_param { exchange_products: false }")
    for weights in found:
        torch.testing.assert_close(weights, expected[0], rtol=1e-12, atol=1e-14)


def test_a_batch_that_grows_is_refused(tmp_path, small_is_large):
    def rank(communicator):
        with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32, communicator=communicator) as solver:
            batches(solver, [3, 4])
            solver.step(1)
            with pytest.raises(NetError, match="more than the 3 rows that it had at the start") as caught:
                solver.step(1)
            return caught.value.hint

    assert all("exchange_products: false" in hint for hint in run_ranks(2, rank))


def test_hooks_of_ranks_may_look_at_gradients(tmp_path, small_is_large):
    def trained_with(looks):
        def rank(communicator):
            options = {"dtype": torch.float64, "communicator": communicator}
            with make_solver(net(), "momentum: 0.9", tmp_path, **options) as solver:
                weight, norms = solver.net.layers[1].parameters[0], []
                if looks:

                    def look(index):
                        if index == 1:
                            norms.append(float(weight.dense_diff().norm()))

                    solver.net.after_backward.append(look)
                solver.step(3)
                return weights_of(solver), norms

        return run_ranks(2, rank)

    for (weights, norms), (expected, _) in zip(trained_with(True), trained_with(False), strict=True):
        assert torch.equal(weights, expected) and len(norms) == 3 and min(norms) > 0


def test_what_a_hook_adds_to_a_product_counts_on_one_rank_and_is_refused_on_several(tmp_path, small_is_large):
    def added_to(solver):
        weight = solver.net.layers[1].parameters[0]

        def add(index):
            if index == 1:
                weight.accumulate(0.1 * weight.data)

        solver.net.after_backward.append(add)
        solver.step(2)
        return weights_of(solver)

    with make_solver(net(), "momentum: 0.9", tmp_path) as solver:
        found = added_to(solver)
    with make_solver(net(), "momentum: 0.9 iter_size: 1 snapshot_diff: true", tmp_path) as solver:
        torch.testing.assert_close(found, added_to(solver), rtol=1e-12, atol=1e-14)

    def rank(communicator):
        with make_solver(net(), "momentum: 0.9", tmp_path, communicator=communicator) as solver:
            with pytest.raises(NetError, match="or something was added to the gradient"):
                added_to(solver)
            return True

    assert run_ranks(2, rank) == [True, True]


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


def test_ranks_exchange_gradients_where_a_layer_may_change_the_number_of_rows(tmp_path, small_is_large):
    text = net().replace(
        'layer { name: "large"',
        """layer { name: "all" type: "DummyData" top: "all" dummy_data_param {
      shape { dim: 3 dim: 1 } data_filler { type: "constant" value: 1 } } }
    layer { name: "filter" type: "Filter" bottom: "data" bottom: "label" bottom: "all" top: "data2" top: "label2" }
    layer { name: "large\"""",
    )
    text = text.replace('bottom: "data" top: "large"', 'bottom: "data2" top: "large"')
    text = text.replace('bottom: "last" bottom: "label"', 'bottom: "last" bottom: "label2"')
    for _, _, sizes, notes in train_on_ranks(tmp_path, iterations=1, text=text):
        assert sizes == [INPUTS * OUTPUTS + OUTPUTS, 165] and not notes


def test_ranks_that_have_other_batches_exchange_gradients_and_say_so(tmp_path, small_is_large):
    """Of one of them the product would not suit."""

    def rank(communicator):
        recorder = Recorder()
        text = net().replace("dim: 3 dim", f"dim: {3 + 40 * communicator.rank} dim")
        param = parse_solver("base_lr: 0.1 momentum: 0.9 snapshot_after_train: false solver_mode: CPU").param
        param.lr_policy = "fixed"
        trained = Net(parse_net(text).param, keep_blobs=False)
        products = KeptProducts(trained, param, Updater(param, trained.arena), communicator, recorder.on_event)
        return [*trained.arena.apart], [event.text for event in recorder.of(Noted)], products._rows

    for apart, notes, rows in run_ranks(2, rank):
        assert not apart and not rows
        assert len(notes) == 1 and "rank 1 has other batches than rank 0" in notes[0]


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
