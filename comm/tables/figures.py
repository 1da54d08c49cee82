"""What look-ups on embedding servers have come to, of a trainer and of a server, for logs and reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LookUpFigures:
    """Totals since the start, of one trainer.

    Attributes:
        look_ups: of whole batches, that were answered; those of tests among them.
        latency_s: from asking for each to its answer.
        waited_s: of which the trainer waited for the answer.
        sent, received: bytes of all messages.
    """

    look_ups: int = 0
    latency_s: float = 0.0
    waited_s: float = 0.0
    sent: int = 0
    received: int = 0


@dataclass
class ServerFigures:
    """What a server has done so far.

    Attributes:
        look_ups: batches' look-ups that it has answered.
        ids: in all of them together.
        updates: that it has made.
        received, sent: bytes of all messages.
    """

    look_ups: int = 0
    ids: int = 0
    updates: int = 0
    received: int = 0
    sent: int = 0
