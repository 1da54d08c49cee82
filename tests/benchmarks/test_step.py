"""What benchmarks/step.py refuses, and what its sides compute."""

import sys
from types import SimpleNamespace

import machine_limit
import pytest
import recompute
import step
import step_worker


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--precision=tf32"], "only GPUs have TF32"),
        (["--device=cuda", "--same_malloc"], "leave --device cuda out"),
        (["--batch=0"], "at least one image"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        step.parse(words)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_16_bits_are_measured_beside_float32_and_autocast():
    for precision in ("bf16", "fp16"):
        sides = step.parse([f"--precision={precision}"]).sides
        assert sides == ["ours", "ours_float32", "eager", "channels_last"]
    assert step.parse(["--precision=bf16", "--sides", "eager", "--batch=4"]).sides == ["eager"]
    step_worker.our_step("lenet", 2, "cpu", "bf16")(1)
    step_worker.our_step("lenet", 2, "cpu", "fp16")(1)
    (exact,), (rounded,) = (step_worker.torch_step("lenet", "eager", 2, "cpu", each)(1) for each in ("float32", "fp16"))
    assert exact != rounded
    assert abs(exact - rounded) < 0.02 * exact


def test_operations_are_those_of_the_products():
    # LeNet: two convolutions (the first has no gradient of its images) and two products; 2 operations a multiplication.
    first, rest = 20 * 24 * 24 * 25, [50 * 8 * 8 * 20 * 25, 800 * 500, 500 * 10]
    assert step_worker.flops_of_step("lenet", 3) == 3 * 2 * (2 * first + 3 * sum(rest))


def test_both_sides_make_steps():
    arguments = ("lenet", 2, "cpu", "float32")
    ours, eager = step_worker.our_step(*arguments), step_worker.torch_step("lenet", "eager", *arguments[1:])
    ours(2)
    first, second, third = eager(3)
    assert first > second > third


def test_a_turn_has_several_short_steps_of_which_the_first_does_not_count(monkeypatch):
    assert [step_worker.steps_of_turn(seconds) for seconds in (0.008, 0.04, 0.08, 3.0)] == [12, 2, 1, 1]
    now, events = [0.0], []

    def make_steps(count):
        for _ in range(count):
            now[0] += 1.0 if "step" in events else 100.0
            events.append("step")

    clock = SimpleNamespace(
        sleep=lambda _: events.append("sleep"), perf_counter=lambda: now[0], process_time=lambda: 2 * now[0]
    )
    monkeypatch.setattr(step_worker, "time", clock)
    assert step_worker.take_turn(make_steps, lambda: None, 4) == (1.0, 2.0)
    assert events == ["sleep"] + 5 * ["step"]
    events.clear()
    assert step_worker.take_turn(make_steps, lambda: events.append("wait"), 1) == (100.0, 200.0)
    assert events == ["sleep", "wait", "step", "wait"]


def test_recomputing_is_compared_turn_by_turn(monkeypatch):
    class Side:
        def __init__(self, side, *_, **__):
            self.seconds = {"ours": 1.0, "recompute": 1.5}[side]

        def take_turn(self):
            return self.seconds, 2 * self.seconds

        def end(self):
            return 100.0 / self.seconds

        def kill(self):
            pass

    monkeypatch.setattr(recompute, "Worker", Side)
    row = recompute.compare("lenet", SimpleNamespace(rounds=2, batch=4))
    assert row.startswith("| lenet | 4 | 1000.0 | 1500.0 | 1.500 | 1.500 | 100 | 67 | 0.667 |")


def test_a_table_shows_the_share_of_the_best_product(capsys):
    row = {
        "model": "lenet",
        "batch": 2,
        "side": "ours",
        "median_ms": 1.0,
        "cpu_ms": 1.0,
        "gflops": 50.0,
        "peak_mib": 1.0,
    }
    step.show([row], {"gflops": 200.0})
    assert "| lenet | 2 | ours | 1.0 | - | 1.0 | - | 25.0% | 1 | - |" in capsys.readouterr().out


def test_the_limit_is_that_of_the_best_product(monkeypatch):
    monkeypatch.setattr(machine_limit, "_SECONDS", 0.0)
    found = machine_limit.measure("cpu", "float32", 1)
    assert found["gflops"] > 0 and found["gbytes"] > 0 and found["size"] in machine_limit._CPU_SIZES


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("print('a library'); print(3, flush=True); time.sleep(60)", ""),  # both come at once
        ("print('a library'); sys.exit(5)", "lenet's: ended with code 5"),
        ("print('a library', flush=True); time.sleep(60)", "lenet's: not ready within 2 s"),
    ],
)
def test_what_libraries_print_is_no_answer(said, outcome, monkeypatch, capsys):
    start, started = step.subprocess.Popen, []

    def popen(_, **kinds):
        started.append(start([sys.executable, "-c", f"import sys, time; {said}"], **kinds))
        return started[0]

    monkeypatch.setattr(step, "_words", lambda *_: [])
    monkeypatch.setattr(step.subprocess, "Popen", popen)
    try:
        step.Worker("lenet's", "lenet", SimpleNamespace(start_limit=2.0), same_malloc=False)
        found = ""
    except step.SideFailed as failure:
        found = str(failure)
    started[0].stdin.close()
    started[0].kill()
    started[0].wait()
    assert found == outcome and "a library" in capsys.readouterr().err
