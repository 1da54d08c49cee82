"""In what two weight files differ: layers of one alone, shapes, and how far values are apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.prototxt import LayerParameter, NetParameter
from mgcaffe.tools.convert.proof import compare
from mgcaffe.tools.surgery.edit import blob_of, trimmed
from mgcaffe.tools.surgery.net_diff import numbered


@dataclass(frozen=True)
class BlobDifference:
    """One blob of a layer that both files hold.

    Attributes:
        layer: the layer's name, as in `numbered`.
        blob: its number.
        shape_a, shape_b: None where a file lacks it.
        largest_absolute: the largest difference of two values; None where the shapes differ.
        largest_relative: the same over the blob's largest value, of either file.
    """

    layer: str
    blob: int
    shape_a: tuple[int, ...] | None
    shape_b: tuple[int, ...] | None
    largest_absolute: float | None
    largest_relative: float | None

    @property
    def equal(self) -> bool:
        """Whether both files hold the same values in the same shape."""
        return self.largest_absolute == 0


@dataclass(frozen=True)
class WeightsDiff:
    """In what weights A differ from weights B.

    Attributes:
        only_in_a, only_in_b: layers with weights.
        blobs: all blobs of the layers of both.
    """

    only_in_a: list[str]
    only_in_b: list[str]
    blobs: list[BlobDifference]

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not (self.only_in_a or self.only_in_b) and all(blob.equal for blob in self.blobs)


def diff_weights(a: NetParameter, b: NetParameter) -> WeightsDiff:
    """Compare the weights of two files, by the names of the layers.

    Ones in front of a shape, as old files have them, do not count.

    Raises:
        PrototxtError: a blob does not hold what its shape says.
    """
    first, second = (numbered([layer for layer in net.layer if layer.blobs]) for net in (a, b))
    return WeightsDiff(
        [name for name in first if name not in second],
        [name for name in second if name not in first],
        [row for name, layer in first.items() if name in second for row in _blobs(name, layer, second[name])],
    )


def _blobs(name: str, one: LayerParameter, two: LayerParameter) -> Iterator[BlobDifference]:
    for index in range(max(len(one.blobs), len(two.blobs))):
        a, b = _values(one, index), _values(two, index)
        if a is None or b is None:
            same = 0.0 if a is b else None
            yield BlobDifference(
                name, index, a.shape if a is not None else None, b.shape if b is not None else None, same, same
            )
        elif trimmed(a.shape) != trimmed(b.shape):
            yield BlobDifference(name, index, a.shape, b.shape, None, None)
        elif np.array_equal(a.reshape(-1), b.reshape(-1)):
            yield BlobDifference(name, index, a.shape, b.shape, 0.0, 0.0)
        else:
            (found,) = compare({name: a.reshape(-1)}, {name: b.reshape(-1)}, {name: name})
            yield BlobDifference(name, index, a.shape, b.shape, found.largest_absolute, found.largest_relative)


def _values(layer: LayerParameter, index: int) -> Array | None:
    """Return a blob's values; None where there are none, as of a shared parameter that HDF5 has with another layer."""
    if index >= len(layer.blobs) or not layer.blobs[index].ByteSize():
        return None
    return blob_of(layer, index)
