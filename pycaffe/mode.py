"""Where and how nets made from now on run, as module functions set it (Caffe: common.cpp, _caffe.cpp)."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass

import numpy as np
import torch

from mgcaffe.engine import registry
from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.errors import UsageError
from mgcaffe.tools.listeners.glog import log_line, start_logging

__all__ = ["TEST", "TRAIN"]

# OpenMP's threads stay behind in the parent when a script forks, and a child that waited for them would hang.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


@dataclass
class _Settings:
    """What the functions of this module set."""

    uses_gpu: bool = False
    device_id: int = 0
    seed: int | None = None
    seeds_given: int = 0


_settings = _Settings()


def set_mode_cpu() -> None:
    """Run nets made from now on on the CPU (the default)."""
    _settings.uses_gpu = False


def set_mode_gpu() -> None:
    """Run nets made from now on on the GPU that `set_device` chose; on the CPU, with a warning, if there is none."""
    _settings.uses_gpu = torch.cuda.is_available()
    if not _settings.uses_gpu:
        start_caffe_log()
        log_line("set_mode_gpu: no GPU can be used here, so nets run on the CPU", level=logging.WARNING)


def set_device(device_id: int) -> None:
    """Choose the GPU of nets made from now on.

    Raises:
        UsageError: there is a GPU, but none of this number.
    """
    count = torch.cuda.device_count()
    if count and not 0 <= device_id < count:
        raise UsageError(f"there is no GPU {device_id}", hint=f"choose one from 0 to {count - 1}")
    _settings.device_id = device_id


def device() -> torch.device:
    """Return where the next net runs."""
    return torch.device("cuda", _settings.device_id) if _settings.uses_gpu else torch.device("cpu")


def set_random_seed(seed: int) -> None:
    """Make the random numbers of the nets and solvers made from now on the same in every run."""
    _settings.seed, _settings.seeds_given = seed, 0


def next_seed() -> int | None:
    """Return the seed of the next net: another one for each; None where none was set."""
    if _settings.seed is None:
        return None
    numbers = [_settings.seed & 0xFFFFFFFF, _settings.seeds_given]
    _settings.seeds_given += 1
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def layer_type_list() -> list[str]:
    """Return the names of all layer types, in alphabetical order."""
    return list(registry.layer_types())


def solver_count() -> int:
    """Return how many solvers train in step in this process: one."""
    return 1


def solver_rank() -> int:
    """Return the number of this process's solver: 0."""
    return 0


def set_solver_count(count: int) -> None:
    """Accept one.

    Raises:
        UsageError: several were asked for.
    """
    if count != 1:
        raise UsageError(
            f"set_solver_count({count}): a script trains with one solver",
            hint="to train on several ranks, run `mpirun -n RANKS engine train SOLVER`",
        )


def set_solver_rank(rank: int) -> None:
    """Accept 0.

    Raises:
        UsageError: another one was asked for.
    """
    if rank != 0:
        raise UsageError(
            f"set_solver_rank({rank}): a script trains with one solver, whose rank is 0",
            hint="to train on several ranks, run `mpirun -n RANKS engine train SOLVER`",
        )


def set_multiprocess(multiprocess: bool) -> None:
    """Accept both: every rank is a process of its own anyway."""


def has_nccl() -> bool:
    """Return whether the class NCCL works: no; ranks are joined by MPI."""
    return False


def start_caffe_log() -> None:
    """Let Caffe's log lines go to standard error, unless the script has set up logging itself.

    The environment variable GLOG_minloglevel (0 to 3) leaves out what is less important.
    """
    if not logging.getLogger("mgcaffe").hasHandlers():
        init_log(int(os.environ.get("GLOG_minloglevel") or 0))


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Send log lines to standard error, in glog's form.

    Args:
        level: the least important that is shown: 0 all, 1 warnings, 2 errors, 3 what ends a run.
        stderr: has no meaning; Caffe's other choice is a file.
    """
    start_logging(speaks=True).setLevel(_LEVELS[min(max(level, 0), 3)])


def log(message: str) -> None:
    """Log a line."""
    start_caffe_log()
    log_line(message)


class Timer:
    """A stopwatch."""

    def __init__(self) -> None:
        self._began = self._elapsed = 0.0

    def start(self) -> None:
        """Begin."""
        self._began = self._now()

    def stop(self) -> None:
        """End."""
        self._elapsed = self._now() - self._began

    @property
    def ms(self) -> float:
        """Milliseconds from `start` to `stop`."""
        return self._elapsed * 1000

    @staticmethod
    def _now() -> float:
        if _settings.uses_gpu:
            torch.cuda.synchronize(_settings.device_id)
        return time.perf_counter()
