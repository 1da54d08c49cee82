"""A module that fails in one of many ways on one rank, by which it is tested what becomes of the other ranks."""

import os
import signal
import time

import torch
from torch import nn

FAILING_STEP = 3
SLOW_S = 5


class Fails(torch.autograd.Function):
    """Does in its backward pass what it is given."""

    @staticmethod
    def forward(ctx, x, action):
        ctx.action = action
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.action()
        return gradient, None


def failing_rank(how, size):
    return 0 if "rank 0" in how else size - 1


class Failing(nn.Module):
    """Fails on one rank, in its step number 3.

    `how` is a sentence in which words count: `forward`, `backward` or `on_group` say where, `killed`, `stopped` or
    `slow` in which way (else by an exception), `rank 0` on which rank (else on the last one).
    """

    def __init__(self, how, rank, size):
        super().__init__()
        self.fails = rank == failing_rank(how, size)
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 7 if how == "other_shape" and self.fails else 6)
        self.rest = nn.Linear(6, 6)
        self.how, self.rank, self.step, self.say = how, rank, 0, None

    def act(self, where):
        if not self.fails or self.step != FAILING_STEP or where not in self.how:
            return
        self.say("at", time.monotonic())
        if "killed" in self.how:
            os.kill(os.getpid(), signal.SIGKILL)
        if "stopped" in self.how:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif "slow" in self.how:
            time.sleep(SLOW_S)
        else:
            raise ValueError(f"rank {self.rank} fails in {where}")

    def forward(self, x):
        self.act("forward")
        result = self.b(Fails.apply(self.a(x), lambda: self.act("backward")))
        lacks = self.step == FAILING_STEP and (self.how == "lacking" or (self.how == "one_lacks" and self.fails))
        return result if lacks else self.rest(result) if self.how != "other_shape" else result
