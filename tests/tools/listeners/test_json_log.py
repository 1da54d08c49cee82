"""What a run's events look like as JSON lines."""

from __future__ import annotations

import json

import pytest

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.errors import EngineError
from mgcaffe.solvers import events
from mgcaffe.tools.listeners.json_log import JsonLog
from tests.support.run_events import REPLICAS, RUN


def test_json_lines_hold_every_iteration_test_and_snapshot(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"event": "earlier run"}\n')
    log = JsonLog(path)
    for event in RUN:
        log.on_event(event)
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds == ["earlier run", "start", "test", "iteration", "plan", "iteration", "warning", "snapshot",
                     "finish"]  # fmt: skip
    first = lines[3]
    assert first["iter"] == 0
    assert first["loss"] == 2.3
    assert first["lr"] == 0.01
    assert first["images_per_s"] == pytest.approx(3200)
    assert first["data_wait_ms"] == pytest.approx(1)
    assert (first["comm_hidden_ms"], first["comm_exposed_ms"]) == (pytest.approx(3), pytest.approx(1))
    assert lines[5]["loss"] is None  # NaN is no JSON
    assert lines[2]["scores"] == {"accuracy": 0.0975, "loss": 2.4}
    assert lines[7]["state"] == "x_iter_200.solverstate"
    assert lines[8]["hidden_share"] == pytest.approx(0.75)


def test_a_run_begins_a_line_of_its_own_where_the_one_before_was_killed_within_one(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"event": "start", "net": "a"}\n{"event": "iterat')
    for _ in range(2):
        log = JsonLog(path)
        log.on_event(RUN[0])
        log.close()
    earlier, cut_off, *events_of_runs = path.read_text().splitlines()
    assert json.loads(earlier)["net"] == "a" and cut_off == '{"event": "iterat'
    assert [json.loads(line)["event"] for line in events_of_runs] == ["start", "start"]


def test_a_json_log_has_the_changes_of_the_loss_scale(tmp_path):
    log = JsonLog(tmp_path / "run.json")
    log.on_event(events.LossScaleChanged(3, 32768.0, is_skipped=True))
    log.close()
    line = json.loads((tmp_path / "run.json").read_text())
    assert {name: line[name] for name in ("event", "iter", "scale", "skipped")} == {
        "event": "loss_scale", "iter": 3, "scale": 32768.0, "skipped": True,
    }  # fmt: skip
    assert line["text"].startswith("Iteration 3: gradients overflow in fp16")


def test_a_json_log_says_what_a_plan_predicts(tmp_path):
    group = Group(0, 3, 0, 250, 1000, ready_at=0.004, start_at=0.004, end_at=0.007)
    log = JsonLog(tmp_path / "run.json")
    log.on_event(events.PlanChosen(10, "single", Plan("single", 4, (group,), backward_end=0.005), None))
    log.on_event(events.PlanChosen(0, "single", Plan("single", 4, (group,), backward_end=0.0), None))
    log.close()
    measured, unmeasured = (json.loads(line) for line in (tmp_path / "run.json").read_text().splitlines())
    assert measured["predicted"] == pytest.approx({"backward_ms": 5.0, "communication_ms": 3.0, "exposed_ms": 2.0})
    assert unmeasured["predicted"] is None


def test_an_unwritable_json_log_ends_with_code_73(tmp_path):
    with pytest.raises(EngineError, match=r"cannot write the JSON log .*No such file") as error:
        JsonLog(tmp_path / "absent" / "run.json")
    assert error.value.exit_code == 73


def test_a_json_log_on_a_full_disk_is_given_up_with_one_warning(caplog):
    log = JsonLog("/dev/full")
    for _ in range(3):
        log.on_event(events.Warned("x"))
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write the JSON log /dev/full any more: No space left on device"
    ]


def test_a_json_log_has_the_figures_of_replicas(tmp_path):
    log = JsonLog(tmp_path / "run.json")
    for event in REPLICAS:
        log.on_event(event)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "run.json").read_text().splitlines()]
    first, second = (line for line in lines if line["event"] == "sync")
    assert first["distances"] == [0.5, None] and second["distances"] == [0.125, 0.25]
    assert second["rounds"] == [24, 22] and second["iterations"] == [100, 70] and second["examples_per_s"] == 5000
    assert second["synchronizations"] == 24 and second["gap"] == pytest.approx(100 / 24)
    assert second["sync_bytes"] == 49152 and second["sync_ms"] == pytest.approx(440 / 24)
    assert first["sync_exposed_ms"] == 0 and second["sync_exposed_ms"] == pytest.approx(4.4)
    assert lines[-1]["examples_per_s"] == 4000 and lines[-1]["accuracy"] == 0.985
    assert lines[-1]["mean_scores"] == [{"accuracy": 0.99}]
