"""How a group's gradients are summed over the ranks: in which type they travel, and by which way.

    summing = make_sum(communicator, TransferSettings("bfloat16", hierarchical=True), segments)
    summing(offset, part)        # part = flat[offset : offset + count] becomes the sum over the ranks

Two choices make four ways:

| type    | flat                                     | hierarchical                                             |
|---------|------------------------------------------|----------------------------------------------------------|
| float32 | one all-reduce (`base.py`)               | within each host, then between hosts (`hierarchy.py`)    |
| 16 bits | 16-bit exchange (`sixteen_bit.py`)       | float32 within a host, 16 bits between hosts             |
"""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.comm.exchange.sums.base import PlainSum, Sum, TransferSettings
from mgcaffe.comm.exchange.sums.hierarchy import HierarchicalSum, number_hosts
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.transport.communicator import Communicator


def make_sum(communicator: Communicator, transfer: TransferSettings, segments: Sequence[Segment] = ()) -> Sum:
    """Return the way of summing; a collective call.

    Args:
        communicator: the ranks; all calls are made on it and on parts of it.
        transfer: what the user chose.
        segments: the layers' places in the gradient buffer, which groups are made of.
    """
    if transfer.hierarchical and communicator.size > 1:
        numbers = number_hosts(communicator, transfer.hosts)
        if 1 < len(set(numbers)) < communicator.size:
            return HierarchicalSum(communicator, numbers, lambda leaders: _flat_sum(leaders, transfer, segments))
    return _flat_sum(communicator, transfer, segments)


def _flat_sum(communicator: Communicator, transfer: TransferSettings, segments: Sequence[Segment]) -> Sum:
    if transfer.type == "float32":
        return PlainSum(communicator)
    from mgcaffe.comm.exchange.sums.sixteen_bit import CODECS, SixteenBitSum

    return SixteenBitSum(communicator, CODECS[transfer.type], segments)
