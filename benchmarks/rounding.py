"""What travelling in 16 bits changes of real gradients: the L2 norm of the rounding errors over that of the gradients.

    python benchmarks/rounding.py

The nets train by plain gradient descent on noise; every iteration's gradients are encoded and decoded as on their way
to another rank. The sum of all ranks' gradients is rounded once more on its way back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy

from mgcaffe.comm.exchange.sums.sixteen_bit import CODECS, block_starts
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import read_net_source
from mgcaffe.tools.model import apply_input_shapes, feed_noise

MODELS = Path(__file__).resolve().parent.parent / "models"
SHAPES = {"lenet": (8, 1, 28, 28), "cifar10_full": (8, 3, 32, 32), "googlenet": (2, 3, 64, 64)}
RATE = 1e-3


def make_net(model: str) -> Net:
    """Return a net that is fed with noise."""
    source = read_net_source(MODELS / model / "train_val.prototxt")
    feed_noise(source.param, apply_input_shapes(source.param, [("", SHAPES[model])]))
    return Net(source.param, sources=source, seed=3)


def relative_error(kind: str, gradients: numpy.ndarray, layers: numpy.ndarray) -> float:
    """Return what one way there changes."""
    starts = block_starts(layers, 0, len(gradients))
    decoded = CODECS[kind].decode(*CODECS[kind].encode(gradients, starts), starts)
    exact = gradients.astype(float)
    return float(numpy.linalg.norm(decoded - exact) / numpy.linalg.norm(exact))


def main() -> None:
    """Print a Markdown table of the least and the largest error of each net."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=10)
    iterations = parser.parse_args().iterations
    print("| net | parameters | type | least | largest |\n|---|---|---|---|---|")
    for model in SHAPES:
        net = make_net(model)
        ends = numpy.cumsum([0, *(parameter.count for parameter in net.parameters)])
        errors: dict[str, list[float]] = {kind: [] for kind in CODECS}
        for _ in range(iterations):
            net.clear_param_diffs()
            net.forward_backward()
            gradients = net.arena.diff.numpy()
            for kind, found in errors.items():
                found.append(relative_error(kind, gradients, ends[:-1]))
            net.arena.data.sub_(net.arena.diff, alpha=RATE)
        for kind, found in errors.items():
            print(f"| {model} | {len(gradients)} | {kind} | {min(found):.1e} | {max(found):.1e} |", flush=True)


if __name__ == "__main__":
    main()
