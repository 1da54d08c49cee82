"""How many images a second a Data layer gives, beside PyTorch's DataLoader on the same files.

    python benchmarks/data_path.py                  # 512 JPEG files of 256 x 256; one core and two
    python benchmarks/data_path.py --write          # ... and put the tables into benchmarks/results/data_path.md

Both sides make batches as AlexNet takes them: each image decoded, a random square of 227 cut out, mirrored at random,
a mean subtracted from each channel, as floats, batch x 3 x 227 x 227. Ours is a Data layer over an LMDB of the files
(`engine convert_imageset --encoded`), whose CRC-32 of each record it checks, with as many decoding threads as cores.
PyTorch's is a DataLoader over the files themselves with Pillow and, since torchvision is no part of this project,
its operations written out in PyTorch: crop, flip, bytes to tensor, float, subtract; with as many worker processes as
cores, or on one core also with none. Nothing else computes: it is the training of a net whose layers take no time.

Each run has a process of its own, bound to its cores; the first batch is not counted, and the files are in memory.
The ways run in turns, round by round; reported are medians over the rounds: images per second, the ratio to the
DataLoader in the same round (the best of those with as many cores), and processor time per image, that of worker
processes and of batches that are made ahead included, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from mgcaffe.engine import registry
from mgcaffe.engine.data.stages import NAMES, STAGES
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.prototxt import LayerParameter, parse_text
from mgcaffe.tools import main as engine

PAGE = Path(__file__).resolve().parent / "results" / "data_path.md"
SIDE, CROP, QUALITY, NOISE = 256, 227, 90, 12
MEAN = (104.0, 117.0, 123.0)
WANTED = 1000
FORMATS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}


def make_files(folder: Path, count: int) -> None:
    """Write JPEG files with about as much detail as photographs, a list of them, and the LMDB of the same files."""
    draw = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(np.int64)
        pixels = (smooth + draw.integers(-NOISE, NOISE, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=QUALITY)
    (folder / "list.txt").write_text("".join(f"{number}.jpg {number}\n" for number in range(count)))
    words = ["convert_imageset", "--encoded", f"{folder}/", str(folder / "list.txt"), str(folder / "lmdb")]
    if engine.main(words) != 0:
        raise SystemExit("engine convert_imageset failed")


class Files(Dataset[tuple[torch.Tensor, int]]):
    """The files as torchvision's transforms (RandomCrop, RandomHorizontalFlip, PILToTensor) would give them."""

    def __init__(self, folder: Path, files: int, count: int) -> None:
        self._names = [str(folder / f"{number}.jpg") for number in range(files)]
        self._count = count
        self._mean = torch.tensor(MEAN).view(3, 1, 1)

    def __len__(self) -> int:
        """Return how many images are taken, over and over."""
        return self._count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        """Return an image and its label."""
        number %= len(self._names)
        top, left, mirrored = torch.randint(0, SIDE - CROP + 1, (3,)).tolist()
        with Image.open(self._names[number]) as file:
            image = file.convert("RGB").crop((left, top, left + CROP, top + CROP))
        if mirrored % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().sub_(self._mean), number


def batches_of_loader(folder: Path, options: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Batches of PyTorch's DataLoader."""
    files = Files(folder, options["images"], (options["batches"] + 1) * options["batch"])
    loader = DataLoader(files, batch_size=options["batch"], num_workers=options["workers"], shuffle=True)
    for images, _ in loader:
        yield images


def layer_of(folder: Path, options: dict[str, Any]) -> Any:
    """Return our Data layer."""
    mean = " ".join(f"mean_value: {value:g}" for value in MEAN)
    text = (
        'name: "data" type: "Data" top: "data" top: "label" '
        f"transform_param {{ crop_size: {CROP} mirror: true {mean} }} "
        f'data_param {{ source: "{folder}/lmdb" backend: LMDB batch_size: {options["batch"]} '
        f"parser_threads: {options['cores']} shuffle: true }}"
    )
    layer = registry.create(
        parse_text(text, LayerParameter), LayerContext(memory_format=FORMATS[options["format"]], seed=1)
    )
    layer.setup([])
    return layer


def batches_of_layer(layer: Any) -> Iterator[torch.Tensor]:
    """Batches of our Data layer, without end."""
    while True:
        yield layer.forward([])[0]


def processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_side(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Take batches in this process, and return what they took."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cores"]])
    torch.set_num_threads(1)
    layer = layer_of(folder, options) if options["side"] == "engine" else None
    source = batches_of_loader(folder, options) if layer is None else batches_of_layer(layer)
    began_cpu = processor_s()
    next(source)
    began = time.perf_counter()
    for _ in range(options["batches"]):
        images = next(source)
    seconds = time.perf_counter() - began
    assert images.shape == (options["batch"], 3, CROP, CROP) and images.dtype == torch.float32
    stages, made = {}, (options["batches"] + 1) * options["batch"]
    if layer is None:
        assert next(source, None) is None  # which ends the workers
    else:
        layer.close()
        totals = layer.stages.totals
        made = totals.records
        stages = {stage: 1e3 * totals.stages[stage] / made for stage in STAGES}
    return {
        "images_per_s": options["batches"] * options["batch"] / seconds,
        "cpu_ms": 1e3 * (processor_s() - began_cpu) / made,
        "stages": stages,
    }


def sides(cores: int) -> dict[str, dict[str, Any]]:
    """Return what is compared on so many cores."""
    ways: dict[str, dict[str, Any]] = {
        f"Data layer, {form}": {"side": "engine", "format": form, "workers": 0} for form in FORMATS
    }
    for workers in [0, 1] if cores == 1 else [cores]:
        ways[f"DataLoader, {workers} worker{'s' * (workers != 1)}"] = {"side": "torch", "workers": workers}
    return {name: way | {"cores": cores} for name, way in ways.items()}


def in_process(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run a side in a process of its own."""
    words = [sys.executable, __file__, "--folder", str(folder), "--side", json.dumps(options)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def report(cores: int, runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of the ways on so many cores, and the stages of the Data layer."""
    loaders = [found for name, found in runs.items() if name.startswith("DataLoader")]
    best = [max(each["images_per_s"] for each in in_round) for in_round in zip(*loaders, strict=True)]
    title = f"{cores} core{'s' * (cores != 1)}"
    rows = [f"| {title} | images/s | ratio | processor ms per image | threads for {WANTED:,} images/s |"]
    rows.append("|---|---|---|---|---|")
    stages = []
    for name, found in runs.items():
        speed = statistics.median(each["images_per_s"] for each in found)
        ratio = statistics.median(each["images_per_s"] / other for each, other in zip(found, best, strict=True))
        cpu = statistics.median(each["cpu_ms"] for each in found)
        rows.append(f"| {name} | {speed:.0f} | {ratio:.2f} | {cpu:.3f} | {cpu * WANTED / 1e3:.1f} |")
        if found[0]["stages"]:
            each = ", ".join(f"{NAMES[s]} {statistics.median(run['stages'][s] for run in found):.3f}" for s in STAGES)
            stages.append(f"{name}, {title}, ms of a thread per image: {each}.")
    return "\n".join(rows) + "\n\n" + "\n\n".join(stages)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512, help="how many files there are")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=20, help="how many are taken in a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=f"replace the tables of {PAGE.name}")
    words = parser.parse_args()
    if words.side:
        print(json.dumps(run_side(words.folder, json.loads(words.side))))
        return
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), words.images)
        for cores in words.cores:
            ways = sides(cores)
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
            for _ in range(words.rounds):
                for name, way in ways.items():
                    sizes = {"images": words.images, "batch": words.batch, "batches": words.batches}
                    runs[name].append(in_process(Path(folder), way | sizes))
            tables.append(report(cores, runs))
    text = "\n\n".join(tables)
    print(text)
    if words.write:
        head, _, _ = PAGE.read_text().partition("| 1 core")
        PAGE.write_text(f"{head}{text}\n")


if __name__ == "__main__":
    main()
