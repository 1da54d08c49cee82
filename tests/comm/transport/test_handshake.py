import pytest

from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import RankDisagreement

pytestmark = pytest.mark.usefixtures("both_transports")


def disagreement(size: int, facts_of) -> str:
    def work(ranks):
        with pytest.raises(RankDisagreement) as caught:
            handshake(ranks, facts_of(ranks.rank))
        assert caught.value.exit_code == 76
        return str(caught.value)

    messages = run_ranks(size, work)
    assert len(set(messages)) == 1
    return messages[0]


def test_equal_facts_pass():
    handshake(SingleCommunicator(), {"net": "text"})
    run_ranks(3, lambda ranks: handshake(ranks, {"net": "text", "size": "3"}))


def test_a_short_fact_shows_every_value():
    message = disagreement(4, lambda rank: {"net": "same", "type": "float64" if rank == 2 else "float32"})
    assert "same type:" in message and "net" not in message
    assert "ranks 0-1,3: float32" in message and "rank 2: float64" in message


def test_a_long_text_shows_the_first_differing_line():
    net = [f"line {i}" for i in range(1000)]
    other = [*net[:500], "line of my own", *net[501:]]
    message = disagreement(2, lambda rank: {"net": "\n".join(other if rank else net)})
    assert "net, line 501" in message and "rank 0: line 500" in message and "rank 1: line of my own" in message
    assert len(message) < 300


def test_a_text_that_ends_early_is_reported():
    message = disagreement(2, lambda rank: {"net": "a\nb" if rank else "a\nb\nc"})
    assert "line 3" in message and "rank 0: c" in message and "rank 1: (the text has ended)" in message


def test_a_fact_that_one_rank_lacks_is_reported():
    message = disagreement(2, lambda rank: {"net": "a"} if rank else {"net": "a", "version": "1"})
    assert "rank 1: (not stated)" in message


def test_several_differing_facts_are_listed_in_order():
    message = disagreement(2, lambda rank: {"solver": str(rank), "same": "", "net": "x" * 500 + str(rank)})
    assert "same solver and net:" in message
    assert message.index("  solver") < message.index("  net") and "..." in message
