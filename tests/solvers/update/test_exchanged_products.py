"""Gradients of large inner products that several ranks exchange as two matrices: weights, agreement, refusals."""

import pytest
import torch

from mgcaffe.comm import AffineCost, Segment, make_plan, run_ranks
from mgcaffe.comm.planning.plan_file import PlanBasis, plan_text
from mgcaffe.engine import Net
from mgcaffe.engine.kernels import linear_ways
from mgcaffe.errors import EngineError, NetError, NotFiniteError
from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers.events import Noted
from mgcaffe.solvers.update import kept_products
from mgcaffe.solvers.update.kept_products import KeptProducts
from mgcaffe.solvers.update.updater import Updater
from tests.support.products import INPUTS, OUTPUTS, enlarge, net, suit, without_room
from tests.support.solverkit import Recorder, make_solver, weights_of


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

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net(), "momentum: 0.9", tmp_path, communicator=communicator, recorder=recorder) as solver:
            assert not solver.net.arena.apart
            return [event.text for event in recorder.of(Noted)]

    for notes in run_ranks(2, rank):
        assert any("rank 1 has another processor or number of threads than rank 0" in note for note in notes)


def test_ranks_of_other_processors_say_nothing_where_no_product_suits(tmp_path, monkeypatch):
    names = iter("ab")
    monkeypatch.setattr(kept_products.processor, "name", lambda: next(names))

    def rank(communicator):
        recorder = Recorder()
        with make_solver(net(), "momentum: 0.9", tmp_path, communicator=communicator, recorder=recorder):
            return [event.text for event in recorder.of(Noted) if "matrices" in event.text]

    assert run_ranks(2, rank) == [[], []]


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


def test_a_finite_product_of_large_values_is_no_reason_to_refuse(tmp_path, small_is_large, monkeypatch):
    """The largest values of the two matrices stand in different rows."""

    def rank(communicator):
        with make_solver(net(), "momentum: 0.9", tmp_path, dtype=torch.float32, communicator=communicator) as solver:
            factors = torch.tensor([[1e25], [1e-25], [1.0]])
            enlarge(solver, monkeypatch, factors, 1 / factors)
            solver.step(3)
            return weights_of(solver)

    first, second = run_ranks(2, rank)
    assert torch.equal(first, second) and torch.isfinite(first).all()


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
            with pytest.raises(NetError, match="or a hook added to it"):
                added_to(solver)
            return True

    assert run_ranks(2, rank) == [True, True]


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


def test_a_rank_with_a_callback_makes_the_bits_of_the_others(tmp_path, small_is_large, monkeypatch):
    """Pieces of 69 values end inside a vector; what is updated at once rounds otherwise there."""
    monkeypatch.setattr(linear_ways, "PIECE", 3 * 23)
    monkeypatch.setattr(linear_ways, "LARGE_WEIGHT", OUTPUTS * 23)
    suit(monkeypatch, lambda rows, shape: shape == (OUTPUTS, 23))
    text = net().replace("dim: 3 dim: 24", "dim: 3 dim: 23")

    def rank(communicator):
        fields = "momentum: 0.9 weight_decay: 0.01"
        with make_solver(text, fields, tmp_path, dtype=torch.float32, communicator=communicator) as solver:
            assert [piece.layer_name for piece in solver.net.arena.apart] == ["large"]
            if communicator.rank == 0:
                solver.add_callback(lambda: None, lambda: None)
            solver.step(6)
            return weights_of(solver)

    first, second = run_ranks(2, rank)
    assert torch.equal(first, second)


def test_several_ranks_without_room_say_which_layer_needs_it(tmp_path, small_is_large, monkeypatch):
    without_room(monkeypatch)

    def rank(communicator):
        with pytest.raises(EngineError, match="layer 'large'"):
            make_solver(net(), "momentum: 0.9", tmp_path, communicator=communicator)
        return True

    assert run_ranks(2, rank) == [True, True]
