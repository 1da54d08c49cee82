"""How fast `engine convert_imageset` writes an LMDB, beside Pillow's decoding alone.

    python benchmarks/tools.py                      # 600 JPEG files of 256 x 256, on one core and on two
    python benchmarks/tools.py --folder /mnt/disk   # the database on another disk

Pillow opens and decodes each file and does nothing else, or the pixels are written one behind the other into a plain
file as well, which is what decoder and disk can do together.
convert_imageset stores pixels, or with `--encoded` the files, writes the database to disk with its sums, and renames
it. All have as many threads as cores, and the process is bound to these. The ways run in turns, round by round;
reported are medians over the rounds: images per second, the ratio to Pillow in the same round, the same ratio of
processor time (which other programs disturb less), and the processor time that an image takes, the kernel's included.
What is written is flushed to disk within the time. The interpreter's start is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from mgcaffe.tools import main as engine

SIDE, QUALITY, NOISE = 256, 90, 12


def make_images(folder: Path, count: int) -> list[str]:
    """Write JPEG files with about as much detail as photographs, and return their names."""
    draw = np.random.default_rng(0)
    names = []
    for number in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(np.int64)
        pixels = smooth + draw.integers(-NOISE, NOISE, smooth.shape)
        names.append(f"{number}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / names[-1], quality=QUALITY)
    return names


def decode(folder: Path, names: list[str], threads: int) -> None:
    """Decode every file with Pillow."""

    def load(part: list[str]) -> None:
        for name in part:
            with Image.open(folder / name) as image:
                image.load()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(load, [names[start::threads] for start in range(threads)]))


def decode_into_file(folder: Path, target: Path, names: list[str], threads: int) -> None:
    """Decode every file with Pillow and write the pixels into one file."""

    def load(name: str) -> bytes:
        with Image.open(folder / name) as image:
            return image.tobytes()

    with ThreadPoolExecutor(threads) as pool, target.open("wb") as file:
        for pixels in pool.map(load, names):
            file.write(pixels)
        file.flush()
        os.fsync(file.fileno())


def convert(folder: Path, target: Path, threads: int, *flags: str) -> None:
    """Run the command in this process."""
    words = ["convert_imageset", f"--threads={threads}", *flags, f"{folder}/", str(folder / "list.txt"), str(target)]
    output = io.StringIO()
    with contextlib.redirect_stderr(output):
        code = engine.main(words)
    assert code == 0, output.getvalue()


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Return how long some work takes, and how much processor time."""
    began, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - processor


def main() -> None:
    """Read the command line, measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", help="where the database is written (default: the temporary folder)")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < max(options.cores):
        parser.exit(1, f"tools.py: {max(options.cores)} cores are asked for, {len(allowed)} are there\n")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=options.folder) as written:
        folder, target = Path(name), Path(written) / "db"
        plain = Path(written) / "pixels"
        names = make_images(folder, options.images)
        (folder / "list.txt").write_text("".join(f"{image} {number}\n" for number, image in enumerate(names)))
        size = sum((folder / image).stat().st_size for image in names) / len(names)
        print(f"{len(names)} files of {size / 1e3:.0f} kB, {options.rounds} rounds\n")
        print("| cores | way | images/s | ratio to Pillow | of processor time | processor time an image, ms |")
        print("|---|---|---|---|---|---|")
        for cores in options.cores:
            os.sched_setaffinity(0, allowed[:cores])
            ways: dict[str, Callable[[], None]] = {
                "Pillow decodes": lambda n=cores: decode(folder, names, n),
                "Pillow decodes into a file": lambda n=cores: decode_into_file(folder, plain, names, n),
                "convert_imageset": lambda n=cores: convert(folder, target, n),
                "convert_imageset --encoded": lambda n=cores: convert(folder, target, n, "--encoded"),
            }
            taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for number in range(options.rounds + 1):
                for way in list(ways)[:: 1 if number % 2 else -1]:
                    shutil.rmtree(target, ignore_errors=True)
                    plain.unlink(missing_ok=True)
                    os.sync()
                    spent = seconds(ways[way])
                    if number:  # the first round imports and fills the file cache
                        taken[way].append(spent)
            for way, times in taken.items():
                pairs = list(zip(taken["Pillow decodes"], times, strict=True))
                ratio, of_processor = (
                    statistics.median(alone[column] / spent[column] for alone, spent in pairs) for column in range(2)
                )
                elapsed, processor = (statistics.median(column) for column in zip(*times, strict=True))
                print(
                    f"| {cores} | {way} | {len(names) / elapsed:.0f} | {ratio:.2f} | {of_processor:.2f}"
                    f" | {1e3 * processor / len(names):.2f} |"
                )
            os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    main()
