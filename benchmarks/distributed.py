"""Every schedule, `auto` and PyTorch DDP, really computed, on hosts joined by links of a chosen speed.

    sudo python benchmarks/distributed.py              # everything in benchmarks/results/distributed.md
    sudo python benchmarks/distributed.py --models cifar10_full --links 1gbit --hosts 2 --rounds 9

The hosts are network namespaces on this machine (`shaped_network.py`): one rank each, mpirun and its ranks talk over
TCP through links shaped by `tc tbf`, DDP over gloo through the same. The ranks share this machine's cores, one thread
each. All our schedules run in one job, in turn, round by round; DDP runs in a job of its own before and after, and
both count. Reported are medians of a whole iteration's seconds on the slowest rank.

A plan predicts the time of the backward pass and of the waiting for gradients. What an iteration does besides (forward
pass, update, agreement on the loss) is the same for all schedules; it was measured before `auto` searched, where
nothing was hidden. Where a plan's last groups travel beside the next forward pass (`overlap_forward`), an iteration
lasts from the start of its backward pass to that of the next one, each on the rank that comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shaped_network import CONGESTION_CONTROL, INTERFACE, NetworkUnavailable, ShapedNetwork

WORKER = str(Path(__file__).parent / "distributed_worker.py")
# Batch a rank and the side of the square images: some of ImageNet's nets on small images, so that links matter.
SIZES = {"cifar10_full": (50, 32), "googlenet": (8, 64), "resnet50": (8, 64), "alexnet": (16, 227)}
LINKS = ("1gbit", "100mbit")
PORT = 29511
LIMIT_S = 3600


def python_environment() -> dict[str, str]:
    """Return the environment of both sides' ranks: one thread, and this Python's own mpirun first."""
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["OMP_NUM_THREADS"] = "1"
    environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return environment


def run_mpi(network: ShapedNetwork, worker: list[str], what: str) -> None:
    """Run one rank of a worker on each host, under mpirun, to its end."""
    arguments = [*network.mpirun_arguments(), "-x", "OMPI_ALLOW_RUN_AS_ROOT"]
    _finish(network.popen(0, ["mpirun", *arguments, *worker], env=python_environment()), what)


def run_ours(network: ShapedNetwork, model: str, rounds: int, folder: Path, what: str) -> dict[str, Any]:
    """Run all schedules in one job, of the worker's side `what`; return what they took."""
    file = folder / "ours.json"
    batch, side = SIZES[model]
    worker = [sys.executable, WORKER, what, model, str(batch), str(side), str(rounds), str(file)]
    run_mpi(network, worker, f"{model}, {what}")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def run_ddp(network: ShapedNetwork, model: str, rounds: int, folder: Path) -> list[float]:
    """DDP's iterations."""
    file = folder / "ddp.json"
    batch, side = SIZES[model]
    worker = [sys.executable, WORKER, "ddp", model, str(batch), str(side), str(rounds), str(file)]
    environment = python_environment() | {
        "MASTER_ADDR": network.addresses[0],
        "MASTER_PORT": str(PORT),
        "WORLD_SIZE": str(len(network.names)),
        "GLOO_SOCKET_IFNAME": INTERFACE,
    }
    ranks = [network.popen(rank, worker, env=environment | {"RANK": str(rank)}) for rank in range(len(network.names))]
    for rank, process in enumerate(ranks):
        _finish(process, f"{model}, DDP rank {rank}")
    seconds: list[float] = json.loads(file.read_text())["seconds"]
    return seconds


def _finish(process: subprocess.Popen[str], what: str) -> None:
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"{what}: not done after {LIMIT_S} s") from None
    if code:
        raise SystemExit(f"{what}: exit code {code}")


def compare(model: str, link: str, hosts: int, rounds: int, congestion_control: str, what: str) -> dict[str, Any]:
    """Return one table: all schedules and DDP on one network."""
    with ShapedNetwork(hosts, link, congestion_control) as network, tempfile.TemporaryDirectory() as folder:
        before = run_ddp(network, model, (rounds + 1) // 2, Path(folder))
        ours = run_ours(network, model, rounds, Path(folder), what)
        after = run_ddp(network, model, (rounds + 1) // 2, Path(folder))
    for row in ours["rows"]:
        row["median"] = statistics.median(row["seconds"])
        row["scatter"] = _scatter(row["seconds"])
    for row in ours["rows"]:
        row["predicted"] = ours["besides"] + row["predicted_exchange"]
    ddp = before + after
    return {
        "model": model,
        "link": link,
        "hosts": hosts,
        "congestion_control": congestion_control,
        "what": what,
        **ours,
        "ddp": {"seconds": ddp, "median": statistics.median(ddp), "scatter": _scatter(ddp)},
    }


def _scatter(values: list[float]) -> float:
    """Return the median deviation from the median, as a standard deviation, relative to the median."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


def _describe_exchange(found: dict[str, Any]) -> str:
    """Return how many values are exchanged, where these are not the parameters' gradients."""
    if found["exchanged"] == found["parameters"]:
        return ""
    return f", of which products are exchanged as matrices ({found['exchanged'] / 1e6:.2f} M values in all)"


def table(found: dict[str, Any]) -> str:
    """Return a Markdown table, and whether `auto` is ahead."""
    batch, side = SIZES[found["model"]]
    lines = [
        f"{found['model']}, {found['parameters'] / 1e6:.2f} M parameters"
        f"{_describe_exchange(found)}, {found['hosts']} hosts at {found['link']},"
        f" batch {batch} of {side} x {side} a rank; backward {1e3 * found['backward']:.0f} ms; all-reduce a ="
        f" {1e3 * found['a']:.2f} ms, b = {1e9 * found['b']:.2f} ns/byte (R2 {found['fit']:.3f}), and slows the"
        f" backward pass beside it by {100 * found['slowdown']:.0f} %",
        "",
        "| schedule | groups | iteration, ms | scatter | predicted, ms | deviation |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        deviation = row["median"] / row["predicted"] - 1
        lines.append(
            f"| {row['schedule']} | {row['groups']} | {1e3 * row['median']:.1f} | {100 * row['scatter']:.1f} % |"
            f" {1e3 * row['predicted']:.1f} | {100 * deviation:+.1f} % |"
        )
    ddp = found["ddp"]
    lines.append(f"| PyTorch DDP (gloo) | - | {1e3 * ddp['median']:.1f} | {100 * ddp['scatter']:.1f} % | - | - |")
    auto = next(row for row in found["rows"] if row["schedule"].startswith("auto"))
    best = min(found["rows"], key=lambda row: row["median"])
    lines += [
        "",
        f"auto is {100 * (auto['median'] / best['median'] - 1):.1f} % behind the fastest schedule ({best['schedule']}),"
        f" and takes {auto['median'] / ddp['median']:.2f} times as long as DDP.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Read the command line, run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--links", nargs="+", default=list(LINKS), metavar="RATE", help="as tc writes them: 1gbit")
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7, help="iterations of each schedule")
    parser.add_argument(
        "--sides", nargs="+", choices=("ours", "gradients"), default=["ours"],
        help="ours: as by default; gradients: without `exchange_products`; a table for each",
    )  # fmt: skip
    parser.add_argument(
        "--congestion_control", default=CONGESTION_CONTROL, metavar="NAME", help="TCP's on the hosts (default: reno)"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    options = parser.parse_args()
    results = []
    for link in options.links:
        for hosts in options.hosts:
            for model in options.models:
                for what in options.sides:
                    try:
                        found = compare(model, link, hosts, options.rounds, options.congestion_control, what)
                    except NetworkUnavailable as error:
                        parser.exit(1, f"distributed.py: {error}\n")
                    results.append(found)
                    print(table(found), flush=True)
                    if options.json:
                        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
