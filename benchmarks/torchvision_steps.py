"""Training steps of torchvision's models, converted, against PyTorch's own: time, side by side.

    OMP_NUM_THREADS=1 python benchmarks/torchvision_steps.py
    OMP_NUM_THREADS=1 python benchmarks/torchvision_steps.py --only resnet18 swin_t --batch 1 --size 64 --rounds 21
    OMP_NUM_THREADS=1 python benchmarks/torchvision_steps.py --autotune

Each model has seeded weights; it is exported in evaluation mode, made a net, given a softmax loss, and trained on one
batch of random images, as by PyTorch's autograd and SGD in its two memory formats. Dropout and stochastic depth are off
on all sides. The sides run in turns in one process, with the engine's settings of malloc for all. Reported are medians
of processor time and of its ratio within a round (below 1: ours is faster): to the better of PyTorch's two, and of a
net whose passes are replayed to the same net that runs by its layers.

vit_b_32 takes images of 224x224 alone, whatever the size. Needs torchvision (`pip install --no-deps torchvision`).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
from torchvision_models import seeded_model

from mgcaffe.engine.capture import replayed_pass
from mgcaffe.engine.heap import keep_blocks, map_blocks
from mgcaffe.engine.layers.input import Input
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.solver import Solver
from mgcaffe.tools.convert.caffe_training import with_loss
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_side import TorchSide
from mgcaffe.tools.running.steady_memory import speed_up_training

Step = Callable[[], object]

MODELS = """
resnet18 densenet121 mobilenet_v2 mobilenet_v3_large mnasnet1_0 efficientnet_b0 regnet_y_400mf shufflenet_v2_x1_0
squeezenet1_1 convnext_tiny swin_t vit_b_32
""".split()
RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
CLASSES = 1000
_ONLY_SIZE = {"vit_b_32": 224}
_FIRST_STEPS = 5  # in which passes are captured


def our_steps(name: str, images: torch.Tensor, labels: torch.Tensor, *, autotune: bool) -> dict[str, Step]:
    """Return the engine's step, and the same by the layers alone."""
    program = export_module(seeded_model(name), tuple(images.shape), name)
    model = import_program(program, name=name, file=name)
    output = next(blob for blob, value in model.names.items() if value == TorchSide(program).outputs[0])
    net, _ = with_loss(model.source.param, labels.shape, output)
    param = SolverParameter(base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    param.max_iter, param.random_seed, param.snapshot_after_train = 10**6, 1, False
    if autotune:
        param.autotune, param.winograd = "on", SolverParameter.SAFE
    param.net_param.CopyFrom(net)

    def step_of(fewest: int) -> Step:
        replayed_pass.FEWEST = fewest
        solver = Solver(param)
        model.copy_weights(solver.net)
        for layer in solver.net.layers:
            if isinstance(layer, Input):
                for values in layer.forward([]):
                    values.copy_(images if values.dim() > 1 else labels)
        solver.step(_FIRST_STEPS)
        return lambda: solver.step(1)

    usual = replayed_pass.FEWEST
    return {"layers": step_of(sys.maxsize), "ours": step_of(usual)}


def torch_step(name: str, images: torch.Tensor, labels: torch.Tensor, memory_format: torch.memory_format) -> Step:
    """Return PyTorch's."""
    module = seeded_model(name).train().to(memory_format=memory_format)
    images = images.contiguous(memory_format=memory_format)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measure(steps: Mapping[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of processor time that each side's steps took, in turns."""
    seconds: dict[str, list[float]] = {side: [] for side in steps}
    for number in range(rounds + 1):
        for side, step in steps.items():
            start = time.process_time()
            step()
            if number:  # the first round does not count
                seconds[side].append(time.process_time() - start)
    return seconds


def row(name: str, seconds: Mapping[str, list[float]]) -> str:
    """Return a line of the table."""
    medians = {side: 1000 * statistics.median(values) for side, values in seconds.items()}
    better = [min(pair) for pair in zip(seconds["ordinary"], seconds["channels last"], strict=True)]

    def ratio(others: list[float]) -> float:
        return statistics.median(ours / other for ours, other in zip(seconds["ours"], others, strict=True))

    return (
        f"| {name} | {medians['ours']:.1f} | {medians['ordinary']:.1f} | {medians['channels last']:.1f}"
        f" | {ratio(better):.3f} | {ratio(seconds['layers']):.3f} |"
    )


def main() -> None:
    """Measure the models one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--batch", type=int, default=8, help="images (8)")
    parser.add_argument("--size", type=int, default=224, help="their height and width (224)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side (9)")
    parser.add_argument("--threads", type=int, default=1, help="of each side (1)")
    parser.add_argument("--autotune", action="store_true", help="ours as measured, with --winograd=safe, not by rule")
    options = parser.parse_args()
    if find_spec("torchvision") is None:
        parser.error("it needs torchvision: pip install --no-deps torchvision")
    if min(options.batch, options.size, options.rounds, options.threads) < 1:
        parser.error("--batch, --size, --rounds and --threads have to be at least 1")
    speed_up_training()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    print("| model | ours, ms | PyTorch, ms | channels last, ms | ours / the better | replayed / by layers |")
    print("|---|---|---|---|---|---|")
    for name in options.only:
        generator = torch.Generator().manual_seed(7)
        size = _ONLY_SIZE.get(name, options.size)
        images = torch.randn(options.batch, 3, size, size, generator=generator)
        labels = torch.randint(CLASSES, (options.batch,), generator=generator)
        map_blocks()
        steps = our_steps(name, images, labels, autotune=options.autotune)
        keep_blocks()
        steps["ordinary"] = torch_step(name, images, labels, torch.contiguous_format)
        steps["channels last"] = torch_step(name, images, labels, torch.channels_last)
        print(row(name, measure(steps, options.rounds)), flush=True)
        del steps
        gc.collect()


if __name__ == "__main__":
    main()
