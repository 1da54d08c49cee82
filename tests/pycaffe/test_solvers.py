"""Solvers through caffe: what pycaffe's own tests check, and what training scripts rely on."""

import logging

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import NetError, SolverError
from mgcaffe.solvers.update.rules import RULES
from tests.support.pycaffe_nets import SIMPLE, write

SOLVER = """
net: "net.prototxt" test_iter: 2 test_interval: 10 base_lr: 0.01 momentum: 0 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75 display: 100 max_iter: 20 snapshot_after_train: false
snapshot_prefix: "model"
"""


@pytest.fixture
def solver_file(tmp_path):
    write(tmp_path, SIMPLE)
    return write(tmp_path, SOLVER, "solver.prototxt")


def test_solve(solver_file):
    solver = caffe.SGDSolver(solver_file)
    assert solver.iter == 0
    solver.solve()
    assert solver.iter == 20


def test_get_solver_takes_the_type_of_the_file(tmp_path, solver_file):
    assert type(caffe.get_solver(solver_file)) is caffe.SGDSolver
    adam = write(tmp_path, SOLVER + 'type: "Adam" momentum2: 0.9', "adam.prototxt")
    solver = caffe.get_solver(adam)
    assert type(solver) is caffe.AdamSolver
    assert isinstance(solver, caffe.Solver)
    assert solver.type == "Adam"
    assert caffe.SGDSolver(adam).type == "SGD"
    with pytest.raises(SolverError, match="unknown solver type"):
        caffe.get_solver(write(tmp_path, SOLVER + 'type: "Adamm"', "wrong.prototxt"))


def test_every_rule_has_a_class(solver_file):
    for kind in RULES:
        solver = caffe.solver_class(kind)(solver_file)
        solver.step(1)
        assert solver.type == kind
        assert solver.iter == 1


def test_apply_update(solver_file):
    solver = caffe.SGDSolver(solver_file)
    weights = solver.net.layers[1].blobs[0]
    weights.data[...] = 0
    weights.diff[...] = 1
    solver.apply_update()
    np.testing.assert_allclose(weights.data, -0.01, rtol=1e-4)
    assert solver.iter == 1


def test_nets_outlive_the_solver(solver_file):
    solver = caffe.SGDSolver(solver_file)
    nets = [solver.net, *solver.test_nets]
    assert len(nets) == 2
    del solver
    total = 0
    for net in nets:
        for blobs in net.params.values():
            total += sum(blob.data.sum() + blob.diff.sum() for blob in blobs)
        for blob in net.blobs.values():
            total += blob.data.sum() + blob.diff.sum()
    assert np.isfinite(total)
    nets[0].forward()


def test_snapshot_and_restore(tmp_path, solver_file):
    solver = caffe.SGDSolver(solver_file)
    solver.step(3)
    solver.snapshot()
    assert (tmp_path / "model_iter_3.caffemodel").is_file()
    solver.step(2)
    expected = solver.net.params["ip"][0].data.copy()
    other = caffe.SGDSolver(solver_file)
    other.restore(str(tmp_path / "model_iter_3.solverstate"))
    assert other.iter == 3
    other.step(2)
    assert other.net.params["ip"][0].data.shape == expected.shape
    third = caffe.SGDSolver(solver_file)
    third.solve("model_iter_3.solverstate")
    assert third.iter == 20


def test_blobs_stay_readable_in_training(solver_file):
    solver = caffe.SGDSolver(solver_file)
    solver.step(2)
    assert np.abs(solver.net.blobs["conv"].data).max() > 0
    assert np.abs(solver.net.blobs["conv"].diff).max() > 0
    assert solver.net.blobs["loss"].data.shape == ()
    outputs = solver.test_nets[0].forward()
    assert list(outputs) == ["loss"]


def test_test_nets_share_the_weights(solver_file):
    solver = caffe.SGDSolver(solver_file)
    solver.net.params["ip"][1].data[...] = 5
    assert (solver.test_nets[0].params["ip"][1].data == 5).all()


def test_share_weights_lends_them_to_another_net(tmp_path, solver_file):
    solver = caffe.SGDSolver(solver_file)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    solver.share_weights(net)
    solver.net.params["ip"][1].data[...] = 7
    assert (net.params["ip"][1].data == 7).all()


def test_learning_rate_and_param(solver_file):
    solver = caffe.SGDSolver(solver_file)
    assert solver.lr == pytest.approx(0.01)
    assert (solver.param.max_iter, solver.param.display, solver.param.layer_wise_reduce) == (20, 100, True)
    solver.param.base_lr = 0.5
    assert solver.lr == pytest.approx(0.5)
    weights = solver.net.params["conv"][0]
    weights.data[...] = 0
    weights.diff[...] = 1
    solver.apply_update()
    np.testing.assert_allclose(weights.data, -0.5, rtol=1e-4)


def test_callbacks_see_each_iteration(solver_file):
    solver = caffe.SGDSolver(solver_file)
    seen = []

    def ready():
        seen.append("ready")
        for blobs in solver.net.params.values():
            for blob in blobs:
                blob.diff[...] = 0

    solver.add_callback(lambda: seen.append("start"), ready)
    solver.param.weight_decay = 0
    before = solver.net.params["ip"][0].data.copy()
    solver.step(2)
    assert seen == ["start", "ready"] * 2
    np.testing.assert_array_equal(solver.net.params["ip"][0].data, before)


def test_a_training_loop_of_ones_own(solver_file):
    """forward, backward and apply_update by hand do what step does."""
    caffe.set_random_seed(3)
    solver = caffe.SGDSolver(solver_file)
    data = np.random.default_rng(0).standard_normal((5, 2, 3, 4))
    solver.net.forward()
    solver.net.blobs["data"].data[...] = data
    solver.net.clear_param_diffs()
    loss = float(solver.net.forward(start="conv")["loss"])
    solver.net.backward()
    solver.apply_update()
    assert float(solver.net.forward(start="conv")["loss"]) < loss


def test_training_writes_caffes_log_lines(solver_file, caplog):
    caplog.set_level(logging.INFO, "mgcaffe")
    caffe.SGDSolver(solver_file).step(1)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Iteration 0") and "loss = " in line for line in lines)
    assert "Iteration 0, lr = 0.01" in lines


def test_a_seed_makes_solvers_repeatable(solver_file):
    weights = []
    for _ in range(2):
        caffe.set_random_seed(5)
        solver = caffe.get_solver(solver_file)
        solver.step(2)
        weights.append(solver.net.params["ip"][0].data.copy())
    np.testing.assert_array_equal(weights[0], weights[1])


def test_the_net_that_is_trained_lends_its_weights_and_borrows_none(tmp_path, solver_file):
    solver, other = caffe.SGDSolver(solver_file), caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    with pytest.raises(NetError, match=r"is trained by a solver, .* cannot use another net's"):
        solver.net.share_with(other)
    solver.net.share_with(solver.net)
    other.share_with(solver.net)
    solver.step(1)
    solver.snapshot()
    saved = caffe.Net(str(tmp_path / "net.prototxt"), str(tmp_path / "model_iter_1.caffemodel"), caffe.TRAIN)
    for each in (other, saved):
        np.testing.assert_array_equal(each.params["ip"][0].data, solver.net.params["ip"][0].data)
