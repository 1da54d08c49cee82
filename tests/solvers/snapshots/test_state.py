"""Solverstates: Caffe's own are read, ours hold everything, and what is no solverstate is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from google.protobuf import text_format

from mgcaffe.engine.arena import ParameterArena
from mgcaffe.engine.parameter import Parameter
from mgcaffe.errors import EXIT_BAD_INPUT, SnapshotError
from mgcaffe.errors.whole_files import write_whole
from mgcaffe.prototxt import SolverState, blob_array, fill_blob
from mgcaffe.solvers.snapshots.best import BestScore
from mgcaffe.solvers.snapshots.named_weights import names_weights
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.state_file import encode_state, read_state
from mgcaffe.solvers.snapshots.state_hdf5 import encode_state_hdf5
from tests.support.paths import GOLDEN

SOLVERS = GOLDEN / "solvers"
SHAPES = [(4, 3), (5,), (2, 2, 2, 1)]


def make_arena(shapes=SHAPES):
    parameters = [Parameter(shape, lr_mult=rate) for shape, rate in zip(shapes, (1, 0, 2), strict=False)]
    layers = [(index, f"layer{index}", parameter) for index, parameter in enumerate(parameters)]
    return ParameterArena(layers, torch.float32, torch.device("cpu")), parameters


def blobs(arena, parameters, flats):
    return [arena.view(flat, parameter) for flat in flats for parameter in parameters]


def write(path, histories=2, **fields):
    arena, parameters = make_arena()
    values = [torch.arange(arena.data.numel()).float() * (index + 1) for index in range(histories)]
    path.write_bytes(encode_state(Progress(**fields), "net_iter_7.caffemodel", blobs(arena, parameters, values)))
    return arena, parameters, values


def refusal(path):
    with pytest.raises(SnapshotError) as caught:
        read_state(path)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_state_holds_all_that_is_needed_to_go_on(tmp_path):
    progress = Progress(
        iteration=7,
        current_step=2,
        seed=2**40 + 1,
        world_size=3,
        records={"data": 2**33, "0:data": 5},
        smoothed_losses=[0.1, 1 / 3],
        solver_type="SGD",
        plan='{"schedule": "wfbp", "layers": 1, "groups": [], "backward_end": 0.5}',
        best=BestScore(1, "accuracy", True, 0.1 + 0.2, 5),
        precision="bf16",
    )
    path = tmp_path / "a.solverstate"
    arena, parameters, values = write(path, **progress.__dict__)
    state = read_state(path)
    assert state.progress == progress
    assert state.learned_net == "net_iter_7.caffemodel"
    restored = [arena.like(), arena.like()]
    state.copy_history(blobs(arena, parameters, restored))
    assert torch.equal(torch.stack(restored), torch.stack(values))


@pytest.mark.parametrize("name", [os.fsdecode(b"b\xe4r.caffemodel"), "b\xe4r.caffemodel", ""])
def test_weights_of_any_name_are_named_in_both_forms(tmp_path, name):
    (tmp_path / "a").write_bytes(encode_state(Progress(iteration=7), name, []))
    write_whole(tmp_path / "a.h5", encode_state_hdf5(Progress(iteration=7), name, []))
    assert [read_state(tmp_path / each).learned_net for each in ("a", "a.h5")] == [name, name]
    assert [names_weights(tmp_path / each) for each in ("a", "a.h5")] == [bool(name)] * 2


def test_history_blobs_come_in_caffes_order_with_their_shapes(tmp_path):
    arena, parameters, values = write(tmp_path / "a", iteration=7)
    message = SolverState.FromString((tmp_path / "a").read_bytes())
    assert [tuple(blob.shape.dim) for blob in message.history] == SHAPES * 2
    for index, blob in enumerate(message.history):
        expected = arena.view(values[index // 3], parameters[index % 3]).numpy()
        np.testing.assert_array_equal(blob_array(blob), expected)


def test_caffes_own_state_is_read_and_says_nothing_of_ours():
    state = read_state(SOLVERS / "sgd_momentum" / "snap_iter_5.solverstate")
    assert state.progress == Progress(iteration=5)
    assert state.learned_net.endswith("snap_iter_5.caffemodel")
    assert len(state.history) == 4


def test_weights_are_looked_for_as_given_and_then_beside_the_state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moved").mkdir()
    write(tmp_path / "moved" / "a.solverstate", iteration=7)
    state = read_state("moved/a.solverstate")
    with pytest.raises(SnapshotError, match=r"net_iter_7\.caffemodel.*missing") as caught:
        state.find_weights()
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert caught.value.hint.startswith("looked for net_iter_7.caffemodel and moved/net_iter_7.caffemodel; put")
    write(tmp_path / "a.solverstate", iteration=7)
    with pytest.raises(SnapshotError) as caught:
        read_state("a.solverstate").find_weights()
    assert caught.value.hint.startswith("looked for net_iter_7.caffemodel; put")
    beside = tmp_path / "moved" / "net_iter_7.caffemodel"
    beside.touch()
    assert state.find_weights().resolve() == beside
    (tmp_path / "net_iter_7.caffemodel").touch()
    assert state.find_weights() == Path("net_iter_7.caffemodel")


def test_weights_whose_name_is_not_utf8_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = encode_state(Progress(iteration=7), "net?iter_7.caffemodel", [])
    (tmp_path / "a.solverstate").write_bytes(content.replace(b"?", b"\xe4"))
    state = read_state("a.solverstate")
    (tmp_path / os.fsdecode(b"net\xe4iter_7.caffemodel")).touch()
    assert os.fsencode(state.find_weights()) == b"net\xe4iter_7.caffemodel"


def test_the_state_of_another_solver_type_is_refused(tmp_path):
    write(tmp_path / "a", iteration=7, solver_type="Adam")
    state = read_state(tmp_path / "a")
    state.check_solver_type("Adam")
    with pytest.raises(SnapshotError, match="solver type Adam, and this solver has type SGD"):
        state.check_solver_type("SGD")


def test_a_history_of_another_length_or_shape_is_refused(tmp_path):
    arena, parameters, values = write(tmp_path / "a", iteration=7)
    state = read_state(tmp_path / "a")
    with pytest.raises(SnapshotError, match=r"6 history blob\(s\); net and solver type have 3"):
        state.copy_history(blobs(arena, parameters, values[:1]))
    arena, parameters = make_arena([(3, 4), *SHAPES[1:]])
    with pytest.raises(SnapshotError, match=r"history blob 0 .* \(4, 3\); the net's has \(3, 4\)\n.*with the net that"):
        state.copy_history(blobs(arena, parameters, values))


@pytest.mark.parametrize(("before", "now"), [((4, 3), (4,)), ((4,), (4, 3))])
def test_a_history_by_rows_where_the_snapshot_has_none_names_the_option(tmp_path, before, now):
    message = SolverState(iter=1)
    fill_blob(message.history.add(), np.zeros(before, np.float32))
    (tmp_path / "a.solverstate").write_bytes(message.SerializeToString())
    with pytest.raises(SnapshotError, match="resume with row_wise_adagrad as it was in the run"):
        read_state(tmp_path / "a.solverstate").check_history([torch.zeros(now)])


@pytest.mark.parametrize("values", [[1, 2, 3], [4]])
def test_old_histories_with_four_axes_fit(tmp_path, values):
    message = SolverState(iter=1)
    message.history.add(num=1, channels=1, height=1, width=len(values)).data.extend(values)
    (tmp_path / "old").write_bytes(message.SerializeToString())
    arena, parameters = make_arena([(len(values),)])
    history = arena.like()
    read_state(tmp_path / "old").copy_history(blobs(arena, parameters, [history]))
    assert history.tolist() == values


def test_what_is_no_solverstate_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "missing.solverstate")
    weights = tmp_path / "a.caffemodel"
    weights.write_bytes((SOLVERS / "sgd" / "snap_iter_5.caffemodel").read_bytes())
    assert "is a caffemodel" in refusal(weights)
    assert "--weights" in refusal(weights)
    whole = (SOLVERS / "sgd" / "snap_iter_5.solverstate").read_bytes()
    short = tmp_path / "short.solverstate"
    short.write_bytes(whole[:-20])
    assert "cut short" in refusal(short)
    text = tmp_path / "solver.prototxt"
    text.write_text("base_lr: 0.1\n")
    refusal(text)
    empty = tmp_path / "empty.solverstate"
    empty.touch()
    assert "no iteration" in refusal(empty)


@pytest.mark.parametrize(
    "text",
    [
        "iter: -1",
        "iter: 7 current_step: -1",
        "iter: 7 engine_state { world_size: 0 }",
        'iter: 7 engine_state { records { layer: "data" records: -1 } }',
        'iter: 7 engine_state { plan: "{}" }',
        'iter: 7 engine_state { extra { key: "hogwild_threads" value: "0" } }',
        'iter: 7 engine_state { extra { key: "hogwild_threads" value: "two" } }',
        'iter: 7 engine_state { extra { key: "larc_turbo" value: "[0.5, 1.5]" } }',
        'iter: 7 engine_state { extra { key: "trainers" value: "[7, -1]" } }',
    ],
)
def test_values_that_no_run_leaves_are_refused(tmp_path, text):
    path = tmp_path / "a.solverstate"
    path.write_bytes(text_format.Parse(text, SolverState()).SerializeToString())
    assert "damaged" in refusal(path)
