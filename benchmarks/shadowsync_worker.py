"""One trainer of `benchmarks/shadowsync.py`; started by it under mpirun, not by hand.

    shadowsync_worker.py SETTINGS FILE        SETTINGS: `shadowsync.Settings` as JSON; rank 0 writes FILE (JSON)

A system is a name: `none`, `ma 5` (in the foreground, every 5 iterations), `shadow_ma`, `ddp`, and `stream`, which is
`none` beside a stream of bytes between the hosts (`plain_stream.py`). Each runs for some seconds, on the clock that the
ranks of one machine share; all systems run in turn, round by round. The last rank may be a straggler, which sleeps in
every iteration: in a listener, outside all that the engine measures.
"""

from __future__ import annotations

import bisect
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

RATE = 0.01
# What is left out at the beginning of a run, as a share of it.
_WARM_UP = 0.2
_CALIBRATION_S = 3.0
STREAM_PORT = 29518


@dataclass
class Figures:
    """What a run of a system came to.

    Attributes:
        speeds: iterations per second of each trainer.
        iteration_processor_s: processor time of the first trainer for each of its iterations, all threads together.
        synchronizations, gap, sync_s, processor_s: of the first trainer; a synchronization's time and the processor
            time of the thread that runs it are means; None where nothing is synchronized.
        processor_share: the part of a core that the thread took.
    """

    speeds: list[float]
    iteration_processor_s: float
    synchronizations: int = 0
    gap: float | None = None
    sync_s: float | None = None
    processor_s: float | None = None
    processor_share: float | None = None


def batch_of(settings: dict[str, Any], rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a trainer's features and labels, generated."""
    generator = torch.Generator().manual_seed(7 + rank)
    features = torch.randn((settings["batch"], settings["widths"][0]), generator=generator)
    return features, torch.randint(2, (settings["batch"], 1), generator=generator).float()


def net_text(settings: dict[str, Any]) -> str:
    """Return the net as prototxt: inner products and ReLUs."""
    widths, batch = settings["widths"], settings["batch"]
    shapes = f"shape {{ dim: {batch} dim: {widths[0]} }} shape {{ dim: {batch} dim: 1 }}"
    text = f'layer {{ name: "data" type: "Input" top: "x0" top: "label" input_param {{ {shapes} }} }}\n'
    for number, width in enumerate(widths[1:], 1):
        fields = f'num_output: {width} weight_filler {{ type: "xavier" }}'
        text += (
            f'layer {{ name: "fc{number}" type: "InnerProduct" bottom: "x{number - 1}" top: "x{number}"'
            f" inner_product_param {{ {fields} }} }}\n"
        )
        if number + 1 < len(widths):
            text += f'layer {{ name: "relu{number}" type: "ReLU" bottom: "x{number}" top: "x{number}" }}\n'
    loss = f'bottom: "x{len(widths) - 1}" bottom: "label" top: "loss"'
    return text + f'layer {{ name: "loss" type: "SigmoidCrossEntropyLoss" {loss} }}\n'


def solver_param(settings: dict[str, Any], system: str, link: str) -> Any:
    """Return the solver of a system."""
    from mgcaffe.prototxt import CommParameter, SolverParameter, parse_net

    param = SolverParameter(base_lr=RATE, lr_policy="fixed", max_iter=10**9, random_seed=1, solver_mode="CPU")
    param.snapshot_after_train = False
    param.net_param.CopyFrom(parse_net(net_text(settings)).param)
    name, _, every = system.partition(" ")
    param.comm_param.sync = CommParameter.Sync.Value(name.upper())
    if every:
        param.comm_param.sync_every = int(every)
    if link and name != "none":
        param.comm_param.emulate_link = link
    return param


class Watch:
    """A listener that notes when iterations end, sleeps in each, and ends the run.

    Args:
        asks: whether this trainer asks for the end, when so many seconds have passed.
        seconds: see asks.
        sleep_s: the straggler's sleep.
    """

    def __init__(self, asks: bool, seconds: float, sleep_s: float) -> None:
        from mgcaffe.solvers.events import Finished, IterationDone

        self.ends: list[float] = []
        self.processor: list[float] = []  # time that the process had taken by then
        self.finished: Any = None
        self.solver: Any = None
        self._iteration_done, self._end = IterationDone, Finished
        self._asks, self._seconds, self._sleep_s = asks, seconds, sleep_s
        self._began = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_event(self, event: Any) -> None:
        """Take an event of the solver."""
        if isinstance(event, self._iteration_done):
            if self._sleep_s:
                time.sleep(self._sleep_s)
            self.ends.append(time.perf_counter())
            self.processor.append(time.process_time())
            if self._asks and self.ends[-1] > self._began + self._seconds:
                self.solver.request_stop()
        elif isinstance(event, self._end):
            self.finished = event

    def speed(self) -> tuple[float, float]:
        """Return iterations per second, and processor seconds of one; without those at the beginning and the end."""
        first = bisect.bisect(self.ends, self._began + _WARM_UP * self._seconds)
        last = bisect.bisect(self.ends, self._began + self._seconds) - 1
        if last <= first:
            raise SystemExit(f"{len(self.ends)} iterations in {self._seconds:g} s are too few: give more --seconds")
        count = last - first
        return count / (self.ends[last] - self.ends[first]), (self.processor[last] - self.processor[first]) / count


def run_engine(ranks: Any, settings: dict[str, Any], system: str, link: str, sleep_s: float, seconds: float) -> Figures:
    """Train by the engine; collective."""
    from mgcaffe.solvers.solver import Solver

    is_last = ranks.rank == ranks.size - 1
    watch = Watch(ranks.rank == 0, seconds, sleep_s if is_last else 0.0)
    watch.solver = solver = Solver(solver_param(settings, system, link), communicator=ranks, listeners=[watch])
    inputs = solver.net.layers[0].forward([])
    for top, values in zip(inputs, batch_of(settings, ranks.rank), strict=True):
        top.copy_(values)
    ranks.barrier()
    watch.begin()
    solver.solve()
    solver.close()
    speed, processor_s = watch.speed()
    figures = Figures(ranks.allgather(speed), processor_s)
    found = watch.finished.synchronization
    if found is not None and found.synchronizations:
        figures.synchronizations, figures.gap = found.synchronizations, found.gap
        figures.sync_s = found.seconds / found.synchronizations
        figures.processor_s = found.processor_s / found.synchronizations
        figures.processor_share = found.processor_s / watch.finished.seconds
    return figures


def run_beside_stream(ranks: Any, settings: dict[str, Any], sleep_s: float, seconds: float) -> Figures:
    """Train without synchronization while other processes keep the link between the two hosts busy; collective."""
    peer = settings["addresses"][1 - ranks.rank]
    command = [sys.executable, str(Path(__file__).parent / "plain_stream.py"), peer, str(STREAM_PORT)]
    stream = subprocess.Popen(command)
    try:
        return run_engine(ranks, settings, "none", "", sleep_s, seconds)
    finally:
        ranks.barrier()
        stream.kill()
        stream.wait()


def run_ddp(ranks: Any, settings: dict[str, Any], sleep_s: float, seconds: float) -> Figures:
    """Train the same net by PyTorch's DistributedDataParallel over gloo; collective."""
    import torch.distributed as dist
    from torch import nn

    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=ranks.rank, world_size=ranks.size)
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for before, after in zip(settings["widths"], settings["widths"][1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers[:-1]))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    features, labels = batch_of(settings, ranks.rank)

    def iterate(count: int) -> tuple[float, float]:
        began, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(net(features), labels, reduction="sum")
            (loss / len(labels)).backward()
            optimizer.step()
            if sleep_s and ranks.rank == ranks.size - 1:
                time.sleep(sleep_s)
        return (time.perf_counter() - began) / count, (time.process_time() - processor) / count

    each, _ = ranks.broadcast_object(iterate(5))
    taken, processor_s = iterate(max(5, int(seconds / each)))
    return Figures(ranks.allgather(1 / taken), processor_s)


def main() -> None:
    """Read the command line, run all systems in turn, and write what was measured."""
    from mgcaffe.comm import connect
    from mgcaffe.tools.running.process import speed_up_memory

    settings, file = json.loads(sys.argv[1]), sys.argv[2]
    speed_up_memory()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    ranks = connect()
    link = settings["link"]
    alone = run_engine(ranks, settings, "none", "", 0.0, _CALIBRATION_S)
    iteration_s = ranks.broadcast_object(2 / sum(alone.speeds[:2]))
    if settings["link_iterations"]:
        link = f"a={settings['link_iterations'] * iteration_s:.6f},b=0"
    runs: list[dict[str, Any]] = []
    for number in range(settings["rounds"]):
        for system in settings["systems"] if number % 2 == 0 else settings["systems"][::-1]:
            for sleep_s in settings["sleeps"]:
                seconds = settings["seconds"]
                if system == "ddp":
                    figures = run_ddp(ranks, settings, sleep_s, seconds)
                elif system == "stream":
                    figures = run_beside_stream(ranks, settings, sleep_s, seconds)
                else:
                    figures = run_engine(ranks, settings, system, link, sleep_s, seconds)
                runs.append({"round": number, "system": system, "sleep_s": sleep_s, **asdict(figures)})
                if ranks.rank == 0:
                    speeds = " + ".join(f"{settings['batch'] * speed:,.0f}" for speed in figures.speeds)
                    straggles = ", a straggler" if sleep_s else ""
                    print(f"round {number + 1}, {system}{straggles}: {speeds} examples/s", file=sys.stderr, flush=True)
    if ranks.rank == 0:
        Path(file).write_text(json.dumps({"link": link, "iteration_s": iteration_s, "runs": runs}))
    ranks.barrier()
    if "ddp" in settings["systems"]:
        from mpi4py import MPI

        # gloo's threads now and then abort the process when the group is destroyed while they close their sockets.
        MPI.Finalize()
        os._exit(0)


if __name__ == "__main__":
    main()
