"""The events of a module's exchange as lines of the logger `mgcaffe.pytorch`, where nobody listens to them."""

from __future__ import annotations

import logging

from mgcaffe.solvers.events import Event, Noted, PlanChosen, Warned

LOG = logging.getLogger("mgcaffe.pytorch")


def log_event(event: Event) -> None:
    """Log an event; kinds that say nothing to a user are left out."""
    if isinstance(event, Warned):
        LOG.warning("%s", event.text)
    elif isinstance(event, Noted):
        LOG.info("%s", event.text)
    elif isinstance(event, PlanChosen):
        groups = len(event.plan.groups)
        LOG.info("gradients are sent by %s: %d group%s", event.plan.schedule, groups, "s" if groups > 1 else "")
