import numpy
import pytest

from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.exchange.sums.hierarchy import number_hosts
from mgcaffe.comm.exchange.sums.make import make_sum
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import CommError

pytestmark = pytest.mark.usefixtures("both_transports")


def test_hosts_count_in_the_order_of_their_first_ranks():
    def work(ranks):
        return number_hosts(ranks, ["b", "a", "b", "c"])

    assert run_ranks(4, work) == [[0, 1, 0, 2]] * 4


def test_a_map_of_another_size_is_refused():
    def work(ranks):
        with pytest.raises(CommError, match="3 hosts are named for 2 ranks"):
            number_hosts(ranks, ["a", "b", "c"])

    run_ranks(2, work)


@pytest.mark.parametrize("hosts", ["aabb", "abab", "aaab", "abcbb"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_all_ranks_get_the_same_bits_of_the_right_sum(hosts, kind):
    pytest.importorskip("torch")
    transfer = TransferSettings(kind, hierarchical=True, hosts=tuple(hosts))

    def work(ranks):
        own = numpy.random.default_rng(ranks.rank).normal(size=1000).astype(numpy.float32)
        flat = own.copy()
        summing = make_sum(ranks, transfer)
        summing(0, flat[:400])
        summing(400, flat[400:])
        return own, flat

    results = run_ranks(len(hosts), work)
    assert len({flat.tobytes() for _, flat in results}) == 1
    exact = sum(own.astype(float) for own, _ in results)
    tolerance = 1e-5 if kind == "float32" else 2.0**-6
    numpy.testing.assert_allclose(results[0][1], exact, atol=tolerance * numpy.abs(exact).max())


def test_within_a_host_nothing_is_rounded():
    """Only what crosses the link between hosts travels in 16 bits."""
    pytest.importorskip("torch")
    transfer = TransferSettings("bfloat16", hierarchical=True, hosts=("a", "a", "b", "b"))

    def work(ranks):
        part = numpy.array([[1.0, 2.0**-12, 3.0, 1 - 2.0**-12][ranks.rank]], dtype=numpy.float32)
        summing = make_sum(ranks, transfer)
        summing(0, part)
        return part.tolist()

    # Host a: 1 + 2^-12 -> 1; host b: 4 - 2^-12 -> 4; had each rank rounded, 2^-12 would have survived.
    assert run_ranks(4, work) == [[5.0]] * 4
