"""What waits for a rank whose sender is gone."""

import numpy
import pytest

from mgcaffe.comm.transport.message_queue import MessageQueue
from mgcaffe.errors import CommError


def test_what_a_rank_sent_before_it_was_gone_is_received_and_nothing_else_is_waited_for():
    queue = MessageQueue(0, 60.0, lambda source: CommError(f"rank {source} is gone"))
    queue.put(1, 9, [numpy.arange(3)])
    assert queue.find(1, 9, 0.0) is not None
    assert queue.take(1, 9)[0].tolist() == [0, 1, 2]
    for wait in (lambda: queue.take(1, 9), lambda: queue.find(1, 9, 60.0)):
        with pytest.raises(CommError, match="rank 1 is gone"):
            wait()
