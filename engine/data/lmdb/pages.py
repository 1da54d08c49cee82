"""The pages of an LMDB file, read and checked without liblmdb (its source: mdb.c, version 0.9).

liblmdb maps the file and trusts what stands there: a page number that points past the end, or a file that is cut
off while it is read, ends the process with SIGBUS. So the file is read with `pread` here, and nothing in it is
believed before it is checked: both meta pages (`meta_pages.py`), every branch and leaf page (number, kind, bounds,
the place of each node), the counts that the newest meta page gives, and that no two values overlap. A page of a value
that fills pages of its own is checked when the value is read.

All numbers are little-endian; page numbers have 64 bits, as on every machine that Caffe was built for.

    page    number u64, pad u16, kind u16, lower u16, upper u16 (or, of a value's pages, how many: u32)
    node    at a place that the table behind the page's head gives: size u16 u16, flags u16, key size u16, key, value;
            in a branch the first three are the child's number, a big value is the number of its first page
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.lmdb.meta_pages import HEAD, Damage, Meta, read_exactly, read_meta

_BRANCH, _LEAF, _VALUE = 0x01, 0x02, 0x04
_KINDS = 0x6F
_BIG = 0x01
_NO_PAGE = 2**64 - 1
_DEEPEST = 32
_BYTES_AT_ONCE = 1 << 24

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """Where every record lies, in the order of the tree (which is the order of the keys).

    Attributes:
        meta: what it was made from.
        keys: all keys, one behind the other.
        key_ends: where each key ends in `keys`.
        places: where each value begins in the file; for one with pages of its own, where its first page begins
            (any other value begins within a page, unless it is empty).
        sizes: how many bytes each value has.
    """

    meta: Meta
    keys: bytes
    key_ends: Numbers
    places: Numbers
    sizes: Numbers

    @property
    def big(self) -> NDArray[np.bool_]:
        """Which values fill pages of their own."""
        big: NDArray[np.bool_] = (self.places % self.meta.page_size == 0) & (self.sizes > 0)
        return big


def read_index(file: int) -> Index:
    """Walk the tree, level by level, and check it on the way.

    Raises:
        Damage: something does not fit.
    """
    meta = read_meta(file)
    if meta.root == _NO_PAGE:
        nothing = np.zeros(0, np.int64)
        return Index(meta, b"", nothing, nothing, nothing)
    if not 1 <= meta.depth <= _DEEPEST:
        raise Damage(f"the tree's depth is {meta.depth}")
    pages, branches = _inside(np.array([meta.root], np.uint64), meta, "the tree's root"), 0
    for _ in range(meta.depth - 1):
        branches += len(pages)
        if branches > meta.branch_pages:
            raise Damage(f"it has more branch pages than the {meta.branch_pages} that its meta page gives")
        children = [_children(block, numbers, meta) for block, numbers in _blocks(file, pages, meta)]
        pages = np.concatenate(children)
        if len(np.unique(pages)) != len(pages):
            raise Damage("a page has two parents")
    _expect("branch pages", branches, meta.branch_pages)
    _expect("leaf pages", len(pages), meta.leaf_pages)
    leaves = [_records(block, numbers, meta) for block, numbers in _blocks(file, pages, meta)]
    keys, key_sizes, places, sizes = zip(*leaves, strict=True)
    index = Index(
        meta, b"".join(keys), np.cumsum(np.concatenate(key_sizes)), np.concatenate(places), np.concatenate(sizes)
    )
    _expect("records", len(index.places), meta.entries)
    _check_big_values(index, pages)
    return index


def read_value(file: int, index: Index, record: int) -> bytes:
    """Return the value of a record.

    Raises:
        Damage: it cannot be read, or its page is not the page of a value.
    """
    place, size = int(index.places[record]), int(index.sizes[record])
    page_size = index.meta.page_size
    if place % page_size or not size:
        return read_exactly(file, size, place)
    number, _, kind, count = struct.unpack("<QHHI", read_exactly(file, HEAD, place))
    if number != place // page_size or kind & _KINDS != _VALUE or count * page_size < HEAD + size:
        raise Damage(f"page {place // page_size} of data.mdb is not the beginning of its {size} bytes")
    return read_exactly(file, size, place + HEAD)


def _blocks(file: int, pages: Numbers, meta: Meta) -> Iterator[tuple[NDArray[np.uint8], Numbers]]:
    """Return the pages' bytes, pages x page size, so many at a time, with the pages' numbers."""
    step = max(1, _BYTES_AT_ONCE // meta.page_size)
    for start in range(0, len(pages), step):
        numbers = pages[start : start + step]
        # Neighbours are read at once.
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        runs = np.split(numbers, breaks)
        parts = [read_exactly(file, len(run) * meta.page_size, int(run[0]) * meta.page_size) for run in runs]
        yield np.frombuffer(b"".join(parts), np.uint8).reshape(len(numbers), meta.page_size), numbers


def _nodes(block: NDArray[np.uint8], numbers: Numbers, meta: Meta, kind: int) -> tuple[Numbers, NDArray[np.uint16]]:
    """Return where each node of these pages begins in `block`'s bytes, and the words of all pages.

    Raises:
        Damage: a page is of another kind or carries another number, or a node lies outside its page.
    """
    words = block.view("<u2")
    found = np.ascontiguousarray(block[:, :8]).view("<u8")[:, 0]
    _all(found == numbers.astype(np.uint64), numbers, "carries another page's number")
    _all(words[:, 5] & _KINDS == kind, numbers, "is not of the kind that it should be")
    lower, upper = words[:, 6].astype(np.int64), words[:, 7].astype(np.int64)
    sound = (lower > HEAD) & (lower % 2 == 0) & (lower <= upper) & (upper <= meta.page_size)
    _all(sound, numbers, "has bounds that cannot be")
    counts = (lower - HEAD) // 2
    rows = np.repeat(np.arange(len(numbers)), counts)
    slots = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = words[rows, HEAD // 2 + slots].astype(np.int64)
    inside = (places >= upper[rows]) & (places + 8 <= meta.page_size) & (places % 2 == 0)
    _all(inside, numbers[rows], "has a node that lies outside of it")
    return rows * meta.page_size + places, words.reshape(-1)


def _children(block: NDArray[np.uint8], numbers: Numbers, meta: Meta) -> Numbers:
    """Return the pages below these branch pages, in order."""
    nodes, words = _nodes(block, numbers, meta, _BRANCH)
    low, middle, high = (words[nodes // 2 + part].astype(np.uint64) for part in range(3))
    children = low | middle << np.uint64(16) | high << np.uint64(32)
    return _inside(children, meta, "a branch page")


def _records(block: NDArray[np.uint8], numbers: Numbers, meta: Meta) -> tuple[bytes, Numbers, Numbers, Numbers]:
    """Return keys, their sizes, and places and sizes of the values on these leaf pages."""
    nodes, words = _nodes(block, numbers, meta, _LEAF)
    owners = numbers[nodes // meta.page_size]
    low, middle, flags, key_sizes = (words[nodes // 2 + part].astype(np.int64) for part in range(4))
    sizes = low | middle << 16
    _all(flags & ~_BIG == 0, owners, "has a node that is no plain record (a named database, or damage)")
    big = flags & _BIG != 0
    begins = nodes + 8 + key_sizes
    ends = begins + np.where(big, 8, sizes)
    _all(ends <= (nodes // meta.page_size + 1) * meta.page_size, owners, "has a record that lies outside of it")
    flat = block.reshape(-1)
    first = np.repeat(nodes + 8 - (np.cumsum(key_sizes) - key_sizes), key_sizes)
    keys = flat[first + np.arange(len(first))].tobytes()
    places = (owners - nodes // meta.page_size) * meta.page_size + begins
    if big.any():
        heads = flat[begins[big][:, np.newaxis] + np.arange(8)]
        value_pages = _inside(heads.view("<u8")[:, 0], meta, "a leaf page")
        counts = (HEAD + sizes[big] + meta.page_size - 1) // meta.page_size
        last = value_pages + counts - 1
        _all(last <= meta.last_page, owners[big], "has a record that lies outside of the file")
        _refuse_cut_off(last, meta)
        places[big] = value_pages * meta.page_size
    return keys, key_sizes, places, sizes


def _check_big_values(index: Index, leaves: Numbers) -> None:
    """No two values share a page, none lies on a leaf page, and they have no more than the meta page says.

    They may have fewer: a value that was written over by a shorter one keeps its pages.
    """
    meta, big = index.meta, index.big
    first = index.places[big] // meta.page_size
    counts = (HEAD + index.sizes[big] + meta.page_size - 1) // meta.page_size
    order = np.argsort(first, kind="stable")
    first, counts = first[order], counts[order]
    if (first[:-1] + counts[:-1] > first[1:]).any():
        raise Damage("two records claim the same page")
    slots = np.searchsorted(first, leaves, side="right") - 1
    if len(first) and ((slots >= 0) & (leaves < first[slots] + counts[slots])).any():
        raise Damage("a record claims a page that holds keys")
    if counts.sum() > meta.value_pages:
        raise Damage(f"it has {counts.sum()} pages of values, but its meta page says {meta.value_pages}")


def _inside(pages: NDArray[np.uint64], meta: Meta, whose: str) -> Numbers:
    wrong = (pages < 2) | (pages > meta.last_page)
    if wrong.any():
        raise Damage(f"{whose} points to page {int(pages[wrong][0])}, but pages 2 to {meta.last_page} are there")
    numbers = pages.astype(np.int64)
    _refuse_cut_off(numbers, meta)
    return numbers


def _refuse_cut_off(pages: Numbers, meta: Meta) -> None:
    if len(pages) and (int(pages.max()) + 1) * meta.page_size > meta.file_size:
        raise Damage(f"is cut off: data.mdb has {meta.file_size} bytes, but its page {pages.max()} is in use")


def _all(sound: NDArray[np.bool_], pages: Numbers, problem: str) -> None:
    if not sound.all():
        raise Damage(f"page {int(pages[~sound][0])} of data.mdb {problem}")


def _expect(what: str, found: int, said: int) -> None:
    if found != said:
        raise Damage(f"it has {found} {what}, but its meta page says {said}")
