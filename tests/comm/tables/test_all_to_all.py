"""The exchange of parts of different lengths."""

import numpy as np
import pytest

from mgcaffe.comm import SingleCommunicator, run_ranks
from mgcaffe.comm.tables.all_to_all import all_to_all

pytestmark = pytest.mark.usefixtures("both_transports")


def length(sender, receiver):
    """Of what one rank sends another; often nothing."""
    return (2 * sender + 3 * receiver) % 4


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3])
def test_each_rank_gets_what_the_others_send_it(size, dtype):
    def rank(communicator):
        me = communicator.rank
        parts = [np.full(length(me, other), 10 * me + other, dtype) for other in range(size)]
        return all_to_all(communicator, parts, [length(other, me) for other in range(size)])

    for me, received in enumerate(run_ranks(size, rank)):
        for other, part in enumerate(received):
            assert part.dtype == dtype and part.tolist() == [10 * other + me] * length(other, me)


def test_a_rank_alone_gets_its_own():
    (part,) = all_to_all(SingleCommunicator(), [np.arange(3)], [3])
    assert part.tolist() == [0, 1, 2]
