"""Loads PyTorch and what computes with it in three quarters of the usual time, for commands that are a process.

Modules are objects that stay. Python looks for garbage among them again and again while they come, and, since PyTorch
alone brings 160,000, once more when the process ends: 0.6 to 0.9 s of the 3 s of processor time that `engine
train` takes for one iteration of the digits net.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import modules inside of this; the first time, what they leave is looked at by no later garbage collection.

    Where PyTorch has been imported already nothing is done: what else is there then may well become garbage.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
