"""The groups of an update: the slices of the arena that have the same multipliers, which the same calls update.

Slices always end where layers end: PyTorch's kernels round a slice's last few elements otherwise than those before
them, so only equal slices give equal bits, whether a part of the arena is updated alone or with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from mgcaffe.engine.arena import ParameterArena


@dataclass
class Group:
    """The slices of the arena that share one pair of multipliers.

    Attributes:
        lr_mult, decay_mult: factors on the learning rate and the weight decay.
        weights, gradients: views of the arena's data and of gradients.
        histories: for each of the rule's histories, the views of it.
    """

    lr_mult: float
    decay_mult: float
    weights: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)
    histories: list[list[torch.Tensor]] = field(default_factory=list)

    def pieces(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]]:
        """(weights, gradient, histories) in pieces of at most `size` elements."""
        for index, weights in enumerate(self.weights):
            if len(weights) <= size:
                yield weights, self.gradients[index], [history[index] for history in self.histories]
                continue
            for start in range(0, len(weights), size):
                part = slice(start, start + size)
                histories = [history[index][part] for history in self.histories]
                yield weights[part], self.gradients[index][part], histories


def make_groups(
    arena: ParameterArena,
    histories: Sequence[torch.Tensor],
    start: int = 0,
    stop: int | None = None,
    *,
    parameters_apart: bool = False,
) -> list[Group]:
    """Cut the trainable part, or what belongs to elements `start` to `stop` of `arena.diff`, into groups.

    There is one group for each pair of multipliers. No slice reaches over the end of a layer. Parameters whose
    gradients lie apart are left out. With `parameters_apart` each parameter is a group of one slice.
    """
    stop = arena.trainable_diff if stop is None else stop
    pieces = arena.slices if parameters_apart else []
    layer_ends = (offset + count for _, _, offset, count in arena.segments())
    ends = sorted({*layer_ends, *(piece.diff_offset for piece in pieces), start, stop})
    groups: dict[tuple[float, ...], Group] = {}
    for run in arena.runs():
        shift = run.offset - run.diff_offset
        run_end = run.diff_offset + run.count
        inside = [end for end in ends if run.diff_offset < end < run_end]
        for low, high in pairwise([run.diff_offset, *inside, run_end]):
            if low < start or high > stop:
                continue
            key = (run.lr_mult, run.decay_mult, low) if parameters_apart else (run.lr_mult, run.decay_mult)
            if key not in groups:
                groups[key] = Group(run.lr_mult, run.decay_mult, histories=[[] for _ in histories])
            part, group = slice(low + shift, high + shift), groups[key]
            group.weights.append(arena.data[part])
            group.gradients.append(arena.diff[low:high])
            for views, history in zip(group.histories, histories, strict=True):
                views.append(history[part])
    return list(groups.values())
