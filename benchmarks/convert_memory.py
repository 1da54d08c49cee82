"""What a conversion takes: peak memory in units of the model's weights, and seconds, for AlexNet in each direction.

    python benchmarks/convert_memory.py [--only NAME...] [--no_check] [--write]

Each direction runs in a process of its own, which first converts a net of a few weights the same way, so that what is
imported is there. Reported is how far the resident memory then rises at most while AlexNet is converted (Linux counts
it; pages of files that are mapped are in it), over the bytes of its weights, with the proof unless `--no_check`. Beside
it are the seconds, and how long the whole command takes, the interpreter's start included.

`--write` puts the table into benchmarks/results/convert_memory.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from mgcaffe.engine.net import Net
from mgcaffe.prototxt import NetParameter, parse_text, print_text, read_net, write_binary

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "convert_memory.md"
MODULES = '''
import torch
from torch import nn


def alexnet(width=64, hidden=4096, classes=1000):
    """The layers of torchvision's alexnet."""
    torch.manual_seed(0)
    sizes = [3, width, 3 * width, 6 * width, 4 * width, 4 * width]
    kernels = [(11, 4, 2), (5, 1, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1)]
    features = []
    for number, (kernel, stride, pad) in enumerate(kernels):
        features += [nn.Conv2d(sizes[number], sizes[number + 1], kernel, stride, pad), nn.ReLU(inplace=True)]
        if number in (0, 1, 4):
            features.append(nn.MaxPool2d(3, 2))
    return nn.Sequential(
        *features, nn.AdaptiveAvgPool2d(6), nn.Flatten(),
        nn.Dropout(), nn.Linear(4 * width * 36, hidden), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes),
    )


def tiny():
    return alexnet(2, 8, 5)
'''
# Run in each process: a tiny net first, then the large one from the memory that it left.
WORKER = """
import gc, re, sys, time
from pathlib import Path
from mgcaffe.tools.convert.conversion import convert

def status(field):
    return int(re.search(rf"^{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.M)[1]) * 1024

small, large, target, shape, check = sys.argv[1:]
shape = {"data": tuple(map(int, shape.split(",")))} if shape else None
check = check == "check"
convert(small.split(), "small." + target, input_shape=shape, check=check)
gc.collect()
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # VmHWM counts from here
began = time.perf_counter()
result = convert(large.split(), "large." + target, input_shape=shape, check=check)
seconds = time.perf_counter() - began
assert result.holds and bool(result.differences) == check, result
print("measured", status("VmHWM") - before, seconds)
"""


@dataclass(frozen=True)
class Direction:
    """A way to convert.

    Attributes:
        name: in the table and for `--only`.
        source: the words of the model; {net} stands for `small` or `large`.
        target: the ending of what is written.
        shape: --input_shape.
    """

    name: str
    source: str
    target: str
    shape: str = ""


PROTOTXT = "{net}.prototxt {net}.caffemodel"
SHAPE = "1,3,224,224"
DIRECTIONS = [
    Direction("Caffe to Caffe", PROTOTXT, "out.prototxt"),
    Direction("Caffe to HDF5", PROTOTXT, "out.caffemodel.h5"),
    Direction("HDF5 to Caffe", "{net}.prototxt {net}.caffemodel.h5", "out.prototxt"),
    Direction("Caffe to ONNX", PROTOTXT, "onnx"),
    Direction("PyTorch to Caffe", "nets.py:{net}", "out.prototxt", SHAPE),
    Direction("PyTorch (.pt2) to Caffe", "{net}.pt2", "out.prototxt"),
]


def make_models(folder: Path) -> None:
    """Write AlexNet and a tiny net in every format that is read."""
    from mgcaffe.tools.convert.torch_in.program import load_program

    (folder / "nets.py").write_text(MODULES + "\n\nsmall, large = tiny, alexnet\n")
    deploy = read_net(ROOT / "models" / "alexnet" / "deploy.prototxt")
    deploy.layer[0].input_param.shape[0].dim[0] = 1
    large = print_text(deploy)
    small = re.sub(r"num_output: \d+", "num_output: 2", large)
    for name, text in (("small", small), ("large", large)):
        net = Net(parse_text(text, NetParameter), seed=0)
        for parameter in net.parameters:
            torch.nn.init.normal_(parameter.data, std=0.02)
        (folder / f"{name}.prototxt").write_text(text)
        write_binary(net.to_proto(), folder / f"{name}.caffemodel")
        from mgcaffe.engine.weights.hdf5 import save_hdf5

        save_hdf5(net, folder / f"{name}.caffemodel.h5")
        del net
        torch.export.save(
            load_program(f"{folder}/nets.py:{name}", tuple(map(int, SHAPE.split(",")))), folder / f"{name}.pt2"
        )


def weights_of(folder: Path, direction: Direction) -> int:
    """Return the bytes of the weights of the large net."""
    if direction.source.startswith("nets.py") or direction.source.endswith(".pt2"):
        return (folder / "large.pt2").stat().st_size
    return (folder / "large.caffemodel").stat().st_size


def measure(folder: Path, direction: Direction, check: bool) -> tuple[float, float, float]:
    """Return the memory in units of the weights, the seconds of the conversion and those of the process."""
    words = [direction.source.format(net=net) for net in ("small", "large")]
    words += [direction.target, direction.shape, "check" if check else ""]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WORKER, *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    whole = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{direction.name}: {done.stderr}")
    peak, seconds = done.stdout.split("measured ")[1].split()
    return int(peak) / weights_of(folder, direction), float(seconds), whole


def main() -> None:
    """Measure and print the table."""
    names = [each.name for each in DIRECTIONS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help="these directions alone"
    )
    parser.add_argument("--no_check", action="store_true", help="without the proof")
    options = parser.parse_args()
    print("| direction | memory, in weights | seconds | with the interpreter's start |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        make_models(Path(name))
        for direction in DIRECTIONS:
            if direction.name in options.only:
                memory, seconds, whole = measure(Path(name), direction, not options.no_check)
                print(f"| {direction.name} | {memory:.2f} | {seconds:.1f} | {whole:.1f} |", flush=True)


if __name__ == "__main__":
    main()
