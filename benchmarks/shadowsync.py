"""Trainers whose replicas are kept together in the background, against the foreground, none at all, and PyTorch DDP.

    python benchmarks/shadowsync.py --write                                # on an emulated link, and with a straggler
    sudo python benchmarks/shadowsync.py --shaped 100mbit --write          # hosts joined by shaped links, and DDP

Two trainers, one thread each, train the dense part of a small click-through-rate net on generated data. Without
--shaped a synchronization is made to take at least so many times as long as an iteration (--link_iterations), that is
`--emulate_link` of `engine train`; by default so many that synchronizing every 5 iterations loses more than 30 %. With
--shaped the trainers are on hosts of their own, network namespaces joined by links of that speed (`shaped_network.py`).
There the kernel's work for packets takes processor time of the training, whoever sends them: the system `stream` trains
without synchronization beside a stream of bytes that keeps the link as busy.

All systems run in one job, for some seconds each, in turn, round by round; and each once more with a straggler, the
second trainer, which sleeps 20 ms in every iteration. Reported are medians over the rounds; ratios are medians of the
ratios within a round. Predicted is what the formulas of `engine simulate --sync` say, from the iteration without
synchronization, and the time and the processor time of a synchronization: those of `ma 1` in the foreground, those of
`shadow_ma` in the background, where the thread shares its core with training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distributed import python_environment
from shaped_network import INTERFACE, NetworkUnavailable, ShapedNetwork

from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.networks import FixedNetwork
from mgcaffe.comm.replicas.prediction import predict
from mgcaffe.comm.replicas.workload import Exchange, Training

WORKER = str(Path(__file__).parent / "shadowsync_worker.py")
RESULTS = Path(__file__).resolve().parent / "results" / "shadowsync.md"
BASELINE = "none"
STREAM = "stream"
BACKGROUND = ("shadow_ma", "shadow_bmuf", "shadow_easgd")
FOREGROUND = ("ma 1", "ma 5", "ma 30", "bmuf 5", "easgd 5", "ds_sync 1")
SYSTEMS = (BASELINE, *FOREGROUND, *BACKGROUND)
TRAINERS = 2
PORT = 29517
LIMIT_S = 7200
# What issue and documentation promise: what the background keeps of the speed without synchronization.
KEPT = 0.9
LOST = 0.3

Run = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What is run.

    Attributes:
        systems: names as `shadowsync_worker.py` takes them.
        rounds: how often each runs.
        seconds: for how long.
        sleeps: what the second trainer sleeps in each iteration; each system runs once for each of these.
        batch: examples of an iteration.
        widths: of the net, from the features to the logit.
        link: to emulate, as `--emulate_link` takes it; empty for none.
        link_iterations: emulate a link on which a synchronization takes so many iterations; 0 for `link`.
        addresses: of the hosts, where each trainer has one.
    """

    systems: Sequence[str]
    rounds: int
    seconds: float
    sleeps: Sequence[float]
    batch: int
    widths: Sequence[int]
    link: str
    link_iterations: float
    addresses: Sequence[str] = ()

    @property
    def parameters(self) -> int:
        """How many the net has."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return sum((before + 1) * after for before, after in pairs)


def measure(settings: Settings, shaped: str) -> dict[str, Any]:
    """Run the worker, on this machine or on hosts joined by links of a speed; return what rank 0 wrote.

    Raises:
        NetworkUnavailable: namespaces cannot be made here.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"

        def worker(settings: Settings) -> list[str]:
            return [sys.executable, WORKER, json.dumps(asdict(settings)), str(file)]

        environment = python_environment() | {"MASTER_PORT": str(PORT)}
        if shaped:
            with ShapedNetwork(TRAINERS, shaped) as network:
                environment |= {"MASTER_ADDR": network.addresses[0], "GLOO_SOCKET_IFNAME": INTERFACE}
                arguments = network.mpirun_arguments()
                for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"):
                    arguments += ["-x", variable]
                command = ["mpirun", *arguments, *worker(replace(settings, addresses=network.addresses))]
                process = network.popen(0, command, env=environment)
                finish(process)
        else:
            environment |= {"MASTER_ADDR": "127.0.0.1"}
            command = ["mpirun", "-n", str(TRAINERS), "--oversubscribe", "--bind-to", "none", *worker(settings)]
            finish(subprocess.Popen(command, env=environment, text=True))
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for the job."""
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"not done after {LIMIT_S} s") from None
    if code:
        raise SystemExit(f"the job ended with exit code {code}")


class Measured:
    """The runs of a job.

    Args:
        settings: what was run.
        found: what the worker wrote.
    """

    def __init__(self, settings: Settings, found: dict[str, Any]) -> None:
        self.settings = settings
        self.link: str = found["link"]
        self._runs: dict[tuple[str, float], list[Run]] = {}
        for run in found["runs"]:
            self._runs.setdefault((run["system"], run["sleep_s"]), []).append(run)

    def runs(self, system: str, sleep_s: float = 0.0) -> list[Run]:
        """Return those of a system, by round."""
        return self._runs.get((system, sleep_s), [])

    def median(self, value: Callable[[Run], float | None], system: str, sleep_s: float = 0.0) -> float | None:
        """Return a figure's median over the rounds; None where there is none."""
        values = [number for run in self.runs(system, sleep_s) if (number := value(run)) is not None]
        return statistics.median(values) if values else None

    def ratio(
        self,
        value: Callable[[Run], float],
        system: tuple[str, float],
        other: tuple[str, float],
    ) -> float:
        """Return the median over the rounds of the ratio of two runs of a round."""
        pairs = zip(self.runs(*system), self.runs(*other), strict=True)
        return statistics.median(value(run) / value(base) for run, base in pairs)

    def predicted(self, system: str) -> float | None:
        """Return what the formulas say of a system, over what they say of no synchronization."""
        name, _, every = system.partition(" ")
        measured = "ma 1" if every and self.runs("ma 1") else "shadow_ma"
        seconds = self.median(lambda run: run["sync_s"], measured)
        processor = self.median(lambda run: run["processor_s"], measured)
        speed = self.median(total, BASELINE)
        if system in ("ddp", STREAM) or seconds is None or processor is None or speed is None:
            return None
        training = Training(TRAINERS / speed, self.settings.batch)
        network = FixedNetwork("measured", AffineCost(max(0.0, seconds - processor), 0.0))
        exchange = Exchange(4 * self.settings.parameters, network, processor_s=processor)
        found = predict(name, TRAINERS, training, exchange, every=int(every) if every else None)
        return found.examples_per_s / predict(BASELINE, TRAINERS, training, exchange).examples_per_s


def total(run: Run) -> float:
    """Return the iterations per second of all trainers."""
    return float(sum(run["speeds"]))


def first(run: Run) -> float:
    """Return those of the first trainer, which is no straggler."""
    return float(run["speeds"][0])


def last(run: Run) -> float:
    """Return those of the second trainer."""
    return float(run["speeds"][-1])


def cell(value: float | None, form: str, factor: float = 1.0) -> str:
    """Return a figure for a table, `-` for none."""
    return "-" if value is None else format(factor * value, form)


def even_table(measured: Measured) -> list[str]:
    """Return the table without a straggler."""
    batch = measured.settings.batch
    lines = [
        "| system | examples/s | of none | predicted | processor time of an iteration, ms | gap |"
        " a synchronization, ms | its processor time, ms | of a core |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for system in measured.settings.systems:
        cells = [
            label(system),
            cell(measured.median(total, system), ",.0f", batch),
            cell(measured.ratio(total, (system, 0.0), (BASELINE, 0.0)), ".3f"),
            cell(measured.predicted(system), ".3f"),
            cell(measured.median(lambda run: run["iteration_processor_s"], system), ".2f", 1e3),
            cell(measured.median(lambda run: run["gap"], system), ".2f"),
            cell(measured.median(lambda run: run["sync_s"], system), ".2f", 1e3),
            cell(measured.median(lambda run: run["processor_s"], system), ".2f", 1e3),
            cell(measured.median(lambda run: run["processor_share"], system), ".1f", 100)
            + (" %" if measured.median(lambda run: run["processor_share"], system) is not None else ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def straggler_table(measured: Measured, sleep_s: float) -> list[str]:
    """Return the table with a straggler."""
    batch = measured.settings.batch
    lines = [
        "| system | the other trainer, examples/s | of itself without the straggler | of none with it |"
        " the straggler, examples/s |",
        "|---|---|---|---|---|",
    ]
    for system in measured.settings.systems:
        cells = [
            label(system),
            cell(measured.median(first, system, sleep_s), ",.0f", batch),
            cell(measured.ratio(first, (system, sleep_s), (system, 0.0)), ".3f"),
            cell(measured.ratio(first, (system, sleep_s), (BASELINE, sleep_s)), ".3f"),
            cell(measured.median(last, system, sleep_s), ",.0f", batch),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def label(system: str) -> str:
    """`ma every 5`, `PyTorch DDP (gloo)`."""
    names = {"ddp": "PyTorch DDP (gloo)", STREAM: "none, beside a stream of bytes"}
    name, _, every = system.partition(" ")
    return names.get(system) or (f"{name} every {every}" if every else name)


def verdicts(measured: Measured, sleep_s: float) -> list[str]:
    """Return which of the promises hold, a line each."""
    lines = []
    systems = measured.settings.systems
    if "ma 5" in systems:
        lost = 1 - measured.ratio(total, ("ma 5", 0.0), (BASELINE, 0.0))
        lines.append(_verdict(lost >= LOST, f"synchronizing every 5 iterations loses {lost:.0%} (at least {LOST:.0%})"))
    for system in [name for name in systems if name in BACKGROUND]:
        kept = measured.ratio(total, (system, 0.0), (BASELINE, 0.0))
        lines.append(_verdict(kept >= KEPT, f"{system} keeps {kept:.1%} of the speed (at least {KEPT:.0%})"))
        if STREAM in systems:
            beside = measured.ratio(total, (system, 0.0), (STREAM, 0.0))
            text = f"{system} keeps {beside:.1%} of the speed beside a stream of bytes"
            lines.append(_verdict(beside >= KEPT, f"{text} (at least {KEPT:.0%})"))
        if sleep_s:
            # Where the straggler sleeps, its core is free for the other, so its speed without one is less.
            base = min(
                measured.ratio(first, (system, sleep_s), (system, 0.0)),
                measured.ratio(first, (system, sleep_s), (BASELINE, sleep_s)),
            )
            text = f"{system}: beside a straggler the other trainer keeps {base:.1%} of its speed"
            lines.append(_verdict(base >= KEPT, f"{text} (at least {KEPT:.0%})"))
    return lines


def _verdict(holds: bool, text: str) -> str:
    return f"- {'met' if holds else 'NOT MET'}: {text}"


def section(measured: Measured, shaped: str, sleep_s: float) -> str:
    """Return a section of the page."""
    settings = measured.settings
    if shaped:
        link = f"two hosts joined by links of {shaped}"
    else:
        link = f"an emulated link on which a synchronization takes at least {measured.link}"
    head = [
        f"## {title(shaped)}",
        "",
        f"{TRAINERS} trainers of one thread, {settings.parameters:,} parameters ({4 * settings.parameters / 2**20:.2f}"
        f" MiB), batch {settings.batch}, {link}; medians of {settings.rounds} rounds of {settings.seconds:g} s.",
        "",
    ]
    lines = [*head, *even_table(measured)]
    if sleep_s:
        lines += ["", f"With a straggler that sleeps {1e3 * sleep_s:g} ms an iteration:", ""]
        lines += straggler_table(measured, sleep_s)
    return "\n".join([*lines, "", *verdicts(measured, sleep_s), ""])


def title(shaped: str) -> str:
    """Return the heading of a section."""
    return f"Hosts joined by links of {shaped}" if shaped else "An emulated link"


def write(text: str, heading: str) -> None:
    """Put a section into the page, in the place of what it had under this heading or at its end."""
    page = RESULTS.read_text(encoding="utf-8")
    before, found, after = page.partition(f"## {heading}\n")
    rest = after[after.index("\n## ") + 1 :] if found and "\n## " in after else ""
    RESULTS.write_text(f"{before.rstrip()}\n\n{text.rstrip()}\n" + (f"\n{rest}" if rest else ""), encoding="utf-8")


def main() -> None:
    """Read the command line, run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shaped", default="", metavar="RATE", help="hosts joined by links of this speed: 100mbit")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="'none' 'ma 5' shadow_ma ddp ...")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each system in each round")
    parser.add_argument("--straggler_ms", type=float, default=20.0, help="0: without one")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument(
        "--widths", nargs="+", type=int, default=[432, 512, 128, 1], help="of the net, from the features to the logit"
    )
    parser.add_argument("--link_iterations", type=float, default=3.0, help="a synchronization's time, in iterations")
    parser.add_argument("--emulate_link", default="", metavar="LINK", help="a link instead, as a=0.06,b=0")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {RESULTS.name}")
    options = parser.parse_args()
    systems = options.systems or [*SYSTEMS, *([STREAM, "ddp"] if options.shaped else [])]
    sleep_s = options.straggler_ms / 1e3
    settings = Settings(
        [BASELINE, *(name for name in systems if name != BASELINE)],
        options.rounds,
        options.seconds,
        [0.0, sleep_s] if sleep_s else [0.0],
        options.batch,
        options.widths,
        options.emulate_link,
        0.0 if options.shaped or options.emulate_link else options.link_iterations,
    )
    try:
        found = measure(settings, options.shaped)
    except NetworkUnavailable as error:
        parser.exit(1, f"shadowsync.py: {error}\n")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    text = section(Measured(settings, found), options.shaped, sleep_s)
    print(text)
    if options.write:
        write(text, title(options.shaped))


if __name__ == "__main__":
    main()
