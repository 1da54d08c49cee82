import numpy

from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.exchange.synchronizer import NoSynchronizer
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import make_plan


def test_one_rank_synchronizes_nothing():
    sync = NoSynchronizer()
    segments = [Segment("conv1", 0, 4), Segment("relu", 4, 0), Segment("conv2", 4, 3)]
    sync.start(numpy.zeros(1), segments)
    sync.begin_iteration()
    sync.gradients_ready(17)
    sync.set_plan(make_plan("single", segments, ready_times([1, 1, 1]), AffineCost(1.5, 0.1), element_bytes=4))
    assert sync.wait() == CommReport(0.0, 0.0, 0.0, [])
    sync.close()
