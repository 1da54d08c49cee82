"""A job that fails in the way its first argument names; run under mpirun by test_guard.py."""

from __future__ import annotations

import os
import sys
import time

import numpy

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.connect import connect
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.errors import NetError

way = sys.argv[1]
connected: list[Communicator] = []


def main() -> int:
    if way == "before_connect_all":
        raise NetError("unknown bottom blob 'fc8'")
    if way == "before_connect_one" and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        raise NetError("no such file 'net.prototxt'")
    ranks = connect()
    connected.append(ranks)
    last = ranks.rank == ranks.size - 1
    buffer = numpy.ones(1000)
    ranks.allreduce(buffer)
    if way == "fine":
        print(f"sum {buffer[0]}")
        return 0
    if way == "all_alike":
        raise NetError("unknown bottom blob 'fc8'")
    if way == "all_different":
        raise NetError(f"cannot read mean file of rank {ranks.rank}")
    if way == "handshake":
        handshake(ranks, {"net": f"layer\nnum_output: {20 + 10 * last}\n", "version": "1"})
    if way == "all_return_75":
        return 75
    if way == "late" and last:
        time.sleep(1.0)
        raise NetError("after the others had finished")
    if way == "late":
        return 0
    if last:
        if way == "raises_engine_error":
            raise NetError("cannot reshape blob 'data'")
        if way == "raises_internal":
            raise ZeroDivisionError("a bug")
        if way == "system_exit":
            sys.exit(3)
        if way == "interrupt":
            raise KeyboardInterrupt
        if way == "killed":
            os.kill(os.getpid(), 9)
    if way == "in_backward":
        flat = numpy.ones(100, dtype=numpy.float32)
        segments = [Segment("a", 0, 50), Segment("b", 50, 50)]
        sync = MergedAllReduce(
            ranks,
            make_plan("wfbp", segments, ready_times([1, 1]), AffineCost(1, 1), element_bytes=4),
        )
        sync.start(flat, segments)
        sync.begin_iteration()
        sync.gradients_ready(1)
        if last:
            raise NetError("backward of layer 'conv1'")
        sync.gradients_ready(0)
        sync.wait()
    if way == "computing":
        time.sleep(60)
    ranks.barrier()
    return 0


sys.exit(run_guarded(main, lambda: connected[0] if connected else None))
