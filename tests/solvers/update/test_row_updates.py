"""Updates of tables by rows: against the dense rules, stopped and resumed, watched, and refused."""

import h5py
import numpy as np
import pytest
import torch

from mgcaffe.errors import NotFiniteError, SolverError
from mgcaffe.prototxt import NetParameter, blob_array
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.events.statistics import BlobStatistics
from tests.support.solverkit import Recorder, make_solver

F = torch.nn.functional
RECORDS, BATCH, ROWS, LENGTH = 20, 4, 9, 3
ITERATIONS = 8
NET = """
layer {{ name: "data" type: "HDF5Data" top: "a" top: "b" top: "label"
  hdf5_data_param {{ source: "{folder}/data.txt" batch_size: 4 }} }}
layer {{ name: "one" type: "EmbeddingBag" bottom: "a" top: "one" {param}
  embedding_bag_param {{ input_dim: 9 num_output: 3 mode: MEAN weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "two" type: "EmbeddingBag" bottom: "b" top: "two" {param}
  embedding_bag_param {{ input_dim: 9 num_output: 3 weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "join" type: "Concat" bottom: "one" bottom: "two" top: "join" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "join" top: "ip" param {{ lr_mult: 1 decay_mult: {decay} }}
  inner_product_param {{ num_output: 1 bias_term: false weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
ADAGRAD = 'type: "AdaGrad" delta: 1e-3'
KINDS = {"SGD": 'type: "SGD"', "AdaGrad": ADAGRAD, "row_wise": ADAGRAD + " row_wise_adagrad: true"}


@pytest.fixture
def data(tmp_path):
    """Ids of two bags an item, which never name row 8, and labels."""
    random = np.random.default_rng(3)
    values = {name: random.integers(0, ROWS - 1, (RECORDS, size)) for name, size in (("a", 5), ("b", 1))}
    values["label"] = random.standard_normal((RECORDS, 1)).astype(np.float32)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, each in values.items():
            file[name] = each.astype(np.float32)
    (tmp_path / "data.txt").write_text(f"{tmp_path}/data.h5\n")
    return {name: torch.from_numpy(each).double() for name, each in values.items()}


def solver_on(folder, fields, *, param="", decay=0, **options):
    return make_solver(NET.format(folder=folder, param=param, decay=decay), fields, folder, **options)


def tables_of(solver):
    return [table.parameter.data.clone() for table in solver.net.arena.tables]


def update(kind, weights, gradient, sums, rate, delta):
    """The update rule on a dense gradient, whose rows of zeros change nothing."""
    if kind == "SGD":
        weights -= rate * gradient
        return
    squares = gradient.square()
    sums += squares.mean(1, keepdim=True) if kind == "row_wise" else squares
    weights -= rate * gradient / (sums.sqrt() + delta)


@pytest.mark.parametrize("shared", [False, True], ids=["two_tables", "one_shared"])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_those_of_the_dense_rules(tmp_path, data, kind, shared):
    param = 'param { name: "t" lr_mult: 2 }' if shared else "param { lr_mult: 2 }"
    with solver_on(tmp_path, KINDS[kind] + " iter_size: 2", param=param) as solver:
        tensors = [*tables_of(solver), solver.net.layers[-2].parameters[0].data.clone()]
        solver.step(ITERATIONS)
        tables = tables_of(solver)
        rate, delta = solver.rate, solver.param.delta
    assert len(tables) == 2 - shared
    *bags, weight = [each.requires_grad_() for each in tensors]
    unused = bags[0][ROWS - 1].detach().clone()
    sums = [torch.zeros_like(each) for each in tensors]
    for iteration in range(ITERATIONS):
        chosen = [(2 * BATCH * iteration + number) % RECORDS for number in range(2 * BATCH)]
        one = F.embedding_bag(data["a"][chosen].long(), bags[0], mode="mean")
        two = F.embedding_bag(data["b"][chosen].long(), bags[-1], mode="sum")
        errors = torch.cat([one, two], 1) @ weight.T - data["label"][chosen]
        gradients = torch.autograd.grad(errors.square().sum() / (4 * BATCH), tensors)
        with torch.no_grad():
            for tensor, gradient, each in zip(tensors, gradients, sums, strict=True):
                of_table = tensor is not weight
                mine = kind if of_table or kind == "SGD" else "AdaGrad"
                update(mine, tensor, gradient, each, rate * (2 if of_table else 1), delta)
    for mine, other in zip(tables, bags, strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(tables[0][ROWS - 1], unused)


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed_equals_never_stopped(tmp_path, data, kind, form):
    fields = f"{KINDS[kind]} snapshot_format: {form}"
    with solver_on(tmp_path, fields + " snapshot: 4", dtype=torch.float32) as solver:
        solver.step(7)
        weights = [solver.net.arena.data.clone(), *tables_of(solver)]
    ending = ".h5" if form == "HDF5" else ""
    with solver_on(tmp_path, fields, dtype=torch.float32) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate{ending}")
        shapes = [tuple(blob.shape) for blob in solver._updater.history_blobs(solver.net.parameters)]
        of_table = {"SGD": [], "AdaGrad": [(ROWS, LENGTH)], "row_wise": [(ROWS,)]}[kind]
        assert shapes == [*of_table, *of_table, (1, 2 * LENGTH)]
        solver.step(3)
        for mine, other in zip([solver.net.arena.data, *tables_of(solver)], weights, strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_with_diffs_holds_the_steps(tmp_path, data, kind):
    with solver_on(tmp_path, KINDS[kind] + " snapshot_diff: true") as solver:
        solver.step(1)
        before = tables_of(solver)
        solver.step(1)
        solver.snapshot()
        after = tables_of(solver)
    with solver_on(tmp_path, KINDS[kind]) as other:
        other.step(2)
        for mine, its in zip(tables_of(other), after, strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-14, atol=1e-14)
    message = NetParameter.FromString((tmp_path / "net_iter_2.caffemodel").read_bytes())
    blobs = [layer.blobs[0] for layer in message.layer if layer.type == "EmbeddingBag"]
    for blob, was, now in zip(blobs, before, after, strict=True):
        assert np.array_equal(blob_array(blob), now.numpy())
        steps = torch.tensor(list(blob.double_diff), dtype=torch.float64).view(ROWS, LENGTH)
        torch.testing.assert_close(was - steps, now, rtol=1e-14, atol=1e-14)


def test_debug_info_shows_tables(tmp_path, data):
    recorder = Recorder()
    with solver_on(tmp_path, ADAGRAD + " debug_info: true display: 1", recorder=recorder) as solver:
        before = tables_of(solver)
        solver.step(1)
        steps = [float((was - now).abs().mean()) for was, now in zip(before, tables_of(solver), strict=True)]
    shown = recorder.of(BlobStatistics)
    assert [each.diff for each in shown if each.step == "Update"][:2] == steps
    assert all(each.diff for each in shown if each.step == "Backward" and each.layer in ("one", "two"))


def test_gradients_that_are_not_finite_reach_no_table(tmp_path, data):
    with solver_on(tmp_path, 'type: "SGD"') as solver:
        before = tables_of(solver)
        table = solver.net.arena.tables[0].parameter

        def damage(index):
            if not index and table.gradients:
                table.gradients[-1].values[0] = float("nan")

        solver.net.after_backward.append(damage)
        with pytest.raises(NotFiniteError, match="a loss or gradient is not finite"):
            solver.step(1)
        assert all(map(torch.equal, before, tables_of(solver)))


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ('type: "Adam" momentum: 0.9', "solver type Adam cannot train the table of layer 'one'", "SGD or AdaGrad"),
        ("momentum: 0.9", "momentum is 0.9 and would move every row of the table", "set momentum: 0"),
        ('momentum_policy: "opt"', "momentum_policy is 'opt', and momentum would move", "remove momentum_policy"),
        ("weight_decay: 0.5", "weight_decay is 0.5 and would move every row", "decay_mult: 0 }"),
        ("clip_gradients: 1", "clip_gradients is not offered with the table", "remove clip_gradients"),
        ("larc: true", "larc needs the norm of all weights", "remove larc"),
    ],
)
def test_what_would_touch_every_row_is_refused(tmp_path, data, fields, message, hint):
    with pytest.raises(SolverError, match=message) as caught:
        solver_on(tmp_path, fields)
    assert hint in caught.value.hint
    solver_on(tmp_path, fields, param="param { lr_mult: 0 }").close()


def test_weight_decay_of_the_other_layers_is_no_obstacle(tmp_path, data):
    with solver_on(tmp_path, "weight_decay: 0.5", param="param { decay_mult: 0 }", decay=1) as solver:
        row = tables_of(solver)[0][ROWS - 1]
        solver.step(2)
        assert torch.equal(tables_of(solver)[0][ROWS - 1], row)


def test_row_wise_adagrad_without_effect_is_warned_about(tmp_path, data):
    recorder = Recorder()
    solver_on(tmp_path, "row_wise_adagrad: true", recorder=recorder).close()
    assert "only solver type AdaGrad would read it" in recorder.of(Warned)[0].text
