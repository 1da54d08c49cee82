"""What malloc is asked for, and what that changes."""

import ctypes
import json
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
    monkeypatch.setattr(heap, "_may_grow_ahead", lambda: False)
    monkeypatch.setattr(heap, "_is_advised", False)
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
    assert not heap.keep_blocks()


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


_HUGE_PAGES = """
import ctypes, json, mmap
from pathlib import Path
from mgcaffe.engine import heap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
def huge():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:"))
mapped = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
mapped.madvise(mmap.MADV_HUGEPAGE)
mapped.write(bytes(64 << 20))
found = [(0, huge())]  # what the kernel gives where it is asked as simply as can be
mapped.close()
heap.keep_blocks()
for _ in range(2):
    heap.map_blocks()
    before = resident(), huge()
    heap.keep_blocks()
    ahead = resident() - before[0]
    block = libc.malloc(64 << 20)
    ctypes.memset(block, 1, 64 << 20)
    found.append((ahead, huge() - before[1]))
    libc.free(ctypes.c_void_p(block))
print(json.dumps(found))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_the_heap_has_huge_pages_where_all_is_kept():
    if not heap._may_grow_ahead():
        pytest.skip("this kernel gives no huge pages on request, or address space is limited")
    command = [sys.executable, "-c", _HUGE_PAGES]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (_, given), *found = json.loads(result.stdout)
    if given < 60 << 20:
        pytest.skip("this kernel has no huge pages to give")
    for ahead, huge in found:
        assert ahead < 4 << 20  # what is not used takes no memory
        assert huge >= 56 << 20


@pytest.mark.parametrize(
    ("pages", "overcommit", "expected"),
    [
        ("always [madvise] never", "0", True),
        ("always [madvise] never", "1", True),
        ("always [madvise] never", "2", False),
        ("[always] madvise never", "0", False),
        ("always madvise [never]", "0", False),
        (None, "0", False),
        ("always [madvise] never", None, False),
    ],
)
def test_the_heap_grows_ahead_where_that_gives_huge_pages_and_costs_nothing(
    monkeypatch, tmp_path, pages, overcommit, expected
):
    for name, text in (("HUGE_PAGES", pages), ("OVERCOMMIT", overcommit), ("HUGE_PAGE_SIZE", "2097152")):
        monkeypatch.setattr(heap, name, tmp_path / name)
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(heap.resource, "getrlimit", lambda limit: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.delenv("MALLOC_PERTURB_", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert heap._may_grow_ahead() == expected
    for name, value in (("MALLOC_PERTURB_", "1"), ("GLIBC_TUNABLES", "glibc.malloc.perturb=1")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert not heap._may_grow_ahead()  # it would be written
    with monkeypatch.context() as context:
        context.setattr(heap, "HUGE_PAGE_SIZE", tmp_path / "of_64_kib")
        (tmp_path / "of_64_kib").write_text(f"{512 << 20}\n")
        assert not heap._may_grow_ahead()
    for limited in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        monkeypatch.setattr(
            heap.resource,
            "getrlimit",
            lambda limit, limited=limited: (1 << 40 if limit == limited else resource.RLIM_INFINITY,) * 2,
        )
        assert not heap._may_grow_ahead()


def test_zeros_on_demand_take_no_memory_before_they_are_written():
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    values = heap.zeros_on_demand((1 << 12, 1 << 12), torch.float32)
    assert values.shape == (1 << 12, 1 << 12) and values.dtype == torch.float32
    assert int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() - before < 8 << 20
    assert not values[:5].any()
    values[3].fill_(1)
    assert values[2:5].sum() == 1 << 12


def test_zeros_that_the_kernel_has_no_room_for_are_an_error_of_memory():
    with pytest.raises(MemoryError, match="cannot map 4611686018427387904 bytes"):
        heap.zeros_on_demand((1 << 60,), torch.float32)
