"""`engine test`: scores a net on its test data (Caffe: `caffe test`, in its lines).

Under mpirun the batches go to the ranks in round-robin order, and rank 0 prints them in order at the end. Of a layer
that judges a whole test, such as AUC, the score over all batches stands in the place of the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.engine.shard import TestShard
from mgcaffe.errors import EXIT_OK
from mgcaffe.tools.flags.computing_flags import add_machine_flags, add_precision_flag
from mgcaffe.tools.flags.net_flags import add_model_flags
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, require, words_list
from mgcaffe.tools.listeners.glog import log_line, number, start_logging
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.net import Net

# One batch: its number, its loss, and the outputs' numbers, each with the name of its blob.
Batch = tuple[int, float, list[tuple[str, float]]]


def parser() -> FlagParser:
    """Return the flags of `engine test`."""
    flags = FlagParser(
        "test",
        "Score a net on its test data.",
        subject="model",
        epilog="example:\n  engine test models/lenet/train_val.prototxt --weights lenet.caffemodel",
    )
    add_model_flags(flags)
    flags.flag("weights", "the weights to score, files separated by commas", type=words_list, metavar="FILES")
    flags.flag("iterations", "batches to run", type=number_from(1), default=50, metavar="N")
    add_machine_flags(flags)
    add_precision_flag(flags)
    return flags


def run(flags: Flags, session: Session) -> int:
    """Run the batches and print each, the mean loss and the means."""
    with loading():
        from mgcaffe.solvers.carried_state import carries_state
        from mgcaffe.solvers.exchange.ranks import Ranks
        from mgcaffe.solvers.testing.pass_scores import PassScores
        from mgcaffe.tools.model import build_net
        from mgcaffe.tools.running.loaded_net import load
        from mgcaffe.tools.running.process import dtype_named, pick_device, pick_precision, set_threads, speed_up_memory

    model = require(flags, "model", "the net")
    weights = require(flags, "weights", "a file of weights") and flags.weights
    communicator = session.connect()
    start_logging(speaks=communicator.rank == 0)
    speed_up_memory()
    set_threads(flags.threads, communicator.local_size)
    device = pick_device(flags.gpu, communicator.local_rank, communicator.local_size)
    log_line("Use CPU." if device.type == "cpu" else f"Use GPU with device ID {device.index}", "caffe.cpp:275")
    shard = TestShard(communicator.rank, communicator.size, flags.iterations)
    dtype = dtype_named(flags.dtype)
    precision = pick_precision(flags.precision, dtype, device)
    if flags.precision:
        log_line(f"Products are computed in {flags.precision}.")
    net = build_net(
        flags, model, "TEST", shard=shard, keep_blobs=False, dtype=dtype, device=device, precision=precision
    )
    try:
        load(net, weights)
        log_line(f"Running for {flags.iterations} iterations.", "caffe.cpp:281")
        if carries_state(net.param):
            # A state that goes on from batch to batch needs all batches: each rank runs them, and rank 0's count.
            shard = net.context.shard = TestShard(0, 1, flags.iterations)
        alone = communicator.size == 1
        pass_scores = PassScores(net)
        mine = [score(net, number_of_batch, alone) for number_of_batch in _batches(shard)]
        weights_of_loss = net.loss_weights
        whole = pass_scores.finish(Ranks(communicator) if shard.size > 1 else None)
    finally:
        net.close()
    gathered = communicator.gather(mine if shard.rank == communicator.rank else [])
    if gathered is not None:
        batches = sorted(batch for part in gathered for batch in part)
        if not alone:
            for batch in batches:
                _log_batch(batch)
        report(batches, weights_of_loss, whole)
    return EXIT_OK


def _batches(shard: TestShard) -> range:
    return range(shard.rank, shard.test_iter, shard.size)


def score(net: Net, batch_number: int, log: bool = False) -> Batch:
    """Run one batch."""
    loss = net.forward()
    values = [(name, value) for name, blob in net.output_values() for value in blob.flatten().tolist()]
    batch = (batch_number, loss, values)
    if log:
        _log_batch(batch)
    return batch


def _log_batch(batch: Batch) -> None:
    for name, value in batch[2]:
        log_line(f"Batch {batch[0]}, {name} = {number(value)}", "caffe.cpp:304")


def report(batches: list[Batch], loss_weights: dict[str, float], whole: dict[str, float]) -> None:
    """Log the mean loss and each output's mean over the batches, or its score over all of them where `whole` has it."""
    count = len(batches)
    log_line(f"Loss: {number(sum(loss for _, loss, _ in batches) / count)}", "caffe.cpp:309")
    for index, (name, _) in enumerate(batches[0][2]):
        mean = whole.get(name, sum(values[index][1] for _, _, values in batches) / count)
        weight = loss_weights.get(name, 0.0)
        weighted = f" (* {number(weight)} = {number(weight * mean)} loss)" if weight else ""
        log_line(f"{name} = {number(mean)}{weighted}", "caffe.cpp:321")
