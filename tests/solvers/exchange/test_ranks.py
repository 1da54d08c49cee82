"""Several ranks, as threads of this process: what R ranks do is what one rank with R times the batch does."""

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.errors import RankDisagreement
from mgcaffe.solvers.events import Displayed, Finished, IterationDone, PlanChosen, Warned
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.setup.agreement import agree_on_shapes
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data

pytestmark = pytest.mark.slow

SCHEDULES = ["single", "wfbp", "mgwfbp", "optimal"]
FIELDS = "momentum: 0.9 weight_decay: 0.01 comm_param { calibration_iterations: 3 }"


def train(size, net, fields, folder, *, iterations=20, dtype=torch.float64, restore=None, **options):
    """Trains on `size` ranks; returns each rank's (weights, recorder)."""

    def rank(communicator):
        recorder = Recorder()
        alone = size == 1
        with make_solver(
            net,
            fields,
            folder,
            recorder=recorder,
            communicator=None if alone else communicator,
            dtype=dtype,
            **options,
        ) as solver:
            if restore:
                solver.restore(restore)
            solver.step(iterations)
            return weights_of(solver), recorder

    return run_ranks(size, rank)


def net_with_batch(listing, batch, test_batch=4):
    return data_layer(listing, batch, "TRAIN") + data_layer(listing, test_batch, "TEST") + CLASSIFIER


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("ignored", [0, 1])
@pytest.mark.parametrize("fields", [FIELDS, FIELDS + " iter_size: 2 clip_gradients: 0.3"])
def test_r_ranks_train_as_one_with_r_times_the_batch(tmp_path, size, ignored, fields):
    listing = write_data(tmp_path, records=41, classes=3, ignored=ignored)
    ((alone, one),) = train(1, net_with_batch(listing, 4 * size), fields, tmp_path)
    together = train(size, net_with_batch(listing, 4), fields, tmp_path)
    for weights, recorder in together:
        torch.testing.assert_close(weights, alone, rtol=1e-9, atol=1e-12)
        assert recorder.losses == pytest.approx(one.losses, rel=1e-9)
        assert torch.equal(weights, together[0][0])
        assert recorder.losses == together[0][1].losses


def test_all_schedules_give_the_same_bits_on_two_ranks(tmp_path):
    listing = write_data(tmp_path, classes=3)
    results = [
        train(2, net_with_batch(listing, 4), FIELDS, tmp_path, dtype=torch.float32, schedule=schedule)
        for schedule in SCHEDULES
    ]
    first = results[0][0][0]
    for (weights, recorder), (others, _) in results:
        assert torch.equal(weights, first) and torch.equal(others, first)
        assert recorder.losses == results[0][0][1].losses
    chosen = [result[0][1].of(PlanChosen) for result in results]
    assert [[event.schedule for event in events] for events in chosen] == [[schedule] for schedule in SCHEDULES]
    assert [len(events[0].plan.groups) for events in chosen[:2]] == [1, 2]
    assert {events[0].iteration for events in chosen} == {3}


def test_ranks_test_together_with_exact_counts(tmp_path):
    listing = write_data(tmp_path, classes=3)
    fields = "test_iter: 5 test_interval: 4 test_compute_loss: true " + FIELDS
    ((_, one),) = train(1, net_with_batch(listing, 8), fields, tmp_path, iterations=9)
    for size in (2, 4):  # 4 batches of 2 make the same training batch; two of the ranks test one batch only
        for _, recorder in train(size, net_with_batch(listing, 8 // size), fields, tmp_path, iterations=9):
            tested, expected = recorder.of(Tested), one.of(Tested)
            assert [event.iteration for event in tested] == [0, 4, 8]
            for mine, theirs in zip(tested, expected, strict=True):
                assert mine.loss == pytest.approx(theirs.loss, rel=1e-9)
                assert [score.value for score in mine.scores] == pytest.approx(
                    [score.value for score in theirs.scores], rel=1e-9
                )


def test_more_ranks_than_test_batches_do(tmp_path):
    listing = write_data(tmp_path, classes=3)
    fields = "test_iter: 2 test_interval: 1 " + FIELDS
    ((_, one),) = train(1, net_with_batch(listing, 6), fields, tmp_path, iterations=2)
    for _, recorder in train(3, net_with_batch(listing, 2), fields, tmp_path, iterations=2):
        scores = [event.scores[0].value for event in recorder.of(Tested)]
        assert scores == pytest.approx([event.scores[0].value for event in one.of(Tested)], rel=1e-9)


def test_shown_outputs_are_means_over_the_ranks(tmp_path):
    listing = write_data(tmp_path, classes=3)
    ((_, one),) = train(1, net_with_batch(listing, 8), FIELDS + " display: 1", tmp_path, iterations=3)
    for _, recorder in train(2, net_with_batch(listing, 4), FIELDS + " display: 1", tmp_path, iterations=3):
        shown = [event.outputs[0].value for event in recorder.of(Displayed)]
        assert shown == pytest.approx([event.outputs[0].value for event in one.of(Displayed)], rel=1e-9)
        assert {event.images for event in recorder.of(IterationDone)} == {8}


def test_every_rank_starts_from_rank_0s_weights(tmp_path):
    """Also where a seed is drawn, and where only rank 0 has the weights file."""
    listing = write_data(tmp_path, classes=3)
    net = net_with_batch(listing, 4)
    for weights, _ in (results := train(2, net, "random_seed: -1", tmp_path, iterations=0)):
        assert torch.equal(weights, results[0][0])


def test_batch_norms_sums_are_averaged_for_tests_and_snapshots_and_change_no_weight(tmp_path):
    listing = write_data(tmp_path, classes=3)
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }\n'
    body = norm + CLASSIFIER.replace('bottom: "data"', 'bottom: "bn"')
    net = data_layer(listing, 4, "TRAIN") + data_layer(listing, 4, "TEST") + body
    often = train(2, net, FIELDS + " test_iter: 1 test_interval: 1", tmp_path, iterations=8)
    never = train(2, net, FIELDS, tmp_path, iterations=8)
    learned = 6 * 4 + 6 + 3 * 6 + 3
    assert torch.equal(often[0][0][:learned], never[0][0][:learned])
    mean = (never[0][0] + never[1][0])[learned:] / 2
    assert not torch.equal(never[0][0][learned:], never[1][0][learned:])
    # `often` averaged before the last iteration, so its ranks differ by one batch; their mean is the same.
    torch.testing.assert_close((often[0][0] + often[1][0])[learned:] / 2, mean, rtol=1e-12, atol=0)


def test_two_ranks_stopped_and_resumed_equal_two_that_went_on(tmp_path):
    listing = write_data(tmp_path, classes=3)
    dropout = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\nlayer { name: "ip2"'
    net = data_layer(listing, 4) + CLASSIFIER.replace('layer { name: "ip2"', dropout)
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }\n'
    net = net.replace('layer { name: "ip1"', norm + 'layer { name: "ip1"').replace(
        'type: "InnerProduct" bottom: "data"', 'type: "InnerProduct" bottom: "bn"'
    )
    whole = train(2, net, FIELDS + " snapshot: 7", tmp_path, iterations=14)
    state = f"{tmp_path}/net_iter_7.solverstate"
    resumed = train(2, net, FIELDS + " snapshot: 7", tmp_path, iterations=7, restore=state)
    for (weights, recorder), (others, later) in zip(whole, resumed, strict=True):
        assert torch.equal(weights, others)
        assert later.losses == recorder.losses[7:]
        assert not later.of(PlanChosen)  # the measured plan came with the snapshot


def test_another_number_of_ranks_goes_on_at_the_same_record_with_a_warning(tmp_path):
    listing = write_data(tmp_path, classes=3)
    ((_, one),) = train(1, net_with_batch(listing, 8), FIELDS + " snapshot: 5", tmp_path, iterations=10)
    state = f"{tmp_path}/net_iter_5.solverstate"
    for _, recorder in train(2, net_with_batch(listing, 4), FIELDS, tmp_path, iterations=5, restore=state):
        assert recorder.losses == pytest.approx(one.losses[5:], rel=1e-9)
        assert "1 rank(s) and training goes on with 2" in recorder.of(Warned)[0].text


def test_one_ranks_wish_to_stop_stops_all(tmp_path):
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        recorder = Recorder()
        net = net_with_batch(listing, 4)
        fields = "max_iter: 50 snapshot_after_train: true"
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            if communicator.rank == 1:
                solver.request_stop()
            solver.solve()
            return solver.iteration, recorder.of(Finished)[0].stopped_early

    assert run_ranks(2, rank) == [(1, True)] * 2
    assert (tmp_path / "net_iter_1.solverstate").exists()


def test_communication_is_accounted_for(tmp_path):
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        recorder = Recorder()
        net = net_with_batch(listing, 4)
        fields = FIELDS + " max_iter: 8 display: 2"
        with make_solver(net, fields, tmp_path, recorder=recorder, communicator=communicator) as solver:
            solver.solve()
        return recorder

    for recorder in run_ranks(2, rank):
        (finished,) = recorder.of(Finished)
        done = recorder.of(IterationDone)
        assert finished.comm_exposed_s == pytest.approx(sum(event.comm_exposed_s for event in done))
        assert finished.comm_exposed_s > 0
        assert 0 <= finished.hidden_share <= 1
        shown = recorder.of(Displayed)
        assert shown[1].comm_exposed_s == pytest.approx(sum(event.comm_exposed_s for event in done[1:3]))


def test_without_calibration_gradients_go_by_what_needs_none(tmp_path):
    listing = write_data(tmp_path, classes=3)
    fields = "comm_param { schedule: MGWFBP calibration_iterations: 0 }"
    ((_, recorder), _) = train(2, net_with_batch(listing, 4), fields, tmp_path, iterations=2)
    assert "calibration_iterations is 0" in recorder.of(Warned)[0].text
    fields = "comm_param { schedule: WFBP calibration_iterations: 0 }"
    ((_, recorder), _) = train(2, net_with_batch(listing, 4), fields, tmp_path, iterations=2)
    assert not recorder.of(Warned)


@pytest.mark.parametrize("what", ["net", "solver", "number type"])
def test_ranks_with_different_inputs_never_start(tmp_path, what):
    listing = write_data(tmp_path, classes=3)
    net = net_with_batch(listing, 4)

    def rank(communicator):
        mine, fields, dtype = net, "", torch.float32
        if communicator.rank == 1:
            mine = net.replace("num_output: 6", "num_output: 7") if what == "net" else net
            fields = "momentum: 0.5" if what == "solver" else ""
            dtype = torch.float64 if what == "number type" else dtype
        make_solver(mine, fields, tmp_path, communicator=communicator, dtype=dtype)

    with pytest.raises(RankDisagreement) as caught:
        run_ranks(2, rank)
    assert {"net": "training net", "solver": "solver", "number type": "number type"}[what] in str(caught.value)


def test_ranks_with_different_parameters_never_start(tmp_path):
    """As where a layer's shape follows from data that differ."""
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        outputs = f"num_output: {6 + communicator.rank}"
        net = data_layer(listing, 4) + CLASSIFIER.replace("num_output: 6", outputs)
        with make_solver(net, "", tmp_path) as solver:
            agree_on_shapes(solver.net, communicator)

    with pytest.raises(RankDisagreement, match="layer 'ip1'"):
        run_ranks(2, rank)


def test_ranks_whose_parameters_lie_in_another_order_never_start(tmp_path):
    """As on a host with a GPU and one without."""
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        with make_solver(data_layer(listing, 4) + CLASSIFIER, "", tmp_path) as solver:
            if communicator.rank:
                solver.net.arena.slices[0].parameter.memory_format = torch.channels_last
            agree_on_shapes(solver.net, communicator)

    with pytest.raises(RankDisagreement, match="the same order of parameters in memory") as caught:
        run_ranks(2, rank)
    assert "rank 1: layer 'ip1': torch.channels_last" in str(caught.value)
    assert "or all on the CPU (solver_mode: CPU)" in str(caught.value)


def test_ranks_whose_sources_differ_in_size_never_start(tmp_path):
    """Their shares of the records would overlap."""
    listing = write_data(tmp_path, classes=3)

    def rank(communicator):
        with make_solver(data_layer(listing, 4) + CLASSIFIER, "", tmp_path) as solver:
            if communicator.rank:
                solver.net.data_layers[0]._reader.count -= 1
            agree_on_shapes(solver.net, communicator)

    with pytest.raises(RankDisagreement, match="records of shapes"):
        run_ranks(2, rank)
