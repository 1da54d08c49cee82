"""Which gradients have come, noted by autograd itself: Python runs for none of them.

Where nothing is done with a gradient before the pass has ended, a hook in Python for each parameter would be all that
the wrapper costs: every call finds caches that the pass has filled.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

import torch
from torch.utils.hooks import RemovableHandle

from mgcaffe.pytorch.parameters import NamedParameter


class Arrivals:
    """The gradients that autograd has added to since they were last asked for.

    Args:
        parameters: those that are averaged.
    """

    def __init__(self, parameters: Sequence[NamedParameter]) -> None:
        # Of twice as many as there are parameters one has come again, so those before it need not be kept. Passes that
        # nobody asks about (`no_sync`, or the module by itself) take no memory.
        self._came: deque[torch.Tensor] = deque(maxlen=2 * len(parameters))
        self._index = {id(each.parameter): each.index for each in parameters}
        self._ids: list[int] = []
        self._numbers: list[int] = []
        handles = [each.parameter.register_post_accumulate_grad_hook(self._came.append) for each in parameters]
        self._remove = weakref.finalize(self, _remove, handles)

    def take(self) -> list[int]:
        """Return the parameters' numbers, in the order in which their gradients came, and forget them."""
        ids = list(map(id, self._came))
        self._came.clear()
        if ids != self._ids:
            self._ids, self._numbers = ids, [self._index[each] for each in ids]
        return self._numbers

    def forget(self) -> None:
        """Forget those that came."""
        self._came.clear()

    def close(self) -> None:
        """Take no more note of gradients; harmless when repeated."""
        self._remove()


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
