"""Is the advice right? Predicted iterations of DistributedDataParallel beside measured ones, for several bucket sizes.

    python benchmarks/ddp_advice.py --links local
    sudo python benchmarks/ddp_advice.py --links 1gbit 100mbit

Two ranks of gloo with a thread each call `advise(..., trials=N)` (docs/pytorch.md): on one machine over its loopback,
or on two hosts made of network namespaces, joined by a shaped link. The networks are those of `pytorch_workloads.py`;
the advice on each is printed as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from typing import Any

import torch
from pytorch_workloads import MODELS, build
from shaped_network import INTERFACE, ShapedNetwork

LIMIT_S = 280
PORT = 29617


def be_rank(name: str, trials: int) -> None:
    """Advise on a model, as one of the ranks that the environment says."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from mgcaffe.pytorch import advise

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = build(name, seed=dist.get_rank())
    model = DistributedDataParallel(workload.module)
    advice = advise(model, workload.inputs, loss=workload.loss_of_scores, trials=trials)
    if dist.get_rank() == 0:
        print(advice, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(network: ShapedNetwork | None, name: str, trials: int) -> None:
    """Run the two ranks, and wait for them."""
    ranks: list[subprocess.Popen[Any]] = []
    for rank in range(2):
        environment = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": network.addresses[0] if network is not None else "127.0.0.1",
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": INTERFACE if network is not None else "lo",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, "--rank", name, "--trials", str(trials)]
        if network is None:
            ranks.append(subprocess.Popen(command, env=environment))
        else:
            ranks.append(network.popen(rank, command, env=environment))
    try:
        for each in ranks:
            if each.wait(timeout=LIMIT_S):
                raise SystemExit(f"a rank ended with exit code {each.returncode}")
    finally:
        for each in ranks:
            each.kill()


def main() -> None:
    """Print the advice for all links and models."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--links", nargs="+", default=["local"], help="local, or rates such as 1gbit")
    flags.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    flags.add_argument("--trials", type=int, default=20, help="iterations of DistributedDataParallel for each size")
    flags.add_argument("--rank", help=argparse.SUPPRESS)
    given = flags.parse_args()
    if given.rank:
        be_rank(given.rank, given.trials)
        return
    for link in given.links:
        shaped = contextlib.nullcontext() if link == "local" else ShapedNetwork(2, link)
        with shaped as network:
            for name in given.models:
                print(f"\n== {name}, {link} ==", flush=True)
                run_ranks(network, name, given.trials)


if __name__ == "__main__":
    main()
