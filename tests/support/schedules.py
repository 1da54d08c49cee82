"""A small run under every schedule, on any device: what the ranks compute must not depend on the schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mgcaffe.comm.planning.schedules import SCHEDULES
from mgcaffe.comm.transport.communicator import Communicator
from tests.support.solverkit import CLASSIFIER, data_layer, make_solver

EVERY = ("auto", *SCHEDULES)
ITERATIONS = 8


def train_under_every_schedule(
    communicator: Communicator, listing: Path, device: torch.device | str
) -> dict[str, torch.Tensor]:
    """Train the classifier of solverkit on this rank.

    Args:
        communicator: the ranks.
        listing: what `write_data` has written, with classes.
        device: where this rank computes.

    Returns:
        For each schedule the weights, in the host's memory.
    """
    net = data_layer(listing, 4) + CLASSIFIER
    weights = {}
    for schedule in EVERY:
        fields = f'momentum: 0.9 comm_param {{ calibration_iterations: 2 }} snapshot_prefix: "{listing.parent}/s"'
        options: dict[str, Any] = {"communicator": communicator, "dtype": torch.float32, "device": device}
        with make_solver(net, fields, listing.parent, schedule=schedule, **options) as solver:
            solver.step(ITERATIONS)
            weights[schedule] = solver.net.arena.data.cpu().clone()
    return weights
