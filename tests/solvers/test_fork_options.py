"""The forks' options in whole runs: resumed to the bit, and alike on any number of ranks."""

import json
from itertools import pairwise

import h5py
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.prototxt import SolverState
from mgcaffe.solvers.events import IterationDone, Noted, Warned
from mgcaffe.solvers.events.snapshots import Restored
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, weights_of, write_data

pytestmark = pytest.mark.slow

PLATEAU = 'lr_policy: "plateau" base_lr: 0.4 gamma: 0.5 plateau_winsize: 2 plateau_winsize: 3 plateau_winsize: 4'
OPTIONS = {
    "plateau": f"{PLATEAU} average_loss: 3 momentum: 0.5",
    "warm-up": 'lr_policy: "poly" power: 1 max_iter: 20 base_lr: 0.4 min_lr: 0.1 warmup_iter: 12 momentum: 0.9',
    "LARS": 'lr_policy: "multifixed" stagelr: 1 stagelr: 0.5 stageiter: 8 stageiter: 30 local_lr_auto: true'
    " local_gw_ratio: 0.05 weight_decay: 0.01 momentum: 0.9",
    "LARC": 'lr_policy: "fixed" base_lr: 0.1 larc: true larc_eta: 0.2 larc_policy: "clip" momentum: 0.5'
    ' momentum_policy: "poly" max_momentum: 0.9 max_iter: 20 weight_decay: 0.1 weight_decay_policy: "poly"',
    "LARC, turbo": 'lr_policy: "fixed" base_lr: 0.5 larc: true larc_eta: 0.2 larc_turbo: true momentum: 0.9',
    "AdamW": 'lr_policy: "fixed" base_lr: 0.05 type: "Adam" momentum: 0.9 weight_decay: 0.1'
    " decoupled_weight_decay: true",
}


def net(folder, batch=4):
    return data_layer(write_data(folder, records=41, classes=3), batch) + CLASSIFIER


def run(text, fields, folder, size=1, *, iterations=20, restore=None, snapshot=False, **options):
    """Each rank's (weights, histories, recorder)."""

    def rank(communicator):
        recorder = Recorder()
        group = communicator if size > 1 else None
        with make_solver(text, fields, folder, recorder=recorder, communicator=group, **options) as solver:
            if restore:
                solver.restore(restore)
            solver.step(iterations)
            if snapshot:
                solver.snapshot()
            return weights_of(solver), [history.clone() for history in solver._updater.histories], recorder

    return run_ranks(size, rank)


def rates(recorder):
    return [event.rate for event in recorder.of(IterationDone)]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("form", "ending"), [("BINARYPROTO", ""), ("HDF5", ".h5")])
@pytest.mark.parametrize("size", [1, 2])
def test_a_resumed_run_ends_with_the_bits_of_one_that_never_stopped(tmp_path, option, form, ending, size):
    text, fields = net(tmp_path), f"{OPTIONS[option]} snapshot_format: {form}"
    whole = run(text, fields, tmp_path, size, dtype=torch.float32)
    run(text, fields, tmp_path, size, dtype=torch.float32, iterations=10, snapshot=True)
    state = str(tmp_path / f"net_iter_10.solverstate{ending}")
    resumed = run(text, fields, tmp_path, size, dtype=torch.float32, iterations=10, restore=state)
    for (weights, histories, recorder), (expected, kept, all_of_it) in zip(resumed, whole, strict=True):
        assert torch.equal(weights, expected)
        assert all(torch.equal(mine, its) for mine, its in zip(histories, kept, strict=True))
        assert rates(recorder) == rates(all_of_it)[10:]


def test_the_plateau_of_that_test_steps_before_and_after_the_snapshot(tmp_path):
    ((_, _, recorder),) = run(net(tmp_path), OPTIONS["plateau"], tmp_path, dtype=torch.float32)
    steps = [event.text for event in recorder.of(Noted) if event.text.startswith("Plateau")]
    lowered = [i for i, (before, after) in enumerate(pairwise(rates(recorder)), start=1) if after < before]
    assert steps == [f"Plateau Status: Iteration {i}, step = {k}" for k, i in enumerate(lowered, start=1)]
    assert min(lowered) < 10 < max(lowered)


@pytest.mark.parametrize("option", OPTIONS)
def test_two_ranks_train_as_one_with_twice_the_batch(tmp_path, option):
    ((alone, _, one),) = run(net(tmp_path, 8), OPTIONS[option], tmp_path)
    for weights, _, recorder in run(net(tmp_path, 4), OPTIONS[option], tmp_path, 2):
        torch.testing.assert_close(weights, alone, rtol=1e-9, atol=1e-12)
        assert rates(recorder) == rates(one)


@pytest.mark.parametrize("option", ["LARS", "LARC", "AdamW"])
def test_all_schedules_give_the_same_bits(tmp_path, option):
    text = net(tmp_path)
    results = []
    for overlap in ("false", "true"):
        fields = f"{OPTIONS[option]} comm_param {{ calibration_iterations: 2 overlap_forward: {overlap} }}"
        for schedule in ("single", "wfbp"):
            results.append(run(text, fields, tmp_path, 2, dtype=torch.float32, schedule=schedule)[0][0])
    assert all(torch.equal(each, results[0]) for each in results[1:])


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_the_state_of_a_fork_that_knows_the_policy_is_gone_on_from(tmp_path, form):
    """SSD's Caffe writes the lowest loss and its iteration beside Caffe's fields."""
    text, fields = net(tmp_path), f"{PLATEAU} snapshot_format: {form}"
    run(text, fields, tmp_path, iterations=10, snapshot=True)
    path = tmp_path / f"net_iter_10.solverstate{'.h5' if form == 'HDF5' else ''}"
    if form == "HDF5":
        with h5py.File(path, "r+") as file:
            del file["engine_state"]
            loss, event, step = (file[name][0] for name in ("minimum_loss", "iter_last_event", "current_step"))
    else:
        state = SolverState.FromString(path.read_bytes())
        loss, event, step = state.minimum_loss, state.iter_last_event, state.current_step
        state.ClearField("engine_state")
        path.write_bytes(state.SerializeToString())
    for manifest in tmp_path.glob("*.json"):
        manifest.unlink()
    recorder = Recorder()
    with make_solver(text, fields, tmp_path, recorder=recorder) as solver:
        solver.restore(str(path))
        found = json.loads(solver._policy.state.encode())
    assert found == {"steps": step, "lowest_loss": pytest.approx(loss), "last_event": event}
    assert recorder.of(Restored) and not [each for each in recorder.of(Warned) if "plateau" in each.text]


def test_a_state_of_another_policy_says_that_the_plateau_begins_anew(tmp_path):
    text = net(tmp_path)
    run(text, 'lr_policy: "fixed" base_lr: 0.1', tmp_path, iterations=10, snapshot=True)
    state = str(tmp_path / "net_iter_10.solverstate")
    ((_, _, recorder),) = run(text, PLATEAU, tmp_path, iterations=0, restore=state)
    texts = [event.text for event in recorder.of(Warned)]
    assert any("doesn't say what lr_policy 'plateau' has seen" in each for each in texts)
