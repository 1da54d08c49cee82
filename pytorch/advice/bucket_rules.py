"""The buckets that DistributedDataParallel makes of gradients.

In the first iteration all gradients of one type and device are a bucket. Then buckets are made anew, in the order in
which gradients became ready on rank 0. With `find_unused_parameters` they are made once, in the order of parameters,
and reduced in the reverse of it. A bucket is full as soon as it holds its limit in bytes. By default the first one's is
1 MiB, and that of all others 25 MiB; where `bucket_cap_mb` is given, it is that of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MIB = 2**20
DEFAULT_CAP_MB = 25.0
"""DistributedDataParallel's `bucket_cap_mb` where it is not given."""


@dataclass(frozen=True)
class Gradient:
    """What buckets are made of.

    Attributes:
        bytes: its size.
        kind: its type and device; a bucket has one kind.
    """

    bytes: int
    kind: Hashable


@dataclass(frozen=True)
class BucketRules:
    """How a DistributedDataParallel makes its buckets.

    Attributes:
        limits: of the first bucket of a kind, the second and so on, in bytes; the last one holds for all others.
        by_readiness: whether buckets follow the order in which gradients become ready.
        name: how they were asked for.
    """

    limits: tuple[int, ...]
    by_readiness: bool
    name: str

    @classmethod
    def of(cls, model: DistributedDataParallel) -> BucketRules:
        """Return the rules of a module as it is wrapped."""
        by_readiness = bool(model.static_graph or not model.find_unused_parameters)
        listed = tuple(int(each) for each in getattr(model, "bucket_bytes_cap_list", ()))
        cap = int(model.bucket_bytes_cap)
        if listed:
            sizes = ", ".join(f"{each / MIB:g}" for each in listed)
            return cls(listed, by_readiness, f"bucket_cap_mb_list=[{sizes}]")
        if getattr(model, "bucket_bytes_cap_default", cap == DEFAULT_CAP_MB * MIB):
            return cls.default(by_readiness)
        return cls.capped(cap / MIB, by_readiness)

    @classmethod
    def default(cls, by_readiness: bool) -> BucketRules:
        """Return the rules where `bucket_cap_mb` is not given."""
        limits = (int(getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", MIB)), int(DEFAULT_CAP_MB * MIB))
        return cls(limits, by_readiness, "the default")

    @classmethod
    def capped(cls, cap_mb: float, by_readiness: bool) -> BucketRules:
        """Return the rules of a `bucket_cap_mb` that is given."""
        return cls((int(cap_mb * MIB),), by_readiness, f"bucket_cap_mb={cap_mb:g}")

    def buckets(self, gradients: Sequence[Gradient], ready_order: Sequence[int]) -> list[list[int]]:
        """Return the gradients (by number) of each bucket, in the order in which buckets are reduced.

        Args:
            gradients: in the order of the module's parameters.
            ready_order: their numbers in the order in which they become ready; each once.
        """
        if self.by_readiness:
            return [
                [ready_order[place] for place in bucket]
                for bucket in fill_buckets([gradients[number] for number in ready_order], self.limits)
            ]
        return fill_buckets(gradients, self.limits, sort=True)[::-1]


def fill_buckets(gradients: Sequence[Gradient], limits: Sequence[int], *, sort: bool = False) -> list[list[int]]:
    """Return the places of the gradients of each bucket: those that are full in the order in which they became so.

    Args:
        gradients: in the order in which they are taken.
        limits: as those of `BucketRules`.
        sort: whether buckets are put in the order of their first gradients.
    """
    full: list[list[int]] = []
    filling: dict[Hashable, list[int]] = {}
    held: dict[Hashable, int] = {}
    turn: dict[Hashable, int] = {}
    for place, gradient in enumerate(gradients):
        kind = gradient.kind
        filling.setdefault(kind, []).append(place)
        held[kind] = held.get(kind, 0) + gradient.bytes
        number = turn.get(kind, 0)
        if held[kind] >= limits[number]:
            full.append(filling.pop(kind))
            held[kind] = 0
            turn[kind] = min(number + 1, len(limits) - 1)
    buckets = full + list(filling.values())
    return sorted(buckets, key=min) if sort else buckets
