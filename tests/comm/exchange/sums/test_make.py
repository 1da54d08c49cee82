import numpy
import pytest

from mgcaffe.comm.exchange.sums.base import PlainSum, TransferSettings
from mgcaffe.comm.exchange.sums.hierarchy import HierarchicalSum
from mgcaffe.comm.exchange.sums.make import make_sum
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError

pytestmark = pytest.mark.usefixtures("both_transports")


def test_an_unknown_type_is_refused_with_the_known_ones():
    with pytest.raises(CommError, match="float8") as caught:
        TransferSettings("float8")
    assert "bfloat16" in caught.value.hint


def test_one_rank_has_nothing_to_arrange():
    assert isinstance(make_sum(SingleCommunicator(), TransferSettings(hierarchical=True)), PlainSum)


@pytest.mark.parametrize(
    ("hosts", "kind"),
    [
        (("a", "a", "b", "b"), HierarchicalSum),
        (("a", "a", "a", "a"), PlainSum),
        (("a", "b", "c", "d"), PlainSum),
    ],
)
def test_only_several_ranks_on_several_hosts_make_a_hierarchy(hosts, kind):
    def work(ranks):
        return type(make_sum(ranks, TransferSettings(hierarchical=True, hosts=hosts)))

    assert run_ranks(4, work) == [kind] * 4


def test_hosts_are_asked_for_where_none_are_given():
    def work(ranks):
        ranks.host = f"host{ranks.rank // 2}"
        summing = make_sum(ranks, TransferSettings(hierarchical=True))
        part = numpy.full(3, 10.0**ranks.rank)
        summing(0, part)
        return type(summing), part.tolist()

    assert run_ranks(4, work) == [(HierarchicalSum, [1111.0] * 3)] * 4
