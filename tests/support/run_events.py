"""The events of a short run on two ranks, as the listeners get them."""

from __future__ import annotations

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.solvers import events
from mgcaffe.solvers.events.snapshots import SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.events.testing import Tested, Testing

_LOSS = events.OutputValue(0, "loss", 0.26041234, 1.0)
_PLAN = Plan("mgwfbp", 2, (Group(0, 1, 0, 512, 2048, 0.004, 0.004, 0.005),), 0.004)
RUN = [
    events.Started("LeNet", "SGD", "inv", 0, 200, 64, 431080, 2, 1),
    Testing(0, 0),
    Tested(
        0, 0, (events.OutputValue(0, "accuracy", 0.0975), events.OutputValue(1, "loss", 2.4, 1.0)), 2.4, 0.5
    ),
    events.Displayed(0, 2.3, 0.0, 0.25, 100, (_LOSS,), 0.0, 0.002),
    events.LearningRate(0, 0.01),
    events.IterationDone(0, 2.3, 2.3, 0.01, 64, 0.02, 0.001, 0.003, 0.001),
    events.PlanChosen(10, "mgwfbp", _PLAN, None),
    events.Displayed(100, 0.2604, 50.1, 1.99, 100, (_LOSS,), 0.3, 0.1),
    events.LearningRate(100, 0.00992565),
    events.IterationDone(100, float("nan"), 0.26, 0.00992565, 64, 0.02, 0.0, 0.0, 0.0),
    events.Warned("something"),
    SnapshotWriting(200, "x_iter_200.caffemodel", "weights"),
    SnapshotWriting(200, "x_iter_200.solverstate", "state"),
    SnapshotWritten(200, "x_iter_200.caffemodel", "x_iter_200.solverstate"),
    events.Displayed(200, 0.1, None, None, None, ()),
    events.Finished(200, False, 4.0, 12800, 0.6, 0.2, "x_iter_200.solverstate",
                    ((events.OutputValue(0, "accuracy", 0.985),),)),
]  # fmt: skip

_BEGUN = SyncFigures(20, 4, 8192, 0.04, 0.004, 0.5, (20, 10), (0.5, float("nan")), 0.0, (4, 2))
_ENDED = SyncFigures(100, 24, 49152, 0.44, 0.024, 0.125, (100, 70), (0.125, 0.25), 0.44, (24, 22))
REPLICAS = [
    events.Started("LeNet", "SGD", "inv", 0, 100, 64, 431080, 2, 1),
    events.Synchronized(20, (20, 10), 4000.0, _BEGUN),
    events.IterationDone(20, 2.3, 2.3, 0.01, 64, 0.02, 0.001, 0.0, 0.0),
    events.Synchronized(100, (100, 70), 5000.0, _ENDED),
    events.IterationDone(100, 2.3, 2.3, 0.01, 64, 0.02, 0.001, 0.0, 0.0),
    events.Finished(100, False, 4.0, 12800, 0.0, 0.0, None, ((events.OutputValue(0, "accuracy", 0.985),),), 3.2,
                    (100, 70), _ENDED, ((events.OutputValue(0, "accuracy", 0.99),),)),
]  # fmt: skip
"""The same of a trainer with a replica of its own."""
