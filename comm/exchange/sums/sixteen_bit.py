"""Gradients that travel in 16 bits and are added up in float32.

MPI cannot add 16-bit floats, and adding in 16 bits loses more with every rank. So a group is cut into as many
parts as there are ranks; each rank sends part r to rank r in 16 bits, rank r adds up in float32, in the order of
the ranks, and sends the sum to all in 16 bits. That is half of what a ring of float32 sends. Each
value is rounded twice: on its way there (this rank's own part too, so that no rank's gradient is privileged), and
as a sum on its way back.

float16 has 11 significant bits but reaches only from 6e-8 to 65504, and gradients lie outside on either side. So
values travel in blocks of up to 4096 of one layer, each multiplied by the power of two that brings its largest
value to between 2^14 and 2^15, and that exponent travels along. Nothing overflows, all values down to 2^-29 of
their block's largest keep their 11 bits, and those below 2^-39 of it are lost. bfloat16 has the range of float32
with 8 significant bits and needs no scaling. Infinities and NaNs arrive as such in both.

Blocks end where layers end, and groups are made of layers. So the bits of a sum do not depend on what it was
merged with, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy
import torch

from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.transport.communicator import Communicator

BLOCK = 4096
# At most so many values in one exchange: their 16 bits and the float32 beside them have to be held.
_MAX_VALUES = 1 << 26
# PyTorch's grain size is 32768.
_PIECE = 32_000
_MAX_EXPONENT = 15
_MAX_SCALE = 100


class Codec(Protocol):
    """A 16-bit type.

    Attributes:
        scaled: whether a 16-bit exponent for each block travels along.
    """

    scaled: bool

    def encode(self, values: numpy.ndarray, starts: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return (values as uint16, the blocks' exponents as uint16) of float32 values in blocks from `starts` on."""

    def decode(self, words: numpy.ndarray, exponents: numpy.ndarray, starts: numpy.ndarray) -> numpy.ndarray:
        """Return the float32 values."""


class Float16:
    """IEEE half precision with a power of two for each block; see `Codec`."""

    scaled = True

    def encode(self, values: numpy.ndarray, starts: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Scale each block's largest value to between 2^14 and 2^15, and round to the nearest half."""
        largest = numpy.maximum.reduceat(numpy.abs(values), starts)
        if not numpy.isfinite(largest).all():
            finite = numpy.where(numpy.isfinite(values), numpy.abs(values), numpy.float32(0))
            largest = numpy.maximum.reduceat(finite, starts)
        scale = numpy.clip(_MAX_EXPONENT - numpy.frexp(largest)[1], -_MAX_SCALE, _MAX_SCALE)
        scale[largest == 0] = 0
        scaled = values * _repeat(numpy.ldexp(numpy.float32(1), scale), starts, len(values))
        return _to_words(scaled, torch.float16), scale.astype(numpy.int16).view(numpy.uint16)

    def decode(self, words: numpy.ndarray, exponents: numpy.ndarray, starts: numpy.ndarray) -> numpy.ndarray:
        """Undo the scaling."""
        factors = numpy.ldexp(numpy.float32(1), -exponents.view(numpy.int16).astype(numpy.int32))
        values = _from_words(words, torch.float16)
        values *= _repeat(factors, starts, len(words))
        return values


class Bfloat16:
    """The upper half of a float32; see `Codec`."""

    scaled = False

    def encode(self, values: numpy.ndarray, starts: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Round."""
        return _to_words(values, torch.bfloat16), numpy.empty(0, numpy.uint16)

    def decode(self, words: numpy.ndarray, exponents: numpy.ndarray, starts: numpy.ndarray) -> numpy.ndarray:
        """Append zeros."""
        return _from_words(words, torch.bfloat16)


CODECS: dict[str, Codec] = {"float16": Float16(), "bfloat16": Bfloat16()}


class SixteenBitSum:
    """See `base.Sum`.

    Args:
        communicator: the ranks.
        codec: the 16-bit type.
        segments: the layers' places in the buffer; blocks begin anew in each.
    """

    def __init__(self, communicator: Communicator, codec: Codec, segments: Sequence[Segment] = ()) -> None:
        self.channels = [communicator]
        self._ranks = communicator
        self._codec = codec
        self._layers = numpy.array([segment.offset for segment in segments if segment.count], dtype=numpy.int64)

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Exchange 16 bits a value, twice."""
        blocks = block_starts(self._layers, offset, len(part))
        first = 0
        while first < len(blocks):
            last = max(first + 1, int(numpy.searchsorted(blocks, blocks[first] + _MAX_VALUES)))
            end = int(blocks[last]) if last < len(blocks) else len(part)
            self._sum(part[int(blocks[first]) : end], blocks[first:last] - blocks[first])
            first = last

    def _sum(self, part: numpy.ndarray, blocks: numpy.ndarray) -> None:
        size, rank = self._ranks.size, self._ranks.rank
        values = part.astype(numpy.float32, copy=False)
        shares = _share_out(blocks, len(part), size)
        counts = [self._words(share) for share in shares]
        sent = numpy.concatenate(
            [self._encode(values[share.start : share.start + share.count], share) for share in shares]
        )
        mine = shares[rank]
        received = numpy.empty(counts[rank] * size, numpy.uint16)
        self._ranks.alltoallv(sent, counts, received, [counts[rank]] * size)
        total = numpy.zeros(mine.count, numpy.float32)
        for words in received.reshape(size, counts[rank]):
            total += self._decode(words, mine)
        own = self._encode(total, mine)
        everything = numpy.empty(sum(counts), numpy.uint16)
        self._ranks.allgatherv(own, everything, counts)
        start = 0
        for share, count in zip(shares, counts, strict=True):
            part[share.start : share.start + share.count] = self._decode(everything[start : start + count], share)
            start += count

    def _encode(self, values: numpy.ndarray, share: _Share) -> numpy.ndarray:
        if not share.count:
            return numpy.empty(0, numpy.uint16)
        words, exponents = self._codec.encode(values, share.blocks)
        return numpy.concatenate([exponents, words]) if self._codec.scaled else words

    def _decode(self, words: numpy.ndarray, share: _Share) -> numpy.ndarray:
        exponents = len(share.blocks) if self._codec.scaled else 0
        return self._codec.decode(words[exponents:], words[:exponents], share.blocks)

    def _words(self, share: _Share) -> int:
        return share.count + (len(share.blocks) if self._codec.scaled else 0)


class _Share:
    """The blocks that one rank adds up: values `start` to `start + count` of the group."""

    def __init__(self, start: int, count: int, blocks: numpy.ndarray) -> None:
        self.start = start
        self.count = count
        self.blocks = blocks


def block_starts(layers: numpy.ndarray, offset: int, count: int) -> numpy.ndarray:
    """Return where blocks begin in a group, relative to its first element.

    Args:
        layers: the first elements of all layers, ascending.
        offset, count: the group in the buffer.
    """
    inside = layers[(layers > offset) & (layers < offset + count)] - offset
    edges = [0, *inside.tolist(), count]
    pieces = [numpy.arange(start, end, BLOCK) for start, end in pairwise(edges)]
    return numpy.concatenate(pieces).astype(numpy.int64)


def _share_out(blocks: numpy.ndarray, count: int, size: int) -> list[_Share]:
    """Give every rank about as many values, in whole blocks."""
    edges = [*blocks.tolist(), count]
    cuts = [int(numpy.searchsorted(blocks, count * rank / size)) for rank in range(size)] + [len(blocks)]
    return [_Share(edges[low], edges[high] - edges[low], blocks[low:high] - edges[low]) for low, high in pairwise(cuts)]


def _to_words(values: numpy.ndarray, kind: torch.dtype) -> numpy.ndarray:
    words = numpy.empty(len(values), numpy.int16)
    _convert(torch.from_numpy(values), torch.from_numpy(words).view(kind))
    return words.view(numpy.uint16)


def _from_words(words: numpy.ndarray, kind: torch.dtype) -> numpy.ndarray:
    values = numpy.empty(len(words), numpy.float32)
    _convert(torch.from_numpy(words.view(numpy.int16)).view(kind), torch.from_numpy(values))
    return values


def _convert(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy and convert, to the nearest, ties to even.

    PyTorch takes a tenth of numpy's time for this. In pieces below its grain size it starts no second team of
    threads on the reducer's thread.
    """
    for start in range(0, len(source), _PIECE):
        target[start : start + _PIECE].copy_(source[start : start + _PIECE])


def _repeat(factors: numpy.ndarray, starts: numpy.ndarray, count: int) -> numpy.ndarray:
    """Each block's factor for each of its values."""
    return numpy.repeat(factors, numpy.diff(starts, append=count))
