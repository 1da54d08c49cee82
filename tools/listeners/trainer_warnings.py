"""Warnings of trainers other than the first, whose training the first one's log says nothing of."""

from __future__ import annotations

import logging

from mgcaffe.solvers import events
from mgcaffe.tools.listeners.glog import LOGGER_NAME


class TrainerWarnings:
    """Logs, on a rank that is silent otherwise, what its own training is warned of.

    What is warned of before the training starts is the same on all ranks, and rank 0 says it.
    """

    def __init__(self) -> None:
        self._trains = False

    def on_event(self, event: events.Event) -> None:
        """Take an event."""
        if isinstance(event, events.Started):
            self._trains = True
        elif isinstance(event, events.Finished):
            self._trains = False
        elif isinstance(event, events.Warned) and self._trains:
            logging.getLogger(LOGGER_NAME).warning(event.text, extra={"from_every_rank": True})
