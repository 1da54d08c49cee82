"""Which transport gradients take, and that the exchange works over one that is not the ranks' own."""

import numpy
import pytest
import torch

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.exchange.transports import choose_transport, device_name, open_channel, waits_in_one_way
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.comm.tuning.calibration import measure_allreduce_costs
from mgcaffe.errors import UsageError


class Two(SingleCommunicator):
    """Rank 0 of two ranks of one host that say what the test says."""

    size, host = 2, "node1"

    def __init__(self, own, others):
        self.transport, self._others = own, others

    def allgather(self, value):
        return [value, self._others]


def choose(asked, own, mine, other, *, nccl=True, plain=True):
    ranks = Two(own, (f"node1 {other}" if other else "", nccl))
    ranks.host = "node1"
    return choose_transport(asked, ranks, mine, is_plain=plain, has_nccl=nccl)


@pytest.mark.parametrize(
    ("asked", "own", "mine", "other", "options", "chosen"),
    [
        ("auto", "mpi", "", "", {}, "mpi"),
        ("auto", "gloo", "", "", {}, "gloo"),
        ("auto", "mpi", "A", "B", {}, "nccl"),
        ("auto", "gloo", "A", "B", {}, "nccl"),
        ("auto", "mpi", "A", "A", {}, "mpi"),
        ("auto", "mpi", "A", "", {}, "mpi"),
        ("auto", "gloo", "A", "B", {"nccl": False}, "gloo"),
        ("auto", "mpi", "A", "B", {"plain": False}, "mpi"),
        ("mpi", "mpi", "A", "B", {}, "mpi"),
        ("gloo", "mpi", "A", "B", {}, "gloo"),
        ("gloo", "gloo", "", "", {}, "gloo"),
        ("nccl", "mpi", "A", "B", {}, "nccl"),
    ],
)
def test_auto_takes_nccl_on_gpus_where_it_can_and_else_the_ranks_own(asked, own, mine, other, options, chosen):
    assert choose(asked, own, mine, other, **options) == chosen


@pytest.mark.parametrize(
    ("asked", "own", "mine", "other", "options", "words"),
    [
        ("mpi", "gloo", "", "", {}, "needs ranks that were started by mpirun, and torchrun"),
        ("nccl", "mpi", "", "", {}, "ranks 0-1 compute on the CPU"),
        ("nccl", "mpi", "A", "", {}, "rank 1 compute on the CPU"),
        ("nccl", "mpi", "A", "B", {"nccl": False}, "PyTorch was built without NCCL"),
        ("nccl", "mpi", "A", "A", {}, "several ranks share a GPU"),
        ("nccl", "mpi", "A", "B", {"plain": False}, "16-bit gradients"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(asked, own, mine, other, options, words):
    with pytest.raises(UsageError, match=words):
        choose(asked, own, mine, other, **options)


def test_a_cpu_has_no_name_of_a_gpu():
    assert device_name(torch.device("cpu")) == ""


def test_gradients_travel_over_gloo_beside_the_ranks_own_transport_with_the_same_bits():
    segments = [Segment("a", 0, 70_001), Segment("b", 70_001, 30)]
    plan = make_plan("wfbp", segments, [1e-3, 0.0], AffineCost(1e-4, 1e-9), element_bytes=4)

    def work(ranks):
        results = []
        for transport in ("", "gloo"):
            flat = numpy.random.default_rng(ranks.rank).normal(size=70_031).astype(numpy.float32)
            sync = MergedAllReduce(ranks, plan, transfer=TransferSettings(transport=transport))
            sync.start(flat, segments)
            sync.begin_iteration()
            sync.gradients_ready(1)
            sync.gradients_ready(0)
            sync.wait()
            sync.close()
            results.append(flat.tobytes())
        channel = open_channel(ranks, "gloo")
        assert (channel.transport, channel.rank, channel.size) == ("gloo", ranks.rank, ranks.size)
        assert waits_in_one_way("", channel) and not waits_in_one_way("", ranks)
        costs = measure_allreduce_costs(
            ranks, numpy.ones(1000, numpy.float32), budget_s=0.02, transfer=TransferSettings(transport="gloo")
        )
        assert costs.polled == costs.busy_polled == costs.blocking
        return results

    (own, gloo), (others, _) = run_ranks(2, work)
    assert own == gloo == others
