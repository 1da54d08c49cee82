"""What a conversion takes: peak memory in units of the model's weights, and seconds, for AlexNet in each direction.

    python benchmarks/convert_memory.py [--only NAME...] [--write]

Each direction runs in processes of its own, which first convert a net of a few weights the same way, so that what is
imported is there. Reported is how far the resident memory then rises at most while AlexNet is converted (as Linux
counts it, with pages of files that are mapped), over the bytes of its weights: with the values of both sides compared,
and where nets train on both sides also with the training step. Beside it are the seconds of the conversion and, in
brackets, those of all processors that worked for it, which other programs change less.

`--write` puts the table into benchmarks/results/convert_memory.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from mgcaffe.engine.net import Net
from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.prototxt import NetParameter, parse_text, print_text, read_net
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.torch_in.program import load_program

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "convert_memory.md"
MODULES = """
import torch
from torch import nn


def alexnet(width=64, hidden=4096, classes=1000):
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


def small():
    return alexnet(2, 8, 5)


large = alexnet
"""
"""The layers of torchvision's alexnet."""
# Run in each process. VmHWM, the peak, counts from where a 5 is written.
WORKER = r"""
import gc, re, sys, time
from pathlib import Path
from mgcaffe.tools.convert import conversion

def status(field):
    return int(re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)[1]) * 1024

small, large, target, shape, how = sys.argv[1:]
shape = {"": tuple(map(int, shape.split(",")))} if shape else None
if how == "values":
    conversion._train = lambda *arguments: None
conversion.convert(small.split(), "small." + target, input_shape=shape)
gc.collect()
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
began, busy = time.perf_counter(), time.process_time()
result = conversion.convert(large.split(), "large." + target, input_shape=shape)
spent = time.perf_counter() - began, time.process_time() - busy
print("measured", status("VmHWM") - before, *spent, result.holds, result.training is not None)
"""
SHAPE = "1,3,224,224"
CAFFE, TORCH = "{net}.prototxt {net}.caffemodel", "nets.py:{net}"


@dataclass(frozen=True)
class Direction:
    """A way to convert.

    Attributes:
        name: in the table and for `--only`.
        source: the words of the model; {net} stands for `small` or `large`.
        target: how the name of what is written ends.
        shape: of the input, where the model does not say it.
    """

    name: str
    source: str
    target: str
    shape: str = ""


DIRECTIONS = [
    Direction("Caffe to Caffe", CAFFE, "out.prototxt"),
    Direction("Caffe to HDF5", CAFFE, "out.caffemodel.h5"),
    Direction("HDF5 to Caffe", "{net}.prototxt {net}.caffemodel.h5", "out.prototxt"),
    Direction("Caffe to ONNX", CAFFE, "out.onnx"),
    Direction("Caffe to PyTorch", CAFFE, "out.py"),
    Direction("Caffe to PyTorch (.pt2)", CAFFE, "out.pt2"),
    Direction("ONNX to Caffe", "{net}.onnx", "out.prototxt"),
    Direction("PyTorch to Caffe", TORCH, "out.prototxt", SHAPE),
    Direction("PyTorch (.pt2) to Caffe", "{net}.pt2", "out.prototxt"),
]


def make_models(folder: Path) -> None:
    """Write AlexNet and a tiny net of the same layers in every format that is read."""
    (folder / "nets.py").write_text(MODULES)
    deploy = read_net(ROOT / "models" / "alexnet" / "deploy.prototxt")
    deploy.layer[0].input_param.shape[0].dim[0] = 1
    large = print_text(deploy)
    for name, text in (("small", re.sub(r"num_output: \d+", "num_output: 2", large)), ("large", large)):
        net = Net(parse_text(text, NetParameter), seed=0)
        for parameter in net.parameters:
            torch.nn.init.normal_(parameter.data, std=0.02)
        (folder / f"{name}.prototxt").write_text(text)
        save_caffemodel(net, folder / f"{name}.caffemodel")
        save_hdf5(net, folder / f"{name}.caffemodel.h5")
        convert([folder / f"{name}.prototxt", folder / f"{name}.caffemodel"], folder / f"{name}.onnx", check=False)
        program = load_program(f"{folder}/nets.py:{name}", tuple(map(int, SHAPE.split(","))))
        torch.export.save(program, folder / f"{name}.pt2")
        del net, program


def weights_of(folder: Path, direction: Direction) -> int:
    """Return the bytes of the weights of the large net."""
    is_torch = direction.source == TORCH or direction.source.endswith(".pt2")
    return (folder / ("large.pt2" if is_torch else "large.caffemodel")).stat().st_size


def measure(folder: Path, direction: Direction, how: str) -> tuple[str, bool]:
    """Return two cells of the table, and whether a training step was compared.

    Args:
        folder: with the models.
        direction: which way.
        how: "values" leaves the training step out.
    """
    words = [direction.source.format(net=net) for net in ("small", "large")]
    command = [sys.executable, "-c", WORKER, *words, direction.target, direction.shape, how]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{direction.name}: {done.stderr}")
    peak, seconds, busy, holds, has_step = done.stdout.split("measured ")[1].split()
    if holds != "True":
        raise RuntimeError(f"{direction.name}: the proof does not hold")
    memory = int(peak) / weights_of(folder, direction)
    return f"{memory:.2f} | {float(seconds):.1f} ({float(busy):.1f})", has_step == "True"


def rows(folder: Path, names: list[str]) -> Iterator[str]:
    """Give the lines of the table."""
    yield "| direction | memory | seconds | memory, with the training step | seconds |"
    yield "|---|---|---|---|---|"
    for direction in DIRECTIONS:
        if direction.name not in names:
            continue
        values, _ = measure(folder, direction, "values")
        step, has_step = measure(folder, direction, "all")
        yield f"| {direction.name} | {values} | {step if has_step else '| '} |"


def page(table: str) -> str:
    """Return the page with the table."""
    return (
        "# Memory of conversions\n\n"
        "[converting.md](../../docs/converting.md) describes `engine convert`.\n\n"
        "```sh\npython benchmarks/convert_memory.py --write\n```\n\n"
        "AlexNet (61 million parameters, 244 MB), one image at a time; memory is what a process takes at most beyond\n"
        "what it holds after it has converted a tiny net the same way, in units of the weights. PyTorch "
        f"{torch.__version__.partition('+')[0]}, {os.cpu_count()} cores;\nin brackets are the processors' "
        "seconds. Between Caffe's own forms, and for ONNX and `.pt2` files\nthat are written, there is no training "
        "step to compare.\n\n"
        f"{table}\n"
    )


def main() -> None:
    """Measure and print the table."""
    names = [each.name for each in DIRECTIONS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help="these directions alone"
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    if options.write and options.only != names:
        parser.error("--write goes with all directions")
    with tempfile.TemporaryDirectory() as name:
        make_models(Path(name))
        lines = []
        for line in rows(Path(name), options.only):
            print(line, flush=True)
            lines.append(line)
    if options.write:
        PAGE.write_text(page("\n".join(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
