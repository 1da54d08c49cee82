"""Memory of a process that trains: got from the kernel in the first iterations, and used again in all later ones.

malloc keeps what is freed (`speed_up_training`), so a later iteration touches no new page: glibc by itself maps blocks
above a bound anew each time, and the kernel clears every page of them. What is freed is used again well only if the
net's values have a place of their own. In their first pass operators make objects that they keep, such as oneDNN's
primitives. Where these lie between values, each gap between two of them is a little too small for the values that lay
there before, since malloc looks for room to align a block besides the block; so the next pass needs other room. Hence
larger blocks are mapped outside malloc's heap during the first pass (`lay_out`), and the objects lie together.

The heap has pages of 2 MiB where the kernel gives them on request. docs/step_times.md has the figures
(`benchmarks/allocator.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.engine.heap import keep_blocks, map_blocks
from mgcaffe.tools.running.process import speed_up_memory

if TYPE_CHECKING:
    from mgcaffe.engine import Net


def speed_up_training() -> None:
    """Have malloc keep all that is freed; to be called before PyTorch allocates its first tensor.

    Where the C library is not glibc, do what can be done without (`speed_up_memory`).
    """
    if not keep_blocks():
        speed_up_memory()


def lay_out(net: Net) -> None:
    """Have malloc map larger blocks in the net's first pass, forward and backward; to be called before that pass."""
    if net.device.type != "cpu" or not net.steps:
        return
    first = net.steps[0].index

    def begin(index: int) -> None:
        if index == first:
            map_blocks()

    def end(index: int) -> None:
        if index == first:
            keep_blocks()
            # The lists that are being gone through stay as they are.
            net.before_forward = [hook for hook in net.before_forward if hook is not begin]
            net.after_backward = [hook for hook in net.after_backward if hook is not end]

    net.before_forward.append(begin)
    net.after_backward.append(end)
