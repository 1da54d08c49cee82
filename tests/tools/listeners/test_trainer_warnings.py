"""What a trainer other than the first is warned of is shown, once it trains."""

import logging

from mgcaffe.solvers import events
from mgcaffe.tools.listeners.trainer_warnings import TrainerWarnings


def test_warnings_of_the_training_are_shown_from_every_rank(caplog):
    listener = TrainerWarnings()
    with caplog.at_level(logging.WARNING, logger="mgcaffe"):
        listener.on_event(events.Warned("a field has no effect"))
        listener.on_event(events.Started("net", "SGD", "fixed", 0, 10, 4, 100, 2, 0))
        listener.on_event(events.Warned("the batch is passed over"))
    (record,) = caplog.records
    assert record.message == "the batch is passed over" and record.from_every_rank
