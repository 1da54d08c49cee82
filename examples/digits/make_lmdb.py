"""Turns the handwritten digits that scikit-learn ships into train and test LMDBs, as Caffe's tools would.

    python examples/digits/make_lmdb.py [FOLDER]      # writes FOLDER/train_lmdb and FOLDER/test_lmdb

The 1,797 images of 8x8 are the test set of the UCI "Optical Recognition of Handwritten Digits" data. Every
fifth of each class goes to the test LMDB (360 images), the others to the train LMDB (1,437), both shuffled.
The shuffle is seeded: running this again gives the same records.

A record is a Datum (1 channel, 8x8 bytes, a label) under the key "%08d". The images' values 0 to 16 are spread
over 0 to 240, so that they look like any other grey image.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import lmdb
import numpy as np
from sklearn.datasets import load_digits

from mgcaffe.engine.data.lmdb.sums import FILE, record_sum, write_sums
from mgcaffe.prototxt import Datum

SEED = 0
TEST_EVERY = 5
BRIGHTNESS = 15
# Room for the LMDB while it is written; the compacted copy has only the pages in use.
MAP_SIZE = 1 << 24


def split(labels: np.ndarray, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle the images and divide them, every class in the same proportion.

    Args:
        labels: the class of each image, (N,).
        seed: of the shuffle. NumPy promises that RandomState gives the same numbers in every version.

    Returns:
        The indices of the train images and of the test images, each in shuffled order.
    """
    order = np.random.RandomState(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    is_test = np.zeros(len(labels), bool)
    is_test[by_class[::TEST_EVERY]] = True
    return order[~is_test[order]], order[is_test[order]]


def record(image: np.ndarray, label: int) -> bytes:
    """Return one image, (8, 8) with values 0 to 16, as a serialized Datum."""
    pixels = (image * BRIGHTNESS).clip(0, 255).astype(np.uint8)
    datum = Datum(channels=1, height=pixels.shape[0], width=pixels.shape[1], label=int(label))
    datum.data = pixels.tobytes()
    return datum.SerializeToString(deterministic=True)


def write_lmdb(folder: Path, records: list[bytes]) -> None:
    """Write the records, numbered from 0, into an LMDB that replaces the one in `folder`, and its sum file."""
    with tempfile.TemporaryDirectory() as scratch:
        with lmdb.open(scratch, map_size=MAP_SIZE) as environment:
            with environment.begin(write=True) as transaction:
                for number, value in enumerate(records):
                    transaction.put(b"%08d" % number, value, append=True)
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("data.mdb", "lock.mdb", FILE):
                (folder / name).unlink(missing_ok=True)
            environment.copy(str(folder), compact=True)
            write_sums(folder, (record_sum(b"%08d" % number, value) for number, value in enumerate(records)))


def main() -> None:
    """Read the command line and write both LMDBs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(__file__).parent, help="default: beside this script"
    )
    folder: Path = parser.parse_args().folder
    digits = load_digits()
    for name, indices in zip(("train", "test"), split(digits.target), strict=True):
        records = [record(digits.images[index], digits.target[index]) for index in indices]
        write_lmdb(folder / f"{name}_lmdb", records)
        print(f"{folder / f'{name}_lmdb'}: {len(records)} records")


if __name__ == "__main__":
    main()
