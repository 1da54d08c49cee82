"""The solver's field `recompute`: the same weights on any ranks and workers, and what users are told."""

import re

import pytest
import torch

from mgcaffe.errors import NetError, SolverError
from mgcaffe.solvers.events import Noted, Warned
from tests.support.solverkit import CLASSIFIER, Recorder, data_layer, make_solver, train_ranks, weights_of, write_data


def test_weights_are_the_same_on_two_ranks_and_over_several_passes(tmp_path):
    plain, again = (
        train_ranks(2, tmp_path, f"iter_size: 2 clip_gradients: 1 recompute: '{setting}'", iterations=3)
        for setting in ("off", "ip1..ip2")
    )
    for (mine, recorder, _), (other, _, _) in zip(again, plain, strict=True):
        assert torch.equal(mine, other)
        notes = [event.text for event in recorder.of(Noted) if event.text.startswith("recompute")]
        assert len(notes) == 1
        assert re.match(r"recompute: backward computes 3 of 5 layers again, in 1 segment\(s\); about ", notes[0])


def test_each_worker_computes_again(tmp_path):
    net = data_layer(write_data(tmp_path, classes=3), 8) + CLASSIFIER
    fields = "recompute: 'ip1..tanh' comm_param { hogwild_threads: 2 hogwild_lock: true }"
    with make_solver(net, fields, tmp_path) as solver:
        assert all(len(worker._segments) == 2 for worker in solver.worker_nets)
        before = weights_of(solver)
        solver.step(4)
        assert not torch.equal(weights_of(solver), before)


def test_mistakes_name_the_field_and_debug_info_keeps_all(tmp_path):
    net = data_layer(write_data(tmp_path, classes=3), 8) + CLASSIFIER
    for setting, error, message in (
        ("ip1..ip9", SolverError, "recompute: the training net has no layer 'ip9'"),
        ("data..ip1", (NetError, SolverError), "cannot run a second time: it has no bottom.*layer 'data'"),
    ):
        with pytest.raises(error, match=message):
            make_solver(net, f"recompute: '{setting}'", tmp_path)
    recorder = Recorder()
    with make_solver(net, "recompute: 'auto' debug_info: true", tmp_path, recorder=recorder):
        assert any("recompute has no effect" in event.text for event in recorder.of(Warned))
