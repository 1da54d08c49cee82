"""The two meta pages of an LMDB file: the format, and where the newest tree is (liblmdb's source: mdb.c, version 0.9).

    page    number u64, pad u16, kind u16, then of other pages: lower u16, upper u16
    meta    at 16: magic u32, version u32, address u64, map size u64, two trees of 48 bytes (free pages, main),
            last page u64, transaction u64
    tree    page size u32 (in the first), flags u16, depth u16, pages u64 (branch, leaf, value), entries u64, root u64

`pages.py` says why a file is read without liblmdb, and reads the other pages.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from mgcaffe.errors import DataError

_MAGIC = 0xBEEFC0DE
_VERSION = 1
HEAD = 16
"""How many bytes come before what a page holds."""

_META_PAGE = 0x08
_META = struct.Struct("<IIQQ IHH5Q IHH5Q QQ")
# DUPSORT, DUPFIXED, INTEGERDUP: several values a key.
_SEVERAL_VALUES = 0x04 | 0x10 | 0x20


class Damage(DataError):
    """The file is not what an intact LMDB would be."""


@dataclass(frozen=True)
class Meta:
    """What the newest meta page says.

    Attributes:
        page_size: bytes.
        file_size: how many bytes the file has. There may be fewer pages than in use once: free ones at the end are
            not always written.
        last_page: the number of the last page that is or was in use.
        transaction: the number of the transaction that wrote it.
        depth, branch_pages, leaf_pages, value_pages, entries, root: of the main tree.
    """

    page_size: int
    file_size: int
    last_page: int
    transaction: int
    depth: int
    branch_pages: int
    leaf_pages: int
    value_pages: int
    entries: int
    root: int


def read_exactly(file: int, size: int, place: int) -> bytes:
    """Read so many bytes of a file.

    Raises:
        Damage: it ends before, or the system cannot read them.
    """
    parts = []
    while size:
        try:
            part = os.pread(file, size, place)
        except OSError as error:
            raise Damage(f"bytes {place} to {place + size - 1} of data.mdb cannot be read: {error.strerror}") from error
        if not part:
            raise Damage(f"is cut off: data.mdb ends before byte {place + size - 1}")
        parts.append(part)
        place, size = place + len(part), size - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_meta(file: int) -> Meta:
    """Return the newest of the two meta pages.

    Raises:
        Damage: the file is no LMDB, or one that is not read here.
    """
    first, page_size = _meta(file, 0, 0)
    second, other_size = _meta(file, 1, page_size)
    if page_size != other_size:
        raise Damage(f"the meta pages give different page sizes, {page_size} and {other_size}")
    return first if first.transaction >= second.transaction else second


def read_transaction(file: int, page_size: int) -> int:
    """Return the number of the newest transaction, to find out whether the database was written since."""
    place = HEAD + _META.size - 8
    return max(int.from_bytes(read_exactly(file, 8, start + place), "little") for start in (0, page_size))


def _meta(file: int, number: int, place: int) -> tuple[Meta, int]:
    raw = read_exactly(file, HEAD + _META.size, place)
    page, _, kind = struct.unpack_from("<QHH", raw)
    values = _META.unpack_from(raw, HEAD)
    magic, version, _, _, page_size, *_ = values
    if magic != _MAGIC:
        raise Damage(f"meta page {number} of data.mdb has no LMDB magic number: it is damaged, or no LMDB")
    if version != _VERSION:
        raise Damage(f"data.mdb has LMDB's format {version}; format {_VERSION} is read (liblmdb 0.9)")
    if page != number or not kind & _META_PAGE:
        raise Damage(f"meta page {number} of data.mdb is damaged")
    if page_size not in (2**power for power in range(9, 17)):
        raise Damage(f"meta page {number} of data.mdb gives a page size of {page_size} bytes")
    _, flags, depth, branch, leaf, value, entries, root, last, transaction = values[12:]
    if flags & _SEVERAL_VALUES:
        raise Damage("the database holds several values a key, which Caffe's tools do not write")
    if max(last, entries, branch, leaf, value) >= 2**47:
        raise Damage(f"meta page {number} of data.mdb counts more pages than a file can have")
    size = os.fstat(file).st_size
    return Meta(page_size, size, last, transaction, depth, branch, leaf, value, entries, root), page_size
