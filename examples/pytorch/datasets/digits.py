"""The 1,797 images of handwritten digits in examples/digits, read from its LMDB files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.prototxt import Datum

FOLDER = Path(__file__).parents[2] / "digits"


def load_digits(part: str) -> TensorDataset:
    """Return images (N, 1, 8, 8) with values 0 to 1, and labels (N).

    Args:
        part: `train` (1,437 images) or `test` (360).

    Raises:
        DataError: the files cannot be read.
    """
    source = open_lmdb(str(FOLDER / f"{part}_lmdb"))
    records = [Datum.FromString(source.value(number)) for number in range(len(source))]
    pixels = torch.stack([torch.frombuffer(bytearray(each.data), dtype=torch.uint8) for each in records])
    return TensorDataset(pixels.view(-1, 1, 8, 8) / 240, torch.tensor([each.label for each in records]))
