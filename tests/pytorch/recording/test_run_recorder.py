"""The log and the timeline of a training loop; ranks are threads."""

import gc
import json
import weakref

import pytest
import torch
from torch import nn

from mgcaffe.comm import run_ranks
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, UsageError
from mgcaffe.pytorch import MergedGradientParallel, RunRecorder
from mgcaffe.tools.main import main
from mgcaffe.tools.report.data import read_run
from mgcaffe.tools.report.spans import read_timeline
from tests.support.ddp_models import Types, batch, mlp


def run(folder, *, size=2, steps=16, module=mlp, width=20, options=None, keep=None, **recording):
    """Train and record; return what each rank's timeline took."""
    torch.manual_seed(0)
    modules = [module() for _ in range(size)]
    for other in modules[1:]:
        other.load_state_dict(modules[0].state_dict())

    def rank(communicator):
        options_given = {"schedule": "wfbp", "calibration_iterations": 2} if options is None else options
        model = MergedGradientParallel(modules[communicator.rank], process_group=communicator, **options_given)
        updates = torch.optim.SGD(model.parameters(), 0.01)
        recording.setdefault("timeline", folder / "run.timeline.json")
        with RunRecorder(model, folder / "run.json", optimizer=updates, **recording) as recorder:
            for step in range(steps):
                updates.zero_grad()
                loss = model(batch(communicator.rank, step, 4, width)).square().mean()
                loss.backward()
                updates.step()
                recorder.iteration_done(loss)
        if keep is not None:
            keep(model)
        model.close()

    run_ranks(size, rank)
    return read_run(folder / "run.json")


def test_a_run_is_logged_with_its_plan(tmp_path):
    log = run(tmp_path, name="digits", iterations=16)
    assert log.start == {
        "net": "digits",
        "max_iter": 16,
        "ranks": 2,
        "workers": 1,
        "parameters": sum(map(torch.numel, mlp().parameters())),
    }
    assert [line["iter"] for line in log.iterations] == list(range(16))
    assert log.plan["plan"] == "wfbp" and log.plan["groups"] == 6 and 2 <= log.plan["iter"] <= 5
    last = log.iterations[-1]
    assert last["lr"] == 0.01 and last["loss"] > 0 and last["images_per_s"] * last["seconds"] == pytest.approx(8)
    assert last["comm_hidden_ms"] + last["comm_exposed_ms"] > 0
    assert log.finish["iterations"] == [16, 16]


def test_a_module_does_not_keep_its_recorder_once_that_is_closed(tmp_path):
    def record(name):
        with RunRecorder(model, tmp_path / f"{name}.json", timeline=tmp_path / f"{name}.timeline.json") as recorder:
            model(batch(0, 0, 4, 20)).square().mean().backward()
            recorder.iteration_done()
        return weakref.ref(recorder)

    model = MergedGradientParallel(mlp())
    recorders = [record("first"), record("second")]
    gc.collect()
    assert [each() for each in recorders] == [None, None]


def test_a_timeline_has_layers_gradients_and_groups_of_each_rank(tmp_path):
    run(tmp_path)
    timeline = read_timeline(tmp_path / "run.timeline.json")
    assert len(timeline.iterations) == 8 and len(timeline.ranks) == 2
    assert timeline.plan["schedule"] == "wfbp"
    names = [name for name, _ in mlp().named_parameters()]
    for rank in (0, 1):
        of_rank = [box for box in timeline.boxes if box.rank == rank]
        for category, expected in {
            "forward": {"Sequential", "0", "1", "2", "3", "4"},
            "backward": set(names),
            "update": {"update"},
            "data": {"before the forward pass"},
        }.items():
            found = [box.name for box in of_rank if box.category == category]
            assert set(found) == expected and len(found) == 8 * len(expected), category
        reduced = [box for box in of_rank if box.category == "allreduce"]
        assert sorted(box.facts["group"] for box in reduced) == sorted(list(range(6)) * 8)
        for box in of_rank:
            if "iteration" in box.facts and box.category != "iteration":
                whole = timeline.span_of(box.facts["iteration"], rank)
                assert whole.start - 1e-3 <= box.start and box.end <= whole.end + 1e-3
    assert timeline.groups()[0].layers == names[-1]
    phases = timeline.phases()
    assert phases["forward"] > 0 and phases["backward"] > 0


def test_engine_report_makes_a_page_of_it(tmp_path, capsys):
    run(tmp_path, module=Types, width=6)
    assert main(["report", str(tmp_path / "run.json")]) == 0
    assert "16 iterations, timeline" in capsys.readouterr().out
    page = (tmp_path / "run.html").read_text()
    assert "Every group: predicted and measured" in page and "c.weight" in page and "a.weight" in page
    assert "of 0" not in page  # how many iterations there are to be was not said


def test_nothing_stays_behind_and_iterations_can_be_chosen(tmp_path):
    hooks = []

    def keep(model):
        parts = [*model.modules()]
        hooks.append(sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in parts))
        hooks.append(sum(len(each._post_accumulate_grad_hooks or ()) for each in model.parameters()))

    run(tmp_path, timeline_iterations=(3, 5), steps=8, keep=keep)
    assert read_timeline(tmp_path / "run.timeline.json").iterations == [3, 4]
    assert set(hooks) == {0}


def test_a_loop_that_ends_early_leaves_a_log_and_says_what_it_lacks(tmp_path, caplog):
    log = run(tmp_path, steps=3, timeline_iterations=(5, 8))
    assert len(log.iterations) == 3 and "no timeline was written" in caplog.text
    assert not (tmp_path / "run.timeline.json").exists()
    run(tmp_path, steps=6, timeline_iterations=(4, 9))
    assert read_timeline(tmp_path / "run.timeline.json").iterations == [4, 5]


def test_one_rank_is_recorded_as_well(tmp_path):
    log = run(tmp_path, size=1)
    timeline = read_timeline(tmp_path / "run.timeline.json")
    assert log.plan is None and timeline.plan is None and len(timeline.iterations) == 8


def test_an_exception_ends_the_log_without_waiting_for_other_ranks(tmp_path):
    model = MergedGradientParallel(mlp())
    with pytest.raises(ValueError, match="stop"), RunRecorder(model, tmp_path / "run.json") as recorder:
        model(batch(0, 0, 4, 20)).sum().backward()
        recorder.iteration_done(samples=7)
        raise ValueError("stop")
    lines = [json.loads(line) for line in (tmp_path / "run.json").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "iteration"]
    assert lines[1]["loss"] is None and lines[1]["images_per_s"] * lines[1]["seconds"] == pytest.approx(7)


def test_accumulated_passes_are_one_iteration(tmp_path):
    model = MergedGradientParallel(mlp())
    with RunRecorder(model, tmp_path / "run.json") as recorder:
        for _ in range(2):
            for part in range(3):
                model(batch(0, part, 4, 20)).sum().backward()
            recorder.iteration_done(1.0)
        recorder.close()
    log = read_run(tmp_path / "run.json")
    assert len(log.iterations) == 2
    assert log.iterations[1]["images_per_s"] * log.iterations[1]["seconds"] == pytest.approx(12)


def test_all_passes_of_an_iteration_count(tmp_path):
    def rank(communicator):
        model = MergedGradientParallel(mlp(), process_group=communicator, schedule="wfbp", deterministic=True)
        with RunRecorder(model, tmp_path / "run.json", timeline=tmp_path / "t.json", timeline_iterations=(1, 2)) as run:
            for _ in range(2):
                for part in range(3):
                    model(batch(communicator.rank, part, 4, 20)).sum().backward()
                run.iteration_done()
        model.close()

    run_ranks(2, rank)
    timeline = read_timeline(tmp_path / "t.json")
    assert len(timeline.allreduces()) == 2 * 3 * 6


def test_what_cannot_be_recorded_is_said(tmp_path):
    with pytest.raises(UsageError, match="of type Linear"):
        RunRecorder(nn.Linear(2, 2), tmp_path / "run.json")
    model = MergedGradientParallel(mlp())
    with pytest.raises(UsageError, match=r"timeline_iterations=\(5, 5\) are none"):
        RunRecorder(model, tmp_path / "run.json", timeline_iterations=(5, 5))
    for options in ({"path": tmp_path / "absent" / "run.json"}, {"path": tmp_path / "a", "timeline": "/absent/b"}):
        with pytest.raises(EngineError) as caught:
            RunRecorder(model, **options)
        assert caught.value.exit_code == EXIT_CANNOT_WRITE
