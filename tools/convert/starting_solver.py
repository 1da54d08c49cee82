"""A solver to start from, for a net that was converted."""

from __future__ import annotations

from mgcaffe.prototxt import SolverParameter


def starting_solver(net: str, weights: str, prefix: str) -> SolverParameter:
    """Return a solver that goes on training converted weights: momentum, a small rate that falls twice.

    Args:
        net: the train_val net's file.
        weights: the converted weights' file.
        prefix: what the names of snapshots begin with.
    """
    return SolverParameter(
        net=net,
        weights=[weights],
        test_iter=[100],
        test_interval=1000,
        base_lr=0.01,
        lr_policy="multistep",
        stepvalue=[20000, 30000],
        gamma=0.1,
        momentum=0.9,
        weight_decay=0.0001,
        max_iter=40000,
        display=20,
        snapshot=5000,
        snapshot_prefix=prefix,
    )
