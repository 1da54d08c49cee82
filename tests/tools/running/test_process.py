"""Threads, memory and devices."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from mgcaffe.errors import UsageError
from mgcaffe.tools.running import process


@pytest.fixture
def three_gpus(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.mark.parametrize(
    ("gpu", "local_rank", "local_size", "device"),
    [("1", 0, 1, 1), ("all", 0, 1, 0), ("all", 2, 3, 2), ("2,0", 1, 2, 0), ("1", 1, 2, 1), ("all", 4, 5, 1)],
)
def test_each_rank_takes_its_own_gpu(three_gpus, gpu, local_rank, local_size, device):
    assert process.pick_device(gpu, local_rank, local_size) == torch.device("cuda", device)
    assert three_gpus == [device]


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("7", "device 7 does not exist, this machine has devices 0 to 2"),
        ("0,1", "names 2 devices for one rank"),
        ("one", "neither 'all' nor a list of numbers"),
    ],
)
def test_a_wrong_gpu_is_a_usage_error(three_gpus, gpu, message):
    with pytest.raises(UsageError, match=message):
        process.pick_device(gpu)


def test_asking_for_a_gpu_without_one_is_a_usage_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert process.pick_device(None) == torch.device("cpu")
    with pytest.raises(UsageError, match="--gpu 0: PyTorch finds no CUDA device here\n  leave --gpu out"):
        process.pick_device("0")
    with pytest.raises(UsageError, match=r"^GPU 0: PyTorch finds no CUDA device here\n  leave GPU out"):
        process.pick_device("0", flag="GPU")


def test_the_flag_beats_the_environment_which_beats_the_share(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert process.set_threads(5, 1) == 5
    assert process.set_threads(None, 1) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert process.set_threads(None, 10_000) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "99999999999")
    with pytest.raises(UsageError, match="OMP_NUM_THREADS asks for 99999999999 compute threads"):
        process.set_threads(None, 1)
    assert seen == [5, 3, 1]


_FAULTS = """
import resource, sys
from pathlib import Path
from mgcaffe.tools.running import process
process.HUGE_PAGES = Path(sys.argv[1])
print(process.speed_up_memory())
import torch
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8): torch.ones(16 << 20)
before = faults()
for _ in range(32): torch.ones(16 << 20)
print(faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize(("offer", "how"), [("always [madvise] never", "huge pages"), ("[never]", "kept")])
def test_memory_is_not_mapped_anew_page_by_page(tmp_path, offer, how):
    if how == "huge pages" and not process._kernel_offers_huge_pages():
        pytest.skip("this kernel has no huge pages")
    (tmp_path / "enabled").write_text(offer)
    result = subprocess.run(
        [sys.executable, "-c", _FAULTS, str(tmp_path / "enabled")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    done, faults = result.stdout.split("\n")[:2]
    assert done == how
    # Each of the 32 tensors covers 16384 pages of 4 KiB.
    assert int(faults) < 32 * 16384 / 4


def test_without_huge_pages_and_glibc_nothing_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "HUGE_PAGES", tmp_path / "absent")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert process.speed_up_memory() == "nothing"


def test_idle_threads_spin_briefly_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    process.calm_waiting_threads()
    assert process.os.environ["GOMP_SPINCOUNT"] == "20000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    process.calm_waiting_threads()
    assert process.os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    process.calm_waiting_threads()
    assert "GOMP_SPINCOUNT" not in process.os.environ
