"""Finds the other ranks, however the script was started.

torchrun --nproc_per_node=2 examples/pytorch/digits_mgwfbp.py
mpirun -n 2 python examples/pytorch/digits_mgwfbp.py
python examples/pytorch/digits_mgwfbp.py
"""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist


def initialize() -> tuple[int, int]:
    """Initialize torch.distributed over gloo; return this process's rank and the number of ranks."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo")
    elif "OMPI_COMM_WORLD_SIZE" in os.environ or "PMI_SIZE" in os.environ:
        _meet_by_mpi()
        torch.set_num_threads(1)  # as torchrun does by OMP_NUM_THREADS
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.get_rank(), dist.get_world_size()


def _meet_by_mpi() -> None:
    """Set the variables that torchrun would have set. MPI is not used any further."""
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    hosts = ranks.allgather(socket.gethostname())
    with socket.socket() as free:
        free.bind(("", 0))
        port = ranks.bcast(free.getsockname()[1])
    os.environ["MASTER_ADDR"] = "localhost" if len(set(hosts)) == 1 else hosts[0]
    os.environ["MASTER_PORT"] = str(port)
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(ranks.rank), str(ranks.size)
    MPI.Finalize()
