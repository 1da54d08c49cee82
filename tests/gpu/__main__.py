"""Runs every check of this folder on a GPU, then measures training steps, and prints one table.

python tests/gpu [PART ...]      names choose some of the parts; `make gpu` runs them all within nine minutes

It needs no installation and no network: Python, PyTorch with CUDA, pytest and what the engine imports. Each part is a
process with a time limit of its own, so one that fails or hangs stops no other. The results come as lines of JSON
into FOLDER/gpu_results.jsonl as soon as they are there, with what the parts have printed in FOLDER/gpu_output.txt, and
as a table into FOLDER/gpu_table.txt at the end; FOLDER is $OUT, or build/gpu.

Exit codes: 0, every part ran to its end (or cannot apply to this machine, and says why) and nothing failed; 1,
something failed; 2, there is no GPU, or no such part; 3, nothing failed, but something was left out for lack of time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("errors", "prototxt", "comm", "engine", "solvers", "pytorch", "tools", "pycaffe")
LIMIT_S = 525.0
"""For all parts together, with the question for a GPU before them; the table comes behind them."""
AT_ONCE = 4
"""How many checks run beside each other; the times are measured one after the other, behind them."""
FAILURES_SHOWN = 20
FAILED, LEFT_OUT = 1, 3
"""Exit codes."""
OUTPUT_KEPT = 1 << 20
"""How many characters of what a part has printed go into `gpu_output.txt`: the last ones."""
BATCHES = {"resnet50": (128, 11), "alexnet": (512, 11), "lenet": (4096, 31)}
"""The nets whose steps are measured: images in a batch, and rounds. All sides are on the GPU at a time, and
ResNet-50 with 256 images takes some 22 GiB in float32 by our estimate: three sides would leave little of 80 GB."""
STEPS = (
    ("resnet50", "tf32"), ("resnet50", "float32"), ("alexnet", "tf32"), ("lenet", "float32"), ("alexnet", "bf16"),
    ("resnet50", "bf16"),
)  # fmt: skip
COMPILED = "resnet50", "bf16"
"""Compiling a net takes as long as all that is measured of several others, so one is compiled, behind all others."""
OTHERS_S = 110.0
"""What a part that measures takes besides waiting for the last of its sides to be ready."""
_output = threading.Lock()


@dataclass
class Part:
    """One row of the table.

    Attributes:
        name: what chooses it.
        words: the command's arguments behind Python's name.
        limit_s: how long it may take.
        measures: whether it has to run alone.
        outcome: what came of it, for the table.
        seconds: how long it took.
        notes: lines about what failed or was left out.
        rows: the results themselves.
        has_failed: whether something did.
        is_left_out: whether it, or some of it, did not run for lack of time.
    """

    name: str
    words: Sequence[str]
    limit_s: float
    measures: bool = False
    outcome: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    has_failed: bool = False
    is_left_out: bool = False


def parts() -> list[Part]:
    """Return all parts, in the order of their importance: time may end before the last."""
    checks = {
        "golden": 120,
        "layers": 240,
        "precision": 100,
        "ranks": 160,
        "snapshots": 80,
        "updates": 80,
        "modules": 180,
        "nccl": 100,
        "data": 80,
        "commands": 100,
    }
    listed = [Part(name, [], limit) for name, limit in checks.items()]
    for model, precision in STEPS:
        batch, rounds = BATCHES[model]
        compiles = (model, precision) == COMPILED
        sides = ["eager", "channels_last", "ours", *(["compile"] if compiles else [])]
        words = ["--device=cuda", f"--models={model}", f"--batch={batch}", f"--precision={precision}"]
        words += [f"--rounds={rounds}", "--sides", *sides]
        listed.append(Part(f"step-{model}-{precision}", words, 260 if compiles else 170, measures=True))
    return listed


def environment(folder: Path, part: Part) -> dict[str, str]:
    """Return the variables of a part's process: where the packages lie, and where its results go."""
    site = folder / "site"
    python_path = [str(site), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(python_path),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MGCAFFE_GPU_RESULTS": str(folder / f"{part.name}.jsonl"),
    }


def link_packages(folder: Path) -> None:
    """Let `import mgcaffe` find this checkout, which need not be installed: each of its folders is a package.

    What an installation says of it, its version and where `import caffe` leads, stands beside it, and so does a package
    that is this checkout's folder tests: some other package may have installed one of that name.
    """
    package = folder / "site" / "mgcaffe"
    package.mkdir(parents=True, exist_ok=True)
    facts = folder / "site" / "mgcaffe.dist-info"
    facts.mkdir(exist_ok=True)
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    about = f"Metadata-Version: 2.1\nName: mgcaffe\nVersion: {version[1]}\n"
    (facts / "METADATA").write_text(about, encoding="utf-8")
    entry = "[mgcaffe.caffe_module]\ncaffe = mgcaffe.pycaffe.alias:install\n"
    (facts / "entry_points.txt").write_text(entry, encoding="utf-8")
    tests = folder / "site" / "tests"
    tests.mkdir(exist_ok=True)
    (tests / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'tests')!r}]\n", encoding="utf-8")
    for name in (*FOLDERS, "__init__.py"):
        link = package / name
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / ("mgcaffe/__init__.py" if name == "__init__.py" else name))


def command(part: Part, folder: Path, limit_s: float) -> list[str]:
    """Return what a part runs that has so much time."""
    if part.measures:
        limit = f"--start_limit={max(60.0, limit_s - OTHERS_S):.0f}"
        written = f"--json={folder / part.name}.json"
        return [sys.executable, str(ROOT / "benchmarks" / "step.py"), *part.words, limit, written]
    test = ROOT / "tests" / "gpu" / f"test_{part.name}.py"
    # The checkout's own folder mgcaffe/ holds no packages, so the links have to be found before it.
    places = " ".join(shlex.quote(str(each)) for each in (folder / "site", ROOT, ROOT / "benchmarks"))
    options = ["-q", "-p", "no:cacheprovider", "-W", "default", "--tb=short", "--rootdir", str(ROOT)]
    options += ["-o", f"pythonpath={places}"]
    return [sys.executable, "-m", "pytest", *options, str(test)]


def run(part: Part, folder: Path, end: float, log: Path) -> None:
    """Run a part and write down what came of it."""
    limit = min(part.limit_s, end - time.monotonic())
    if limit < 10:
        part.outcome, part.is_left_out = "LEFT OUT: no time left", True
    else:
        for old in (folder / f"{part.name}.jsonl", folder / f"{part.name}.json"):
            old.unlink(missing_ok=True)
        began = time.monotonic()
        output = folder / f"{part.name}.log"
        with output.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                command(part, folder, limit), cwd=ROOT, env=environment(folder, part), stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
                os.killpg(process.pid, 9)
                process.wait()
        part.seconds = time.monotonic() - began
        text = output.read_text(encoding="utf-8", errors="replace")
        judge(part, folder, code, text, is_cut=limit < part.limit_s)
        with _output, log.with_name("gpu_output.txt").open("a", encoding="utf-8") as file:
            file.write(f"==== {part.name}: {part.outcome}\n{text[-OUTPUT_KEPT:]}\n")
    row = {key: getattr(part, key) for key in ("name", "outcome", "seconds", "notes", "rows")}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(f"{part.name}: {part.outcome} ({part.seconds:.0f} s)", *part.notes[:FAILURES_SHOWN], sep="\n  ", flush=True)


def judge(part: Part, folder: Path, code: int | None, output: str, *, is_cut: bool = False) -> None:
    """Say what came of a part, by its exit code (None: it was killed at its limit) and by what it has written.

    Args:
        part: the part.
        folder: where it has written.
        code: its exit code.
        output: what it has printed.
        is_cut: whether it had less time than its limit says, so that if killed it was left out and has not failed.
    """
    ended = "" if code is not None else f"killed after {part.seconds:.0f} s; "
    part.is_left_out = code is None and is_cut
    if part.measures:
        judge_steps(part, folder, code, ended, output)
    else:
        judge_checks(part, folder, code, ended, output)


def judge_checks(part: Part, folder: Path, code: int | None, ended: str, output: str) -> None:
    """Say what came of a part that checks."""
    results = [json.loads(line) for line in lines_of(folder / f"{part.name}.jsonl")]
    count = {kind: sum(row["outcome"] == kind for row in results) for kind in ("passed", "failed", "skipped")}
    part.has_failed = count["failed"] > 0 or (code != 0 and not part.is_left_out)
    part.outcome = ended + ", ".join(f"{number} {kind}" for kind, number in count.items() if number or kind == "passed")
    part.outcome += ", the rest LEFT OUT" * part.is_left_out
    part.notes = [
        f"{row['test'].partition('::')[2]}: {'skipped: ' * (row['outcome'] == 'skipped')}{first_line(row['message'])}"
        for row in sorted(results, key=lambda row: str(row["outcome"]))
        if row["outcome"] != "passed"
    ]
    if code == 0 and results and count["skipped"] == len(results):
        part.outcome = "does not apply here: " + ", ".join(sorted({first_line(row["message"]) for row in results}))
        part.notes = []
    if code not in (0, None) and not count["failed"]:
        part.outcome += f", failed with code {code}"
        part.notes += output.strip().splitlines()[-3:]
    part.rows = [{key: row[key] for key in ("test", "outcome", "s")} for row in results if row["outcome"] == "failed"]


def judge_steps(part: Part, folder: Path, code: int | None, ended: str, output: str) -> None:
    """Say what came of a part that measures, where a side may have failed, or was not ready in time."""
    path = folder / f"{part.name}.json"
    part.rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    crashed = [line for line in output.splitlines() if ": ended with" in line]
    late = [line for line in output.splitlines() if ": not ready" in line]
    part.has_failed = bool(crashed) or (code != 0 and not part.is_left_out)
    part.outcome = "measured" if code == 0 else f"{ended}failed" + (f" with code {code}" if code else "")
    part.outcome = f"{ended}LEFT OUT" if part.is_left_out else part.outcome
    part.is_left_out |= bool(late)
    part.outcome += ", a side FAILED" * bool(crashed) + ", a side LEFT OUT" * bool(late)
    part.notes = [*crashed, *late, *([] if code == 0 else output.strip().splitlines()[-3:])]


def lines_of(path: Path) -> Iterable[str]:
    """Return the lines of a file, none if there is no file."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def first_line(message: str) -> str:
    """Return the first line of a failure that says something, cut to what a table holds."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "no message")[:200]


def table(done: Sequence[Part], machine: str) -> str:
    """Return all results as Markdown."""
    text = [f"# {machine}", "", "| part | result | s |", "|---|---|---|"]
    text += [f"| {part.name} | {part.outcome} | {part.seconds:.0f} |" for part in done]
    if failures := [(part.name, note) for part in done for note in part.notes[:FAILURES_SHOWN]]:
        text += ["", "| part | first line of what failed, was skipped or was left out |", "|---|---|"]
        text += [f"| {name} | {note.replace('|', '/')} |" for name, note in failures]
    if steps := [row for part in done if part.measures for row in part.rows]:
        text += ["", "| model | batch | precision | side | ms | / best eager | of the best product | peak MiB |"]
        text += ["|---|---|---|---|---|---|---|---|"]
        text += [
            f"| {row['model']} | {row['batch']} | {row['precision']} | {row['side']} | {row['median_ms']:.2f} "
            f"| {row.get('time_ratio', 0):.3f} | {row['gflops'] / row['limit_gflops']:.1%} | {row['peak_mib']:.0f} |"
            for row in steps
        ]
    return "\n".join(text) + "\n"


def describe_machine() -> str:
    """Return the GPU's name and PyTorch's version; exit with 2 where PyTorch finds no GPU.

    This process asks once and holds nothing on the GPU: another one is asked.
    """
    question = (
        "import torch; name = torch.cuda.get_device_name() if torch.cuda.is_available() else '';"
        "print(torch.__version__, name, sep='|')"
    )
    asked = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    version, _, name = asked.stdout.strip().partition("|")
    if asked.returncode or not name:
        why = f"PyTorch {version} finds none" if version else (asked.stderr.strip().splitlines() or ["it ended"])[-1]
        print(
            f"this needs a GPU, and with {sys.executable} {why}; another Python: make gpu GPU_PYTHON=/path/to/python3",
            file=sys.stderr,
        )
        sys.exit(2)
    return f"{name}, PyTorch {version}, Python {sys.version.split()[0]}"


def conclude(done: Sequence[Part]) -> int:
    """Say on the error output which parts failed and which were left out; return the exit code."""
    failed = [part.name for part in done if part.has_failed]
    left_out = [part.name for part in done if part.is_left_out]
    if failed:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)
    if left_out:
        again = f'make gpu GPU_ARGS="{" ".join(left_out)}"'
        print(f"LEFT OUT, at least in part, for lack of time: {', '.join(left_out)}; run {again}", file=sys.stderr)
    return FAILED if failed else LEFT_OUT if left_out else 0


def main(words: list[str]) -> int:
    """Run the parts that are named, or all; return the exit code."""
    listed = parts()
    if unknown := [word for word in words if word not in {part.name for part in listed}]:
        print(
            f"no such part: {', '.join(unknown)}; there are {', '.join(part.name for part in listed)}", file=sys.stderr
        )
        return 2
    end = time.monotonic() + LIMIT_S
    machine = describe_machine()
    folder = Path(os.environ.get("OUT") or ROOT / "build" / "gpu")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "gpu_results.jsonl"
    log.write_text(json.dumps({"machine": machine}) + "\n", encoding="utf-8")
    log.with_name("gpu_output.txt").unlink(missing_ok=True)
    work = ROOT / "build" / "gpu"
    work.mkdir(parents=True, exist_ok=True)
    link_packages(work)
    print(machine, flush=True)
    chosen = [part for part in listed if not words or part.name in words]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda part: run(part, work, end, log), [part for part in chosen if not part.measures]))
    for part in (part for part in chosen if part.measures):
        run(part, work, end, log)
    text = table(chosen, machine)
    (folder / "gpu_table.txt").write_text(text, encoding="utf-8")
    print("\n" + text)
    return conclude(chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
