"""Tests: the mean of every output over test_iter batches, each rank running its share (Solver::Test).

Of a layer that judges a whole test, such as AUC, the score over all batches stands in the place of the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgcaffe.engine import Net, TestShard
from mgcaffe.solvers.events import OutputValue
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.testing.pass_scores import PassScores
from mgcaffe.solvers.testing.stop_poll import StopPoll


@dataclass(frozen=True)
class TestResult:
    """The outcome of one test: each output's mean, and the mean loss if it was asked for."""

    __test__ = False  # the name is not a pytest class

    scores: tuple[OutputValue, ...]
    loss: float | None


def run_test(
    net: Net,
    ranks: Ranks,
    seed: int,
    iteration: int,
    with_loss: bool,
    poll: StopPoll | None = None,
) -> TestResult | None:
    """Test a net; a collective call.

    A batch counts once whatever the number of ranks, so the scores are those that one rank alone would get.
    The data go on where the test before stopped, as in Caffe.

    Args:
        net: the test net, whose shard says which batches are this rank's, or that each rank runs all of them.
        ranks: the ranks that test together.
        seed, iteration: what the net's random stream starts from, batch by batch.
        with_loss: whether the mean loss is wanted.
        poll: finds out whether a rank wants to leave the test early; None: none does.

    Returns:
        The outcome, without scores where test_iter is 0; or None: a rank wanted to stop, and all have left the test
        after the same batch.
    """
    shard = net.context.shard
    assert isinstance(shard, TestShard)
    if not shard.test_iter:
        return TestResult((), None)
    total = np.zeros(1 + sum(math.prod(net.blobs[name].shape) for name in net.outputs))
    rounds = -(-shard.test_iter // shard.size)
    pass_scores = PassScores(net)
    for number in range(rounds):
        batch = shard.rank + number * shard.size
        if batch < shard.test_iter:
            net.reseed(seed, iteration, batch)
            loss = net.forward()
            total += np.concatenate([[loss], output_numbers(net)])
        elif net.table_look_ups is not None:
            net.table_look_ups.take_part()  # others run their last batch, and look up rows that lie here
        if poll is not None and number < rounds - 1 and poll.agrees():
            return None
    shared = ranks if shard.size > 1 else None
    means = (total if shared is None else shared.sum(total)) / shard.test_iter
    whole = pass_scores.finish(shared)
    scores = tuple(replace(score, value=whole.get(score.name, score.value)) for score in label_outputs(net, means[1:]))
    return TestResult(scores, float(means[0]) if with_loss else None)


def output_numbers(net: Net) -> np.ndarray:
    """Collect all numbers of a net's outputs after a forward pass, in Caffe's order, in float64."""
    values = [value.reshape(-1).double().cpu().numpy() for _, value in net.output_values()]
    return np.concatenate(values) if values else np.zeros(0)


def label_outputs(net: Net, numbers: np.ndarray) -> tuple[OutputValue, ...]:
    """Label the numbers of `output_numbers` with the name and loss weight of the blob that each one belongs to."""
    blobs: list[Any] = [net.blobs[name] for name in net.outputs]
    names = [blob.name for blob in blobs for _ in range(blob.count)]
    return tuple(
        OutputValue(index, name, float(number), net.loss_weights.get(name, 0.0))
        for index, (name, number) in enumerate(zip(names, numbers, strict=True))
    )
