"""Layers whose values are computed a second time in backward instead of being kept (`recompute`)."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine import Net
from mgcaffe.engine.graph.recomputation import OFF
from mgcaffe.errors import NetError, SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.events import Emit, Noted, Warned
from mgcaffe.solvers.source import locate


def recompute(param: SolverParameter, source: Source | None, nets: Sequence[Net], emit: Emit) -> None:
    """Have training nets compute again what the solver's field `recompute` says.

    Args:
        param: the SolverParameter.
        source: where its fields stand.
        nets: the training nets of this rank, all alike.
        emit: takes the events.

    Raises:
        SolverError: the field is no setting, or names layers that do not exist.
        NetError: a layer that it names cannot run a second time.
    """
    setting = param.recompute
    if setting in ("", OFF):
        return
    if nets[0].keep_blobs:
        emit(
            Warned(
                "recompute has no effect: all blobs are kept readable, as debug_info, pycaffe and a training net in the"
                " TEST phase need them"
            )
        )
        return
    try:
        alike = [net.recompute(setting) for net in nets]
    except NetError as error:
        if error.location is not None:
            raise
        raise SolverError(error.message, location=locate(source, "recompute"), hint=error.hint) from None
    found = alike[0]
    if not found.segments:
        emit(Warned(f"recompute: nothing to compute again: backward needs no value that '{setting}' could leave out"))
        return
    before, after = (size / 2**20 for size in (found.bytes_before, found.bytes_after))
    emit(
        Noted(
            f"recompute: backward computes {found.layers} of {len(nets[0].layers)} layers again, in "
            f"{len(found.segments)} segment(s); about {after:.1f} MiB of values are kept for it instead of {before:.1f}"
        )
    )
