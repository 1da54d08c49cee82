"""Trains well-known nets as `engine train` does, and prints how many pages the kernel gave in each iteration.

    python -m tests.support.steady_run lenet=64 googlenet=1        # models, with their batches

A page has 4 KiB, since those of 2 MiB are switched off here: a block of 1 MiB that malloc gets from the kernel shows as
256 pages once it is written.
"""

from __future__ import annotations

import ctypes
import json
import resource
import sys

from mgcaffe.tools.running import steady_memory

ITERATIONS = 10
PAGES_OF_1_MIB = 256
_PR_SET_THP_DISABLE = 41
_SHAPES = {"lenet": (1, 28, 28), "cifar10_quick": (3, 32, 32), "alexnet": (3, 227, 227)}


def main(words: list[str]) -> None:
    """Train each model, one after the other in this process."""
    if ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0):
        sys.exit("this kernel cannot leave out huge pages")
    steady_memory.speed_up_training()
    import torch

    torch.set_num_threads(1)
    found = {}
    for word in words:
        model, _, batch = word.partition("=")
        found[model] = train(model, int(batch))
    print(json.dumps(found))


def train(model: str, batch: int) -> list[int]:
    """Return the pages of each iteration."""
    from mgcaffe.prototxt import LayerParameter, SolverParameter, read_net
    from mgcaffe.solvers.solver import Solver

    net = read_net(f"models/{model}/train_val.prototxt")
    layers = [layer for layer in net.layer if layer.type != "Data"]
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend((batch, *_SHAPES.get(model, (3, 224, 224))))
    source.input_param.shape.add().dim.append(batch)
    del net.layer[:]
    net.layer.extend([source, *layers])
    param = SolverParameter(base_lr=1e-4, lr_policy="fixed", momentum=0.9, max_iter=100, random_seed=1)
    param.snapshot_after_train = False
    param.net_param.CopyFrom(net)
    pages = []
    with Solver(param) as solver:
        steady_memory.lay_out(solver.net)
        for _ in range(ITERATIONS):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            solver.step(1)
            pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return pages


if __name__ == "__main__":
    main(sys.argv[1:])
