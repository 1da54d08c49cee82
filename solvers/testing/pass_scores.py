"""Scores of layers that judge a whole test, such as AUC: collected over its batches, put together over the ranks."""

from __future__ import annotations

import numpy as np

from mgcaffe.engine import Net
from mgcaffe.engine.layers.shared.pass_metric import PassMetric
from mgcaffe.solvers.exchange.ranks import Ranks


class PassScores:
    """Collects what such layers of a net need, from now until `finish`.

    Args:
        net: the test net.
    """

    def __init__(self, net: Net) -> None:
        self._metrics = [layer for layer in net.layers if isinstance(layer, PassMetric)]
        for metric in self._metrics:
            metric.begin_pass()

    def finish(self, ranks: Ranks | None) -> dict[str, float]:
        """Return the score of each such layer by the name of its top; a collective call.

        Args:
            ranks: those that ran batches; None if this one ran all of them.
        """
        if not self._metrics:
            return {}
        mine = [metric.end_pass() for metric in self._metrics]
        gathered = [mine] if ranks is None else ranks.communicator.gather(mine)
        scores = np.zeros(len(mine))
        if gathered is not None:
            for number, metric in enumerate(self._metrics):
                scores[number] = metric.score(np.concatenate([part[number] for part in gathered]))
        if ranks is not None:
            scores = ranks.sum(scores)
        return {metric.param.top[0]: float(score) for metric, score in zip(self._metrics, scores, strict=True)}
