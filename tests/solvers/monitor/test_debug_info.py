"""What debug_info shows: Caffe's figures, in Caffe's order, of the iterations that are displayed."""

import math

import pytest
import torch

from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Displayed, IterationDone
from mgcaffe.solvers.events.statistics import BlobStatistics, NetStatistics
from mgcaffe.solvers.events.testing import Tested, Testing
from tests.support.solverkit import Recorder

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "low" type: "InnerProduct" bottom: "data" top: "low" param { name: "shared" } param { lr_mult: 0 }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } bias_filler { value: 0.5 } } }
layer { name: "relu" type: "ReLU" bottom: "low" top: "low" }
layer { name: "high" type: "InnerProduct" bottom: "low" top: "high" param { name: "shared" }
  inner_product_param { num_output: 3 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "top" type: "InnerProduct" bottom: "high" top: "top"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "top" bottom: "label" top: "loss" }
"""


def solver(recorder, net=NET, tests=(), **fields):
    text = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 4 display: 2 random_seed: 5 solver_mode: CPU'
    param = parse_solver(f"{text} snapshot_after_train: false debug_info: true").param
    param.net_param.CopyFrom(parse_net(net).param)
    for text in tests:
        param.test_net_param.add().CopyFrom(parse_net(text).param)
        param.test_iter.append(2)
        param.test_interval = 2
    for name, value in fields.items():
        setattr(param, name, value)
    return Solver(param, listeners=[recorder])


@pytest.fixture
def shown():
    recorder = Recorder()
    with solver(recorder) as watched:
        watched.step(1)
        yield recorder.events, watched


def test_layers_and_parameters_come_in_caffes_order(shown):
    events, _ = shown
    lines = [(e.step, e.layer, e.blob, e.name) for e in events if isinstance(e, BlobStatistics)]
    assert lines == [
        ("Forward", "data", "top blob", "data"),
        ("Forward", "data", "top blob", "label"),
        ("Forward", "low", "top blob", "low"),
        ("Forward", "low", "param blob", "shared"),
        ("Forward", "low", "param blob", "1"),
        ("Forward", "relu", "top blob", "low"),
        ("Forward", "high", "top blob", "high"),
        ("Forward", "high", "param blob", "shared"),
        ("Forward", "top", "top blob", "top"),
        ("Forward", "top", "param blob", "0"),
        ("Forward", "top", "param blob", "1"),
        ("Forward", "loss", "top blob", "loss"),
        ("Backward", "loss", "bottom blob", "top"),
        ("Backward", "top", "bottom blob", "high"),
        ("Backward", "top", "param blob", "0"),
        ("Backward", "top", "param blob", "1"),
        ("Backward", "high", "bottom blob", "low"),
        ("Backward", "high", "param blob", "0"),
        ("Backward", "relu", "bottom blob", "low"),
        ("Backward", "low", "param blob", "0"),
        ("Update", "low", "param", "shared"),
        ("Update", "low", "param", "1"),
        ("Update", "high", "param", "shared"),
        ("Update", "top", "param", "0"),
        ("Update", "top", "param", "1"),
    ]
    [owned] = [e.owner for e in events if isinstance(e, BlobStatistics) and e.owner]
    assert owned == ("low", "shared")


def test_everything_of_an_iteration_comes_in_the_order_of_caffes_log(shown):
    kinds = [type(event) for event in shown[0] if not isinstance(event, BlobStatistics)]
    assert kinds.index(NetStatistics) < kinds.index(Displayed) < kinds.index(IterationDone)


def test_figures_are_mean_absolute_values(shown):
    events, watched = shown
    blobs = watched.net.blobs

    def figure(step, layer, blob, name, field):
        wanted = (step, layer, blob, name)
        [found] = [e for e in events if isinstance(e, BlobStatistics) and (e.step, e.layer, e.blob, e.name) == wanted]
        return getattr(found, field)

    assert figure("Forward", "top", "top blob", "top", "data") == pytest.approx(float(blobs["top"].data.abs().mean()))
    assert figure("Backward", "loss", "bottom blob", "top", "diff") == pytest.approx(
        float(blobs["top"].diff.abs().mean())
    )
    assert figure("Forward", "low", "param blob", "1", "data") == pytest.approx(0.5)
    weights = watched.net.layers[-2].parameters[0]
    before = figure("Forward", "top", "param blob", "0", "data")
    assert figure("Update", "top", "param", "0", "data") == before
    # The first step of SGD is the gradient times the rate.
    gradient = figure("Backward", "top", "param blob", "0", "diff")
    assert figure("Update", "top", "param", "0", "diff") == pytest.approx(0.1 * gradient, rel=1e-5)
    assert float(weights.data.abs().mean()) != before


def test_the_norms_go_over_all_parameters(shown):
    events, _ = shown
    [norms] = [event for event in events if isinstance(event, NetStatistics)]
    with solver(Recorder(), debug_info=False) as plain:
        data = torch.cat([parameter.data.flatten() for parameter in plain.net.parameters])
        plain.net.clear_param_diffs()
        plain.net.reseed(5, 0, 0, 0)
        plain.net.forward_backward()
        diff = torch.cat([p.diff.flatten() for p in plain.net.parameters if p.wanted])
    assert norms.data_l1 == pytest.approx(float(data.abs().sum()), rel=1e-5)
    assert norms.data_l2 == pytest.approx(math.sqrt(float(data.square().sum())), rel=1e-5)
    assert norms.diff_l1 == pytest.approx(float(diff.abs().sum()), rel=1e-5)
    assert norms.diff_l2 == pytest.approx(math.sqrt(float(diff.square().sum())), rel=1e-5)


def test_only_displayed_iterations_are_shown_and_training_is_the_same():
    recorder, silent = Recorder(), Recorder()
    with solver(recorder) as watched, solver(silent, debug_info=False) as plain:
        watched.solve()
        plain.solve()
        assert torch.equal(watched.net.arena.data, plain.net.arena.data)
    assert not silent.of(BlobStatistics)
    assert len(recorder.of(NetStatistics)) == 2
    assert recorder.losses == silent.losses


def test_the_solvers_debug_info_shows_each_batch_that_is_tested():
    recorder = Recorder()
    with solver(recorder, tests=[NET, f"debug_info: false {NET}"], display=0) as watched:
        watched.step(1)
        values = [float(watched.test_nets[1].blobs[name].data.abs().mean()) for name in ("data", "label")]
    kinds = [
        (type(event), getattr(event, "net", None))
        for event in recorder.events
        if isinstance(event, (Testing, Tested, BlobStatistics))
    ]
    shown = [(BlobStatistics, None)] * 24
    assert kinds == [(Testing, 0), *shown, (Tested, 0), (Testing, 1), *shown, (Tested, 1)]
    lines = recorder.of(BlobStatistics)[24:]
    assert [(line.layer, line.blob, line.name) for line in lines[:4]] == [
        ("data", "top blob", "data"),
        ("data", "top blob", "label"),
        ("low", "top blob", "low"),
        ("low", "param blob", "shared"),
    ]
    assert {line.step for line in lines} == {"Forward"}
    assert [line.data for line in lines[12:14]] == values


def test_a_nets_own_debug_info_gives_way_to_the_solvers():
    recorder = Recorder()
    own = f"debug_info: true {NET}"
    with solver(recorder, net=own, tests=[own], debug_info=False) as plain:
        plain.step(1)
        # Blobs are kept only where they are shown.
        assert [net.keep_blobs for net in (plain.net, *plain.test_nets)] == [False, False]
    assert len(recorder.of(Tested)) == 1 and not recorder.of(BlobStatistics)


def test_a_loss_without_a_top_is_shown_by_caffes_name():
    recorder = Recorder()
    with solver(recorder, NET.replace('bottom: "label" top: "loss"', 'bottom: "label"')) as watched:
        watched.step(1)
    shown = [e for e in recorder.events if isinstance(e, BlobStatistics) and e.layer == "loss" and e.step == "Forward"]
    assert [(e.blob, e.name) for e in shown] == [("top blob", "(automatic)")]
