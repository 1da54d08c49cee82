"""How long the reducer's thread may sleep between two tests of an all-reduce that takes long: measured on slow links.

    sudo python benchmarks/pauses.py                          # four hosts, 100 Mbit/s
    sudo python benchmarks/pauses.py --hosts 2 --link 1gbit

On hosts as those of `distributed.py`, one rank and one thread each, a backward pass of 12 layers is computed (15 ms
each with a core to itself) and 2 MB of gradients a layer are reduced beside it and after it, in groups of 4 MB. Each
test takes processor time that computing threads want, and each pause makes an all-reduce longer. The ways run in turns,
round by round; reported are medians over the rounds: the whole iteration and the backward pass of the slowest rank, and
the ranks' mean processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from distributed import run_mpi
from shaped_network import NetworkUnavailable, ShapedNetwork

LAYERS, ELEMENTS, PIECES, BUCKET = 12, 500_000, 5, 4e6
# Name: the shortest and the longest pause, in ms.
WAYS = {
    "0.2 ms": (0.2, 0.2),
    "a hundredth, 0.2 to 1 ms (default)": (0.2, 1.0),
    "a hundredth, 0.2 to 4 ms": (0.2, 4.0),
    "1 ms": (1.0, 1.0),
}


def work(rounds: int, file: str) -> None:
    """Do one rank's part; rank 0 writes, by way, what each round took (JSON)."""
    import numpy
    from contention import make_layer

    from mgcaffe.comm import connect
    from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
    from mgcaffe.comm.planning.cost import AffineCost
    from mgcaffe.comm.planning.plan import Segment, ready_times
    from mgcaffe.comm.planning.schedules import make_plan
    from mgcaffe.comm.transport.communicator import Waiting

    ranks, layer = connect(), make_layer()
    segments = [Segment(f"layer {index}", index * ELEMENTS, ELEMENTS) for index in range(LAYERS)]
    ready, free = ready_times([1e-3] * LAYERS), AffineCost(0.0, 0.0)
    plan = make_plan("threshold", segments, ready, free, element_bytes=4, bucket_bytes=BUCKET)
    sides = {}
    for name, (shortest, longest) in WAYS.items():
        waiting = Waiting(sleep_s=shortest * 1e-3, max_sleep_s=longest * 1e-3)
        sides[name] = MergedAllReduce(ranks, plan, waiting=waiting)
        sides[name].start(numpy.ones(LAYERS * ELEMENTS, dtype=numpy.float32), segments)
    taken: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name, sync in list(sides.items())[:: 1 if number % 2 else -1]:
            ranks.barrier()
            began, processor = time.perf_counter(), time.process_time()
            sync.begin_iteration()
            for index in reversed(range(LAYERS)):
                for _ in range(PIECES):
                    layer()
                sync.gradients_ready(index)
            report = sync.wait()
            slowest = numpy.array([time.perf_counter() - began, report.backward_end])
            mean = numpy.array([(time.process_time() - processor) / ranks.size])
            ranks.allreduce(slowest, "max")
            ranks.allreduce(mean)
            if number > 0:  # the first round opens the connections
                taken[name].append([*slowest.tolist(), *mean.tolist()])
    for sync in sides.values():
        sync.close()
    if ranks.rank == 0:
        Path(file).write_text(json.dumps(taken))


def table(taken: dict[str, list[list[float]]]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| pause | iteration, ms | backward, ms | processor time a rank, ms |", "|---|---|---|---|"]
    for name, rounds in taken.items():
        middles = [statistics.median(values) for values in zip(*rounds, strict=True)]
        lines.append(f"| {name} | " + " | ".join(f"{1e3 * value:.0f}" for value in middles) + " |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, start the ranks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="100mbit", metavar="RATE", help="as tc writes it (default: 100mbit)")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.rounds, options.worker)
        return
    try:
        with ShapedNetwork(options.hosts, options.link) as network, tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pauses.json"
            worker = [sys.executable, __file__, "--rounds", str(options.rounds), "--worker", str(file)]
            run_mpi(network, worker, "the ranks")
            print(f"{options.hosts} hosts at {options.link}, {options.rounds} rounds\n")
            print(table(json.loads(file.read_text())))
    except NetworkUnavailable as error:
        parser.exit(1, f"pauses.py: {error}\n")


if __name__ == "__main__":
    main()
