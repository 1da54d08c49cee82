"""The rules by which replicas come together: arithmetic on flat arrays, without communication.

A round of a rule, for a trainer whose replica is w:

    snapshot = copy of w
    offered = rule.offer(snapshot)         replaced by its mean over the trainers, elsewhere
    rule.receive(offered, trainers)
    rule.merge(w, snapshot)                w may have been trained meanwhile

The rules and their symbols are those of ShadowSync (arXiv 2003.03477), EASGD (arXiv 1412.6651) and BMUF (Chen and Huo,
ICASSP 2016).
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy

from mgcaffe.errors import CommError


class Rule(Protocol):
    """How a trainer's replica takes part in a round.

    Attributes:
        needs_all_trainers: whether replicas only come together where each round has all trainers.
    """

    needs_all_trainers: bool

    @property
    def target(self) -> numpy.ndarray:
        """What replicas move towards, once a round's mean has been received."""

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """What a resumed run needs, by name; the arrays themselves."""

    def begin(self, replica: numpy.ndarray) -> None:
        """Take the start that all trainers have in common; its size and type are those of all arrays that follow."""

    def offer(self, snapshot: numpy.ndarray) -> numpy.ndarray:
        """Return an array, the same one in each round, whose mean over the trainers is wanted."""

    def receive(self, mean: numpy.ndarray, trainers: int) -> None:
        """Take the mean, in the array that was offered, over so many trainers."""

    def merge(self, replica: numpy.ndarray, snapshot: numpy.ndarray) -> None:
        """Change the replica, which training may have changed since the snapshot; the snapshot is used up."""


class ModelAveraging:
    """MA: replicas move towards their mean G.

    By increment, w becomes w + a (G - snapshot), so what was learned since the snapshot stays whole. By interpolation,
    w becomes (1 - a) w + a G, which shrinks that progress by 1 - a as if the learning rate were smaller.

    Args:
        rate: a, above 0 and at most 1.
        interpolates: interpolate instead of adding the increment.

    Raises:
        CommError: a rate out of its range.
    """

    needs_all_trainers = False

    def __init__(self, rate: float = 1.0, *, interpolates: bool = False) -> None:
        self._rate = _checked(rate)
        self._interpolates = interpolates
        self._target = numpy.empty(0)

    @property
    def target(self) -> numpy.ndarray:
        """The mean."""
        return self._target

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """Nothing."""
        return {}

    def begin(self, replica: numpy.ndarray) -> None:
        """Make the array for the mean."""
        self._target = replica.copy()

    def offer(self, snapshot: numpy.ndarray) -> numpy.ndarray:
        """Offer the replica."""
        self._target[:] = snapshot
        return self._target

    def receive(self, mean: numpy.ndarray, trainers: int) -> None:
        """Keep the mean where it is."""

    def merge(self, replica: numpy.ndarray, snapshot: numpy.ndarray) -> None:
        """Move towards the mean."""
        if self._interpolates and self._rate == 1:
            replica[:] = self._target
            return
        numpy.subtract(self._target, replica if self._interpolates else snapshot, out=snapshot)
        if self._rate != 1:
            snapshot *= self._rate
        replica += snapshot


class BlockMomentum(ModelAveraging):
    """BMUF: as `ModelAveraging`, but towards a global model g that follows the mean with momentum.

    d = mean - g;  v = mu v + eta d;  g = g + v; Nesterov's form looks ahead: replicas move towards g + mu v.

    By increment, the rate damps only what separates replicas: w becomes w + a (mean - snapshot) + (g - mean), so that
    momentum acts at any rate. At a rate of 1 that is w + g - snapshot.

    Args:
        rate, interpolates: as for ModelAveraging.
        momentum: mu, from 0 to below 1.
        learning_rate: eta, above 0 and finite.
        nesterov: look ahead.
        trained: how many elements at the front are trained; the others, which are statistics of BatchNorm, are averaged
            without momentum, which could make a variance negative. None: all are.

    Raises:
        CommError: a value out of its range.
    """

    def __init__(
        self,
        rate: float = 1.0,
        *,
        interpolates: bool = False,
        momentum: float = 0.875,
        learning_rate: float = 1.0,
        nesterov: bool = False,
        trained: int | None = None,
    ) -> None:
        super().__init__(rate, interpolates=interpolates)
        if not 0 <= momentum < 1:
            raise CommError(f"block momentum {momentum:g} is not from 0 to below 1")
        if not 0 < learning_rate < math.inf:
            raise CommError(f"block learning rate {learning_rate:g} is not above 0 and finite")
        self._momentum = momentum
        self._learning_rate = learning_rate
        self._nesterov = nesterov
        self._statistics = slice(trained, None) if trained is not None else slice(0, 0)
        self._damps = rate != 1 and not interpolates
        self._model = self._velocity = self._undamped = numpy.empty(0)

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """The global model g and its velocity v."""
        return {"model": self._model, "velocity": self._velocity}

    def begin(self, replica: numpy.ndarray) -> None:
        """Begin with the common start as the global model, without velocity."""
        super().begin(replica)
        self._model = replica.copy()
        self._velocity = numpy.zeros_like(replica)
        if self._damps:
            self._undamped = numpy.empty_like(replica)

    def receive(self, mean: numpy.ndarray, trainers: int) -> None:
        """Move the global model, and make it, or what lies ahead of it, what replicas move towards."""
        statistics = mean[self._statistics].copy()
        if self._damps:
            self._undamped[:] = mean
        mean -= self._model
        mean *= self._learning_rate
        self._velocity *= self._momentum
        self._velocity += mean
        self._model += self._velocity
        self._target[:] = self._model
        if self._nesterov:
            self._target += self._momentum * self._velocity
        self._velocity[self._statistics] = 0
        self._model[self._statistics] = self._target[self._statistics] = statistics
        if self._damps:
            numpy.subtract(self._target, self._undamped, out=self._undamped)
            self._undamped *= 1 - self._rate

    def merge(self, replica: numpy.ndarray, snapshot: numpy.ndarray) -> None:
        """Move towards the target: by the whole way of the mean, and by a share of what separates replicas."""
        super().merge(replica, snapshot)
        if self._damps:
            replica += self._undamped


class ElasticAveraging:
    """EASGD in its symmetric form: d = a (w - c);  w = w - d;  c = c + the sum of all d.

    The centre c is the same on all trainers; each keeps a copy. In groups the copies would become different centres,
    which nothing brings together again.

    Args:
        rate: a, above 0 and at most 1. Of n trainers, the centre overshoots their mean where a is above 1 / n.

    Raises:
        CommError: a rate out of its range.
    """

    needs_all_trainers = True

    def __init__(self, rate: float) -> None:
        self._rate = _checked(rate)
        self._centre = self._offered = self._difference = numpy.empty(0)

    @property
    def target(self) -> numpy.ndarray:
        """The centre."""
        return self._centre

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """The centre."""
        return {"centre": self._centre}

    def begin(self, replica: numpy.ndarray) -> None:
        """Begin with the common start as the centre."""
        self._centre, self._offered, self._difference = replica.copy(), replica.copy(), replica.copy()

    def offer(self, snapshot: numpy.ndarray) -> numpy.ndarray:
        """Offer this trainer's difference from the centre, times the rate."""
        numpy.subtract(snapshot, self._centre, out=self._difference)
        self._difference *= self._rate
        self._offered[:] = self._difference
        return self._offered

    def receive(self, mean: numpy.ndarray, trainers: int) -> None:
        """Move the centre by the sum."""
        mean *= trainers
        self._centre += mean

    def merge(self, replica: numpy.ndarray, snapshot: numpy.ndarray) -> None:
        """Move towards where the centre was."""
        replica -= self._difference


class SequentialElasticAveraging(ModelAveraging):
    """EASGD in its sequential form, for the topology `Servers`: what comes back is not a mean but the centre.

    c = (1 - a) c + a w on the servers, then w = (1 - a) w + a c, by increment: w = w + a (c - snapshot).

    Args:
        rate: a, above 0 and at most 1.

    Raises:
        CommError: a rate out of its range.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self._centre = numpy.empty(0)

    @property
    def target(self) -> numpy.ndarray:
        """The centre, as this trainer saw it last."""
        return self._centre

    @property
    def state(self) -> dict[str, numpy.ndarray]:
        """The centre, as this trainer saw it last."""
        return {"centre": self._centre}

    def begin(self, replica: numpy.ndarray) -> None:
        """Begin with the common start as the centre."""
        super().begin(replica)
        self._centre = replica.copy()

    def receive(self, mean: numpy.ndarray, trainers: int) -> None:
        """Keep the centre apart from what is on its way in the next round."""
        self._centre[:] = mean


def _checked(rate: float) -> float:
    if not 0 < rate <= 1:
        raise CommError(f"alpha {rate:g} is not above 0 and at most 1")
    return rate
