"""What the examples print while they train, on rank 0."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from mgcaffe.pytorch import MergedGradientParallel


class Progress:
    """Prints the mean loss of all ranks every so many steps, and how long a step took.

    Args:
        every: after how many steps.
        model: its communication is printed as well; None: nothing is known of it, as with DDP.
    """

    def __init__(self, every: int, model: MergedGradientParallel | None = None) -> None:
        self._every = every
        self._model = model
        self._count = 0
        self._start()

    def _start(self) -> None:
        self._loss = torch.zeros(())
        self._sent_s = self._hidden_s = 0.0
        self._began = time.perf_counter()

    def step(self, loss: torch.Tensor) -> None:
        """Take note of a step; all ranks call this alike."""
        self._count += 1
        self._loss += loss.detach()
        for report in self._model.reports if self._model is not None else ():
            self._sent_s += report.total_s
            self._hidden_s += report.hidden_s
        if self._count % self._every:
            return
        milliseconds = 1e3 * (time.perf_counter() - self._began) / self._every
        dist.all_reduce(self._loss)
        loss_of_all = self._loss.item() / (self._every * dist.get_world_size())
        say(f"step {self._count:4}: loss {loss_of_all:.4f}, {milliseconds:.1f} ms per step{self._communication()}")
        self._start()

    def _communication(self) -> str:
        if not self._sent_s:
            return ""
        milliseconds, hidden = 1e3 * self._sent_s / self._every, 100 * self._hidden_s / self._sent_s
        return f"; {milliseconds:.2f} ms of communication, {hidden:.0f} % hidden"

    def end(self) -> None:
        """Print how gradients were merged, if that is known."""
        if self._model is None:
            return
        if dist.get_world_size() == 1:
            say("one rank: no gradients are sent")
        elif self._model.plan is None:
            say("no plan was found yet")
        else:
            plan = self._model.plan
            sizes = ", ".join(f"{group.bytes / 1024:.0f}" for group in plan.groups)
            groups = "one group" if len(plan.groups) == 1 else f"{len(plan.groups)} groups"
            say(f"plan '{plan.schedule}': {plan.layers} gradients in {groups} of {sizes} KB")


def say(text: str) -> None:
    """Print on rank 0."""
    if dist.get_rank() == 0:
        print(text, flush=True)
