"""Random numbers without a state: each follows from the seed, the layer's name and a record's number.

A record gets the same crop and mirror whatever the number of ranks, the timing of the prefetching thread, or
a resume in between. The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, 2014), on whole arrays; numpy's own streams may change with its versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_HALF = np.uint64(32)


def stream(*parts: int | str) -> int:
    """Return a 64-bit number that stands for these parts, such as a seed and a layer's name."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def bits(stream_number: int, records: Sequence[int] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each record number."""
    numbers = np.asarray(records, dtype=np.uint64)
    value = _mix((numbers + np.uint64(1)) * _GOLDEN) ^ np.uint64(stream_number)
    return _mix(value + _GOLDEN)


def below(stream_number: int, records: Sequence[int], limits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each record a whole number from 0 to its limit - 1; limits are below 2**31."""
    high = bits(stream_number, records) >> _HALF
    return ((high * limits.astype(np.uint64)) >> _HALF).astype(np.int64)


def permutation(stream_number: int, count: int) -> NDArray[np.int64]:
    """Return the numbers 0 to count - 1 in random order."""
    return np.argsort(bits(stream_number, np.arange(count, dtype=np.uint64)), kind="stable")


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> _SHIFTS[0])) * _MULTIPLIERS[0]
    value = (value ^ (value >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return value ^ (value >> _SHIFTS[2])
