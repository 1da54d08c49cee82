"""What Hogwild's workers need of a solver and its net; what they cannot do is refused before training."""

from __future__ import annotations

import os

from mgcaffe.engine import Net
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import NanEffect, SolverParameter, Source
from mgcaffe.solvers.source import locate

_MANY = 64
_FIELD = "comm_param.hogwild_threads"
_FILLED_BY_A_PROGRAM = ("Input", "MemoryData")


def check_workers(param: SolverParameter, source: Source | None, ranks: int) -> list[str]:
    """Check the fields that say how many workers there are.

    Args:
        param: the SolverParameter message.
        source: where its fields stand, if that is known.
        ranks: how many ranks average their gradients in step.

    Returns:
        Warnings.

    Raises:
        SolverError: there is no such number of workers, or something else in the solver needs a single one.
    """
    workers = param.comm_param.hogwild_threads
    if workers < 1:
        raise SolverError(f"hogwild_threads is {workers} and must be at least 1", location=locate(source, _FIELD))
    most = max(_MANY, 2 * (os.cpu_count() or 1))
    if workers > most:
        raise SolverError(
            f"hogwild_threads is {workers}, and a trainer on this machine has at most {most} workers, each with a net"
            " of its own",
            location=locate(source, _FIELD),
            hint="train with about as many workers as the trainer has cores",
        )
    if workers == 1:
        return ["hogwild_lock has no effect: hogwild_threads is 1"] if param.comm_param.hogwild_lock else []
    if ranks > 1:
        raise SolverError(
            f"hogwild_threads is {workers}, and {ranks} ranks average their gradients: in step there is one update for"
            " all of them, and workers make their own",
            location=locate(source, _FIELD),
            hint="set sync (--sync=shadow_ma), so that each rank trains a replica, or remove hogwild_threads",
        )
    if param.nan_effect == NanEffect.Value("SNAPSHOT"):
        raise SolverError(
            f"nan_effect is SNAPSHOT, and hogwild_threads is {workers}: a snapshot needs all workers after as many"
            " iterations, and one whose loss is not finite cannot get there",
            location=locate(source, "nan_effect"),
            hint="set nan_effect: STOP or SKIP, or train with one worker",
        )
    return []


def check_net_of_workers(param: SolverParameter, source: Source | None, net: Net) -> None:
    """Make sure that several workers can train a net, if there are several.

    Raises:
        SolverError: it is on a GPU.
        NetError: a layer gets its values from the program that runs the net, which fills one net alone.
    """
    workers = param.comm_param.hogwild_threads
    if workers == 1:
        return
    if net.device.type != "cpu":
        raise SolverError(
            f"hogwild_threads is {workers}, and training runs on a GPU: workers are threads on the CPU's cores, and a"
            " GPU would run their operations one after the other",
            location=locate(source, _FIELD),
            hint="train on the CPU (solver_mode: CPU), or remove hogwild_threads",
        )
    for layer in net.layers:
        if layer.type in _FILLED_BY_A_PROGRAM:
            layer.fail(
                f"hogwild_threads is {workers}, and this layer's values are given to one net by a program: the other"
                " workers would have none",
                hint="train with one worker, or read the records with a data layer",
            )
