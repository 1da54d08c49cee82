"""examples/digits: its LMDBs hold what the script writes, its net learns them, on one rank and on two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from sklearn.datasets import load_digits

from examples.digits import make_lmdb
from mgcaffe.comm import run_ranks
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.prototxt import TEST, CommParameter, Datum, read_net, read_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Finished
from tests.support.paths import ROOT
from tests.support.shapes import infer, layers_of
from tests.support.solverkit import Recorder
from tests.support.standing_ranks import StandingRanks

DIGITS = ROOT / "examples" / "digits"


def records(folder: Path) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return [(bytes(key), bytes(value)) for key, value in transaction.cursor()]


@pytest.mark.parametrize(("name", "count", "part"), [("train", 1437, 0), ("test", 360, 1)])
def test_committed_records_are_those_the_script_makes(name: str, count: int, part: int) -> None:
    digits = load_digits()
    indices = make_lmdb.split(digits.target)[part]
    assert len(indices) == count
    assert records(DIGITS / f"{name}_lmdb") == [
        (b"%08d" % number, make_lmdb.record(digits.images[index], digits.target[index]))
        for number, index in enumerate(indices)
    ]


def test_no_image_is_in_both_parts_and_classes_are_balanced() -> None:
    labels = load_digits().target
    train, test = make_lmdb.split(labels)
    assert sorted([*train, *test]) == list(range(len(labels)))
    share = np.bincount(labels[test]) / np.bincount(labels)
    assert share == pytest.approx(np.full(10, 0.2), abs=0.005)


def test_a_record_is_a_grey_image_with_its_label() -> None:
    image = np.arange(64.0).reshape(8, 8) % 17
    datum = Datum.FromString(make_lmdb.record(image, 7))
    assert (datum.channels, datum.height, datum.width, datum.label) == (1, 8, 8, 7)
    assert np.frombuffer(datum.data, np.uint8).tolist() == (image * 15).ravel().tolist()


def test_writing_again_replaces_an_lmdb_and_leaves_no_lock(tmp_path: Path) -> None:
    make_lmdb.write_lmdb(tmp_path / "db", [b"old"] * 3)
    make_lmdb.write_lmdb(tmp_path / "db", [b"new", b"newer"])
    assert records(tmp_path / "db") == [(b"00000000", b"new"), (b"00000001", b"newer")]
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == ["data.mdb", "sums.crc32"]


def test_net_and_solver_fit_the_data() -> None:
    solver = read_solver(DIGITS / "solver.prototxt", strict=True)
    net = read_net(DIGITS / "train_test.prototxt", strict=True)
    assert solver.net == "examples/digits/train_test.prototxt"
    assert (DIGITS / "snapshots").is_dir()
    assert Path(solver.snapshot_prefix).parent == Path("examples/digits/snapshots")
    shapes = infer(net, TEST, (1, 8, 8))
    assert shapes.blobs["ip1"] == (45, 10)
    assert shapes.parameter_count == 25_866
    source = layers_of(net, TEST)[0].data_param
    assert solver.test_iter[0] * source.batch_size == len(records(DIGITS / "test_lmdb"))


def test_nothing_in_the_net_depends_on_how_ranks_cut_the_batch() -> None:
    net = read_net(DIGITS / "train_test.prototxt", strict=True)
    assert not {"Dropout", "BatchNorm"} & {layer.type for layer in net.layer}
    assert not any(layer.transform_param.mirror or layer.transform_param.crop_size for layer in net.layer)


def write_example(folder: Path, batch: int) -> Path:
    """Writes the example's files with another batch size, and snapshots in the folder; returns the solver's."""
    net = (DIGITS / "train_test.prototxt").read_text().replace("batch_size: 32", f"batch_size: {batch}")
    (folder / "net.prototxt").write_text(net)
    solver = (DIGITS / "solver.prototxt").read_text()
    solver = solver.replace("examples/digits/train_test.prototxt", str(folder / "net.prototxt"))
    solver = solver.replace("examples/digits/snapshots", str(folder))
    (folder / "solver.prototxt").write_text(solver)
    return folder / "solver.prototxt"


def train(folder: Path, ranks: StandingRanks, batch: int) -> tuple[list[float], float]:
    """Runs the example under mpirun with its files' batch size and snapshots replaced.

    Returns:
        The loss of every iteration, and the test accuracy at the end.
    """
    solver = write_example(folder, batch)
    log = folder / "log.json"
    result = ranks.run(ROOT, "train", str(solver), f"--json_log={log}")
    assert result.returncode == 0, result.stderr
    assert (folder / "digits_iter_1000.solverstate").is_file()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "iteration"]
    tests = [line for line in lines if line["event"] == "test"]
    assert [line["iter"] for line in tests] == [0, 250, 500, 750, 1000]
    return losses, tests[-1]["scores"]["accuracy"]


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_train_as_one_rank_does_with_twice_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mpi_ranks: Callable[[int], StandingRanks]
) -> None:
    two, accuracy = train(tmp_path, mpi_ranks(2), 32)
    assert accuracy >= 0.975
    monkeypatch.chdir(ROOT)
    recorder = Recorder()
    with Solver(read_solver(write_example(tmp_path, 64)), listeners=[recorder]) as solver:
        solver.step(50)
    one = recorder.losses
    assert len(one) == 50
    assert two[:20] == pytest.approx(one[:20], rel=1e-5)
    assert two[:50] == pytest.approx(one[:50], rel=1e-4)


@pytest.mark.mpi
@pytest.mark.slow
def test_one_rank_learns_the_digits(tmp_path: Path, mpi_ranks: Callable[[int], StandingRanks]) -> None:
    assert train(tmp_path, mpi_ranks(1), 32)[1] >= 0.975


def train_in_threads(sync: str, ranks: int) -> tuple[float, SyncFigures | None]:
    """Runs 80 iterations of the example, a thread each rank; returns rank 0's accuracy and synchronization."""
    param = read_solver(DIGITS / "solver.prototxt")
    param.net = str(DIGITS / "train_test.prototxt")
    param.max_iter = param.test_interval = 80
    param.snapshot, param.snapshot_after_train, param.test_initialization = 0, False, False
    param.comm_param.sync = getattr(CommParameter, sync)

    def rank(communicator: Any) -> Recorder:
        recorder = Recorder()
        with Solver(param, communicator=communicator, listeners=[recorder]) as solver:
            solver.solve()
        return recorder

    (finished,) = run_ranks(ranks, rank)[0].of(Finished)
    (accuracy,) = (score.value for score in finished.scores[0] if score.name == "accuracy")
    return accuracy, finished.synchronization


@pytest.mark.slow
def test_a_convolutional_net_learns_with_replicas_about_as_well_as_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    in_step, _ = train_in_threads("GRADIENTS", 2)
    assert in_step >= 0.92
    for sync, ranks in (("SHADOW_MA", 2), ("DS_SYNC", 4)):
        accuracy, figures = train_in_threads(sync, ranks)
        assert accuracy >= in_step - 0.04, sync
        assert figures is not None and figures.synchronizations > (70 if sync == "DS_SYNC" else 5)
