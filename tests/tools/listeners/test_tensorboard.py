"""TensorBoard events, read back with tensorboardX's own message."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.solvers import events
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.tools.listeners.tensorboard import TensorBoardListener
from tests.support.run_events import REPLICAS


def scalars(folder):
    """(name, step, value) of every scalar, in order of the files' names."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        place = 0
        while place < len(content):
            (size,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + size])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            place += size + 16
    return found


def test_losses_scores_rates_and_waits_are_written(tmp_path):
    listener = TensorBoardListener(str(tmp_path / "board"))
    loss = events.OutputValue(0, "loss", 0.25, 1.0)
    for event in [
        events.Started("LeNet", "SGD", "inv", 0, 200, 64, 1, 2, 1),
        Tested(0, 0, (events.OutputValue(0, "accuracy", 0.5),), 2.5, 0.1),
        events.IterationDone(0, 2.0, 2.0, 0.5, 64, 0.5, 0.25, 0.125, 0.0625),
        events.IterationDone(1, 2.0, 2.0, 0.5, 64, 0.5, 0.25, 0.125, 0.0625),
        events.Displayed(2, 0.125, 50.0, 2.0, 2, (loss,)),
        events.LearningRate(2, 0.5),
        events.Warned("passed over"),
    ]:
        listener.on_event(event)
    listener.close()
    assert scalars(tmp_path / "board") == [
        ("test_0/accuracy", 0, 0.5),
        ("test_0/test_loss", 0, 2.5),
        ("train/smoothed_loss", 2, 0.125),
        ("train/loss", 2, 0.25),
        ("speed/images_per_s", 2, 128.0),
        ("wait/data_ms", 2, 250.0),
        ("wait/comm_exposed_ms", 2, 62.5),
        ("wait/comm_hidden_ms", 2, 125.0),
        ("train/learning_rate", 2, 0.5),
    ]


def test_a_run_writes_them_behind_its_flag(engine):
    result = engine.run("train", "solver.prototxt", "--tensorboard=board")
    assert result.returncode == 0, result.stderr
    found = scalars(engine.folder / "board")
    assert [step for name, step, _ in found if name == "train/smoothed_loss"] == [0, 10, 20]
    assert [step for name, step, _ in found if name == "test_0/accuracy"] == [0, 10, 20]


def test_a_missing_package_is_a_clear_error(monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else known(name))
    with pytest.raises(UsageError, match="tensorboardX, which is not installed") as caught:
        TensorBoardListener("board")
    assert "pip install 'mgcaffe[tensorboard]'" in str(caught.value)


def test_a_folder_that_cannot_be_written_ends_with_code_73(engine):
    engine.write("file", "x")
    result = engine.run("train", "solver.prototxt", "--tensorboard=file")
    assert (result.returncode, "cannot write TensorBoard events to file" in result.stderr) == (73, True), result.stderr


def test_a_full_disk_ends_the_events_with_one_warning_and_not_the_run(tmp_path, monkeypatch, caplog):
    listener = TensorBoardListener(str(tmp_path))
    listener.on_event(events.Started("LeNet", "SGD", "inv", 0, 200, 64, 1, 2, 1))
    listener._writer.close()
    monkeypatch.setattr(listener._writer, "_writer", Path("/dev/full").open("wb"))
    for iteration in range(100):
        listener.on_event(events.Displayed(iteration, 0.125, 50.0, 2.0, 2, ()))
    listener.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write TensorBoard events to {tmp_path} any more: No space left on device"
    ]


def test_synchronizations_gaps_and_distances_of_trainers_are_written(tmp_path):
    listener = TensorBoardListener(str(tmp_path / "board"))
    for event in REPLICAS:
        listener.on_event(event)
    listener.close()
    assert scalars(tmp_path / "board") == [
        ("speed/all_examples_per_s", 20, 4000.0),
        ("sync/synchronizations", 20, 4.0),
        ("sync/distance_0", 20, 0.5),
        ("speed/all_examples_per_s", 100, 5000.0),
        ("sync/synchronizations", 100, 24.0),
        ("sync/distance_0", 100, 0.125),
        ("sync/distance_1", 100, 0.25),
        ("sync/gap_0", 100, 4.0),
        ("sync/gap_1", 100, 3.0),
        ("sync/ms", 100, 20.0),
    ]
