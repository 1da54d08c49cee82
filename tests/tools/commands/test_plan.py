"""`engine plan` and the traces of `engine time`: predictions for a net, and plans that training takes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from mgcaffe.comm.planning.trace import read_trace
from tests.support.engine_command import Engine, process_as_before

LINE = "--network=affine:a=1e-3,b=1e-9"


def write_two_layers(engine):
    """Write the small net with another inner product in front of its own, and a trace of it."""
    engine.write(
        "net.prototxt",
        engine.net.replace(
            'layer {\n  name: "ip"\n  type: "InnerProduct"\n  bottom: "data"',
            'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 5\n'
            '  weight_filler { type: "xavier" } } }\n'
            'layer {\n  name: "ip"\n  type: "InnerProduct"\n  bottom: "fc"',
        ),
    )
    engine.write("trace.csv", "# forward_us: 1000\nlayer,elements,backward_us\nfc,20,1500\nip,24,500\n")


@pytest.fixture
def two_layers(engine):
    """A folder with that net."""
    write_two_layers(engine)
    return engine


def columns(out, schedule):
    (line,) = [line for line in out.splitlines() if line.startswith(schedule)]
    return re.split(r"  +", line)


def test_time_writes_the_nets_trace(two_layers):
    result = two_layers.run("time", "net.prototxt", "--iterations=3", "--trace=own.csv")
    assert result.returncode == 0, result.stderr
    trace = read_trace("own.csv")
    assert [(layer.name, layer.elements) for layer in trace.layers if layer.elements] == [("fc", 20), ("ip", 24)]
    assert trace.backward_s > 0 and trace.forward_s > 0
    assert (two_layers.folder / "own.csv").read_text().startswith("# tiny on cpu: medians of 3 passes\n")
    assert two_layers.run("simulate", "own.csv", LINE).returncode == 0


def test_every_schedule_is_predicted(two_layers):
    result = two_layers.run("plan", "net.prototxt", "--trace=trace.csv", LINE, "--workers=4", "--json=out.json")
    assert result.returncode == 0, result.stderr
    assert "2 layers with 44 parameters" in result.stdout
    assert "all-reduce among 4 workers: 1000 us + 1 ns per byte" in result.stdout
    # 1 ms forward, 2 ms backward, then 1 ms + 176 ns, or 1 ms + 80 ns after 1 ms + 96 ns beside the backward pass.
    assert columns(result.stdout, "single")[1:4] == ["1", "4.00 ms", "1.00 ms"]
    assert columns(result.stdout, "wfbp")[1:] == ["2", "4.00 ms", "2.00 ms", "1.00 ms", "1.00 ms", "3.00"]
    rows = json.loads((two_layers.folder / "out.json").read_text())
    assert [row["schedule"] for row in rows] == ["single", "wfbp", "threshold", "mgwfbp", "optimal"]
    assert {row["workers"] for row in rows} == {4}
    assert rows[0]["iteration_s"] == pytest.approx(4e-3 + 176e-9)


def test_a_net_is_timed_where_there_is_no_trace_also_that_of_a_solver(two_layers):
    for file in ("net.prototxt", "solver.prototxt"):
        result = two_layers.run("plan", file, LINE, "--workers=2", "--iterations=2", "--schedule=optimal")
        assert result.returncode == 0, result.stderr
        assert re.search(r"2 layers with 44 parameters \(0.00 MiB\); forward \d+\.\d+ ms, backward", result.stdout)
        assert re.search(r"^ +0  ip +", result.stdout, re.MULTILINE), result.stdout


def test_a_solver_and_a_net_whose_names_are_not_utf8_are_found(two_layers):
    (two_layers.folder / "net.prototxt").rename(two_layers.folder / os.fsdecode(b"r\xe9seau.prototxt"))
    solver = two_layers.solver.encode().replace(b"net.prototxt", b"r\xe9seau.prototxt")
    (two_layers.folder / "solver.prototxt").write_bytes(solver)
    result = two_layers.run("plan", "solver.prototxt", "--trace=trace.csv", LINE, "--workers=2", "--schedule=wfbp")
    assert result.returncode == 0, result.stderr
    assert "2 layers with 44 parameters" in result.stdout


@pytest.mark.parametrize(("workers", "said"), [(1, False), (2, True), (64, True), (65, False)])
def test_gradients_that_training_exchanges_as_products_are_named(two_layers, workers, said):
    two_layers.write(
        "large.prototxt",
        'name: "large" layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1024 } } }\n'
        'layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 1024 } }\n'
        'layer { name: "loss" type: "Reduction" bottom: "fc" top: "loss" loss_weight: 1 }\n',
    )
    result = two_layers.run("plan", "large.prototxt", LINE, f"--workers={workers}", "--iterations=1")
    assert result.returncode == 0, result.stderr
    text = (
        "training may exchange those of the weights of\n"
        f"fc as the matrices whose product they are: {workers * 2048:,} values instead of 1,048,576\n"
    )
    assert (text in result.stdout) == said


def test_a_net_is_timed_in_the_precision_of_the_flag_or_the_solver(two_layers):
    words = [LINE, "--workers=2", "--iterations=1", "--schedule=optimal"]
    two_layers.write("solver.prototxt", f'{two_layers.solver}\nprecision: "bf16"')
    for file, flags, name in (("net.prototxt", ["--precision=bf16"], "bf16"), ("solver.prototxt", [], "bf16"),
                              ("solver.prototxt", ["--precision=fp16"], "fp16")):  # fmt: skip
        result = two_layers.run("plan", file, *words, *flags)
        assert f"with products in {name}; gradients stay in float32" in result.stdout, result.stderr
    result = two_layers.run("plan", "--trace=trace.csv", *words, "--precision=bf16")
    assert result.returncode == 2
    assert "--trace holds their times already" in result.stderr
    result = two_layers.run("plan", "solver.prototxt", "--trace=trace.csv", *words)
    assert result.returncode == 0 and "products in" not in result.stdout, result.stderr


def test_a_trace_alone_will_do(two_layers):
    result = two_layers.run("plan", "--trace=trace.csv", LINE, "--workers=2", "--schedule=wfbp")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^ +1  fc +fc +1 +80 B +2.00 ms +2.00 ms +3.00 ms$", result.stdout, re.MULTILINE)


def test_a_measured_cost_is_shown_with_its_line(two_layers):
    two_layers.write("cost.json", json.dumps({"kind": "curve", "points": [[1024, 1e-3], [2048, 1.5e-3], [4096, 2e-3]]}))
    result = two_layers.run("plan", "--trace=trace.csv", "--cost=cost.json", "--workers=2")
    assert result.returncode == 0, result.stderr
    assert "a measured curve, fitted by" in result.stdout


@dataclass(frozen=True)
class TrainedByPlans:
    """What two ranks have left in a folder, and what rank 0 said of each training."""

    folder: Path
    said: dict[str, str]
    exported: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory, mpi_ranks):
    """Train that net by an exported plan, by an edited one, with a cost file, and over an emulated link."""
    engine = Engine(tmp_path_factory.mktemp("trained"))
    engine.write("solver.prototxt", engine.solver)
    write_two_layers(engine)
    with process_as_before(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(engine.folder)
        exported = engine.run(
            "plan", "solver.prototxt", LINE, "--workers=2", "--trace=trace.csv", "--schedule=wfbp", "--export=plan.json"
        )
    assert exported.returncode == 0, exported.stderr
    text = (engine.folder / "plan.json").read_text()
    kept = [line for line in text.splitlines() if '"from": "fc"' not in line]
    merged = "\n".join(kept).replace('"down_to": "ip"', '"down_to": "fc"').replace("},\n ]", "}\n ]")
    engine.write("edited.json", merged)
    said = {}
    for name, flags in {
        "plan": ["--plan_file=plan.json", "--json_log=plan.log"],
        "edited": ["--plan_file=edited.json", "--json_log=edited.log"],
        "costs": ["--schedule=optimal", "--calibration_iterations=2", "--cost_file=costs.json"],
        "link": ["--emulate_link=a=1e-3,b=2e-9"],
    }.items():
        result = mpi_ranks(2).run(engine.folder, "train", "solver.prototxt", "--max_iter=3", *flags)
        assert result.returncode == 0, result.stderr
        said[name] = result.stderr
    return TrainedByPlans(engine.folder, said, exported.stdout)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "schedule", "groups"),
    [("plan", "wfbp", [[1, 1, 96], [0, 0, 80]]), ("edited", "wfbp (edited)", [[0, 1, 176]])],
)
def test_two_ranks_train_by_an_exported_plan_and_by_an_edited_one(trained, name, schedule, groups):
    assert "Plan of schedule wfbp written to plan.json" in trained.exported
    lines = [json.loads(line) for line in (trained.folder / f"{name}.log").read_text().splitlines()]
    (plan,) = [line for line in lines if line["event"] == "plan"]
    assert (plan["schedule"], plan["groups"], plan["iter"]) == (schedule, groups, 0)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_plan_of_another_net_ends_training_with_one_message_on_all_ranks(two_layers):
    two_layers.run("plan", "--trace=trace.csv", LINE, "--workers=2", "--export=plan.json")
    text = (two_layers.folder / "plan.json").read_text()
    two_layers.write("plan.json", text.replace('"elements": 20', '"elements": 21'))
    result = two_layers.mpirun(2, "train", "solver.prototxt", "--plan_file=plan.json")
    assert result.returncode == 65, result.stderr
    assert "layer 0 is 'fc' with 21 elements there, 'fc' with 20 in the net" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "the net is missing"),
        (("net.prototxt", "--workers=2"), 2, "give either --cost or --network"),
        (("net.prototxt", LINE, "--cost=x.json", "--workers=2"), 2, "give either --cost or --network"),
        (("net.prototxt", LINE), 2, "the number of workers is missing"),
        ((LINE, "--workers=2"), 2, "the net is missing"),
        (("net.prototxt", LINE, "--workers=2", "--schedule=optimum"), 2, "unknown schedule 'optimum'"),
        (("absent.prototxt", LINE, "--workers=2"), 65, "absent.prototxt"),
        (("net.prototxt", LINE, "--workers=2", "--trace=other.csv"), 65, "layer 1 is 'ip' with 25 elements there"),
        (("net.prototxt", LINE, "--workers=2", "--trace=short.csv"), 65, "it has 1 layers with parameters, the net 2"),
        (("--trace=trace.csv", LINE, "--workers=2", "--export=absent/p.json"), 73, "cannot write absent/p.json"),
        (("frozen.prototxt", LINE, "--workers=2"), 2, "has no layer that trains"),
    ],
)
def test_mistakes_are_reported_in_one_message(two_layers, words, code, message):
    two_layers.write("other.csv", "layer,elements,backward_us\nfc,20,1\nip,25,1\n")
    two_layers.write("short.csv", "layer,elements,backward_us\nfc,20,1\n")
    two_layers.write("frozen.prototxt", two_layers.net.replace("inner_product_param", "param { lr_mult: 0 } param "
                                                               "{ lr_mult: 0 } inner_product_param"))  # fmt: skip
    result = two_layers.run("plan", *words)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.mpi
@pytest.mark.slow
def test_a_cost_file_of_training_serves_as_measured_cost(two_layers, trained):
    assert "All-reduce costs were measured and written to costs.json (which held none)" in trained.said["costs"]
    costs = f"--cost={trained.folder / 'costs.json'}"
    result = two_layers.run("plan", "--trace=trace.csv", costs, "--workers=2")
    assert result.returncode == 0, result.stderr
    assert "a measured curve, fitted by" in result.stdout
    result = two_layers.run("plan", "--trace=trace.csv", costs, "--workers=3")
    assert result.returncode == 65 and "measured with 2 workers, not with 3" in result.stderr


@pytest.mark.mpi
@pytest.mark.slow
def test_the_emulated_link_is_planned_for_as_it_is_trained_on(two_layers, trained):
    result = two_layers.run(
        "plan", "--trace=trace.csv", "--emulate_link=a=1e-3,b=2e-9", "--workers=2", "--schedule=single"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "all-reduce among 2 workers: 1000 us + 2 ns per byte" in result.stdout
    assert "EMULATED LINK a=1e-3,b=2e-9" in trained.said["link"]
    refused = two_layers.run("train", "solver.prototxt", "--max_iter=2", "--emulate_link=fast")
    assert refused.returncode == 2 and "not understood" in refused.stderr
