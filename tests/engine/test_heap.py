"""What malloc is asked for, and what that changes."""

import ctypes
import platform
import subprocess
import sys

import pytest

from mgcaffe.engine import heap

_SMALL_BLOCKS = """
import ctypes, sys
from mgcaffe.engine import heap
if sys.argv[1] == "kept":
    heap.keep_freed_memory(heap.MAX_BYTES)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
libc.mallinfo2.restype = Info
def apart(): return libc.mallinfo2().fsmblks
before = apart()
for block in [libc.malloc(56) for _ in range(1000)]:
    libc.free(ctypes.c_void_p(block))
print(apart() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="mallinfo2 is glibc's from version 2.33 on")
def test_small_blocks_that_are_freed_join_others():
    apart = {}
    for way in ("default", "kept"):
        command = [sys.executable, "-c", _SMALL_BLOCKS, way]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        apart[way] = int(result.stdout)
    if apart["default"] < 900 * 56:
        pytest.skip("this malloc keeps no small blocks apart")
    assert apart["kept"] < 100 * 56


@pytest.fixture
def asked(monkeypatch):
    """What malloc is asked to map from, in order; it refuses nothing, and nothing changes."""
    asked = []
    monkeypatch.setattr(heap, "keep_freed_memory", lambda mapped_from: asked.append(mapped_from) or True)
    return asked


def test_an_older_glibc_that_refuses_to_keep_large_blocks_stays_as_it_is(monkeypatch):
    asked = []

    def mallopt(mapped_from):
        asked.append(mapped_from)
        return mapped_from <= 32 << 20

    monkeypatch.setattr(heap, "keep_freed_memory", mallopt)
    heap.map_blocks()
    heap.keep_blocks()
    assert asked and min(asked) > 32 << 20


def test_without_glibc_nothing_is_done(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not heap.keep_freed_memory(heap.MAX_BYTES)


_MAPPED, _KEPT = 128 << 10, heap.MAX_BYTES


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("bound", "inside", "after"),
    [(_KEPT, [_KEPT, _MAPPED], [_KEPT, _MAPPED, _KEPT]), (0, [], []), (8 << 20, [], [])],
)
def test_blocks_are_mapped_for_a_while_where_all_are_kept(monkeypatch, asked, bound, inside, after):
    monkeypatch.setattr(heap, "_bound", bound)
    with pytest.raises(ValueError, match="inside"), heap.blocks_mapped():
        assert asked == inside
        raise ValueError("inside")
    assert asked == after


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_malloc_was_asked_for_is_known():
    program = "from mgcaffe.engine import heap\nfor bound in (8 << 20, heap.MAX_BYTES):\n" \
              "  heap.keep_freed_memory(bound); print(heap._bound)"  # fmt: skip
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == [str(8 << 20), str(heap.MAX_BYTES)]
