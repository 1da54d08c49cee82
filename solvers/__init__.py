"""Training: the loop, learning rates, update rules, tests and snapshots.

Names are loaded on first use, so that importing this package loads neither torch nor MPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.solvers.events import SolverListener as SolverListener
    from mgcaffe.solvers.rates.policies import LearningRatePolicy as LearningRatePolicy
    from mgcaffe.solvers.solver import Solver as Solver
    from mgcaffe.solvers.update.updater import Updater as Updater

_NAMES_OF_MODULE = {
    "LearningRatePolicy": "rates.policies",
    "Solver": "solver",
    "SolverListener": "events",
    "Updater": "update.updater",
}

__all__ = sorted(_NAMES_OF_MODULE)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _NAMES_OF_MODULE:
            return getattr(importlib.import_module(f"mgcaffe.solvers.{_NAMES_OF_MODULE[name]}"), name)
        raise AttributeError(f"module 'mgcaffe.solvers' has no attribute {name!r}")
