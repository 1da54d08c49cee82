"""`MergedGradientParallel` against PyTorch's DistributedDataParallel, between hosts joined by shaped links.

    sudo python benchmarks/pytorch.py --links 1gbit --hosts 2 --models resnet18 --write
    python benchmarks/pytorch.py --links none --models mlp gpt                  # two ranks on this machine

Every host is a network namespace (`shaped_network.py`) with one rank; all hosts share this machine's cores, and a rank
computes by one thread. Both sides use gloo. All systems run in one job, in turn (`pytorch_worker.py`): `auto`, DDP with
its default buckets (1 MiB, then 25 MiB), and DDP with `bucket_cap_mb` 1, 5, 25 and 100. Reported are medians over the
rounds, and medians of the ratios within a round.

Predicted is what `auto` has measured makes of DDP's groups, by the simulation that its own plan comes from, with the
time of a step without communication for the rest.

A job of one model with one link takes one to five minutes, on slow links most of it for the search: there
--calibration_iterations and --rounds make it shorter. --write replaces the model's row in the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distributed import python_environment
from pytorch_table import HEAD, ONE_HOST, RESULTS, Measured, title, write
from pytorch_worker import ALONE, AUTO, DEFAULT
from pytorch_workloads import MODELS
from shaped_network import INTERFACE, NetworkUnavailable, ShapedNetwork

WORKER = str(Path(__file__).parent / "pytorch_worker.py")
BUCKETS = ("1", "5", "25", "100")
SYSTEMS = (AUTO, DEFAULT, *BUCKETS, ALONE)
PORT = 29533
LIMIT_S = 1800


@dataclass(frozen=True)
class Settings:
    """What a job runs.

    Attributes:
        model: a name of `pytorch_workloads.MODELS`.
        systems: `auto`, `default`, bucket sizes in MiB, `none`.
        rounds: how often each has its turn.
        seconds: of a turn.
        calibration: `auto`'s calibration iterations.
    """

    model: str
    systems: Sequence[str]
    rounds: int
    seconds: float
    calibration: int


def measure(settings: Settings, link: str, hosts: int) -> dict[str, Any]:
    """Run a job, and return what rank 0 wrote.

    Raises:
        NetworkUnavailable: namespaces cannot be made here.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, WORKER, json.dumps(asdict(settings)), str(file)]
        environment = python_environment() | {"WORLD_SIZE": str(hosts), "MASTER_PORT": str(PORT)}
        if link == ONE_HOST:
            environment |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
            finish([subprocess.Popen(command, env=environment | {"RANK": str(rank)}) for rank in range(hosts)])
        else:
            with ShapedNetwork(hosts, link) as network:
                environment |= {"MASTER_ADDR": network.addresses[0], "GLOO_SOCKET_IFNAME": INTERFACE}
                ranks = [network.popen(rank, command, env=environment | {"RANK": str(rank)}) for rank in range(hosts)]
                finish(ranks)
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def finish(ranks: Sequence[subprocess.Popen[Any]]) -> None:
    """Wait for all ranks of a job."""
    try:
        codes = [rank.wait(LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        raise SystemExit(f"the job ended with exit codes {codes}")


def main() -> None:
    """Read the command line, run the jobs and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--links", nargs="+", default=["1gbit", "100mbit"], metavar="RATE", help="none: one host")
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, metavar="NAME", help="auto, default, none, MiB")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a system's turn")
    parser.add_argument("--calibration_iterations", type=int, default=10)
    parser.add_argument("--json", metavar="FILE", help="append everything that was measured")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {RESULTS.name}")
    options = parser.parse_args()
    systems = tuple(dict.fromkeys((*options.systems, AUTO, DEFAULT, ALONE)))
    for link in options.links:
        for hosts in options.hosts:
            for model in options.models:
                settings = Settings(model, systems, options.rounds, options.seconds, options.calibration_iterations)
                try:
                    found = measure(settings, link, hosts)
                except NetworkUnavailable as error:
                    parser.exit(1, f"pytorch.py: {error}\n")
                if options.json:
                    with Path(options.json).open("a", encoding="utf-8") as out:
                        row = {"link": link, "hosts": hosts, **asdict(settings), **found}
                        print(json.dumps(row), file=out)
                row_text = Measured(model, found).row()
                print(f"{title(link, hosts)}\n{HEAD}\n{row_text}", flush=True)
                if options.write:
                    write(row_text, model, title(link, hosts))


if __name__ == "__main__":
    main()
