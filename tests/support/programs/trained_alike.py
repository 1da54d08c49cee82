"""Trains networks with DistributedDataParallel and with ours on ranks of gloo, and prints how far they are apart.

    PYTHONPATH=examples/pytorch python -m tests.support.programs.trained_alike RANKS TYPE STEPS CASE...

A case is NETWORK:OPTIMIZER:WAY:SEED.

A line of JSON for each case: the names of the tensors that differ in a bit on any rank, parameters, buffers and
gradients; and the largest difference of a parameter, relative to the largest element of its tensor, with its name, for
ours and for DDP with buckets of another size. The latter is left out on two ranks, where a sum has one order. A tensor
that is nothing but rounding, as a bias behind which BatchNorm takes away the mean, is compared with 0.01 instead.
"""

import faulthandler
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.pytorch import MergedGradientParallel
from tests.support.trained_networks import NETWORKS, train

LIMIT_S = 900
OTHER_BUCKET_MB = 0.05
SMALLEST = 0.01


def ddp_with_other_buckets(module, **keywords):
    return DistributedDataParallel(module, bucket_cap_mb=OTHER_BUCKET_MB, **keywords)


def values_of(model):
    """Return all parameters, buffers and gradients by name."""
    module = model.module
    values = {name: each.detach().clone() for name, each in [*module.named_parameters(), *module.named_buffers()]}
    for name, each in module.named_parameters():
        values[f"gradient of {name}"] = None if each.grad is None else each.grad.clone()
    return values


def differing(values, others):
    return [name for name, value in values.items() if not same_bits(value, others[name])]


def same_bits(a, b):
    if a is None or b is None:
        return a is b
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def furthest(values, others, parameters):
    """Return the largest relative difference of a parameter, and its name."""
    return max(
        (float((values[name] - others[name]).abs().max() / values[name].abs().max().clamp_min(SMALLEST)), name)
        for name in parameters
    )


def compare(case, rank, size, steps):
    """Return what a line says, without the other ranks' differing tensors."""
    network, optimizer, way, seed = case.split(":")

    def run(wrap):
        model = train(NETWORKS[network], optimizer, way, steps, rank, wrap, int(seed))
        if isinstance(model, MergedGradientParallel):
            model.close()
        return values_of(model), [name for name, _ in model.module.named_parameters()]

    expected, parameters = run(DistributedDataParallel)
    found, _ = run(MergedGradientParallel)
    assert all(value is None or value.isfinite().all() for value in found.values()), case
    said = {"case": case, "differing": differing(expected, found), "ours": furthest(expected, found, parameters)}
    if size > 2:
        said["ddp"] = furthest(expected, run(ddp_with_other_buckets)[0], parameters)
    return said


def be_rank(rank, size, store, kind, steps, cases):
    """Train all cases as a rank; never returns."""
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    code = 0
    try:
        torch.set_default_dtype(getattr(torch, kind))
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        for case in cases:
            said = compare(case, rank, size, steps)
            everywhere = [None] * size
            dist.all_gather_object(everywhere, said["differing"])
            said["differing"] = sorted({name for names in everywhere for name in names})
            if rank == 0:
                print(json.dumps(said), flush=True)
        dist.barrier()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        code = 1
    os._exit(code)


if __name__ == "__main__":
    size, kind, steps, cases = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            process = os.fork()
            if not process:
                be_rank(rank, size, Path(folder) / "store", kind, steps, cases)
            ranks.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks]
    sys.exit(max(map(abs, codes)))
