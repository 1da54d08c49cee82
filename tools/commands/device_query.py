"""`engine device_query`: what this machine can compute on."""

from __future__ import annotations

import os

from mgcaffe.errors import EXIT_OK, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.running.cores import find_share
from mgcaffe.tools.running.process import processor_name
from mgcaffe.tools.running.session import Session


def parser() -> FlagParser:
    """Return the flags of `engine device_query`."""
    flags = FlagParser("device_query", "Show the GPUs that PyTorch finds, and the CPU.")
    flags.flag("gpu", "the GPU to show, a list of them, or 'all'", default="all", metavar="IDS")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Print one block for each GPU and one for the CPU."""
    session.refuse_ranks("device_query")
    import torch

    share = find_share(1)
    for number in _chosen(flags.gpu, torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        print(f"Device id:                     {number}")
        print(f"Name:                          {properties.name}")
        print(f"Major revision number:         {properties.major}")
        print(f"Minor revision number:         {properties.minor}")
        print(f"Total global memory:           {properties.total_memory}")
        print(f"Number of multiprocessors:     {properties.multi_processor_count}")
        print()
    if not torch.cuda.is_available():
        print(f"GPUs:                          none that PyTorch {torch.__version__} can use\n")
    print(f"CPU:                           {processor_name()}")
    print(f"Cores:                         {os.cpu_count()}, {share.available} of them for this process")
    print(f"Threads of one rank:           {os.environ.get('OMP_NUM_THREADS') or share.threads}")
    print(f"Instruction set used:          {torch.backends.cpu.get_cpu_capability()}")
    print(f"oneDNN:                        {'yes' if torch.backends.mkldnn.is_available() else 'no'}")
    return EXIT_OK


def _chosen(gpu: str, count: int) -> list[int]:
    if gpu == "all":
        return list(range(count))
    try:
        numbers = [int(word) for word in gpu.split(",")]
    except ValueError:
        raise UsageError(f"--gpu {gpu}: neither 'all' nor a list of numbers like 0,1") from None
    for number in numbers:
        if not 0 <= number < count:
            raise UsageError(f"--gpu {gpu}: device {number} does not exist, PyTorch finds {count}")
    return numbers
