"""Row numbers, as layers that pick rows read them from a blob of floating-point numbers."""

from __future__ import annotations

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.errors import DataError


def read_rows(layer: Layer, values: torch.Tensor, count: int, bottom: int) -> torch.Tensor:
    """Return the values as flat row numbers (int64); fractions are cut off, as in Caffe.

    Args:
        layer: the layer that reads them.
        values: the blob.
        count: how many rows there are.
        bottom: the blob's number among the layer's bottoms.

    Raises:
        DataError: a number that is no row; names its value and its place.
    """
    rows = values.reshape(-1).long()
    if not rows.numel():
        return rows
    least, most = values.aminmax()
    if float(least) > -1 and float(most) < count:  # false for nan
        return rows
    wrong = ((rows < 0) | (rows >= count)).nonzero()
    if wrong.numel():
        first = wrong[0, 0]
        place = [int(at) for at in torch.unravel_index(first, values.shape)]
        layer.fail(
            f"value {float(values.reshape(-1)[first]):.10g} at {place} of blob '{layer.bottom_names[bottom]}' is no row"
            f" number: there are {count} rows, 0 to {count - 1}",
            error=DataError,
        )
    return rows


def add_rows(target: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Add values[i] to target[rows[i]] for every i, in an order that does not vary on any device."""
    target.index_put_((rows,), values, accumulate=True)
