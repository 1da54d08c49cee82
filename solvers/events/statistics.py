"""Events of `debug_info`: how large blobs and parameters are."""

from __future__ import annotations

from dataclasses import dataclass

from mgcaffe.solvers.events import Event


@dataclass(frozen=True)
class BlobStatistics(Event):
    """How large a blob is, in an iteration that `debug_info` shows (Caffe: `[Forward] Layer conv1, top blob ...`).

    Attributes:
        step: `Forward`, `Backward` or `Update`.
        layer: the layer's name.
        blob: `top blob`, `bottom blob`, `param blob` or `param`.
        name: the blob's name, or the parameter's name or number.
        data, diff: mean absolute value, and that of the gradient (in an update, of the step); None if not shown.
        owner: layer and name of the parameter that this one shares, if any.
    """

    step: str
    layer: str
    blob: str
    name: str
    data: float | None = None
    diff: float | None = None
    owner: tuple[str, str] | None = None


@dataclass(frozen=True)
class NetStatistics(Event):
    """Norms over all parameters after a backward pass, likewise (`[Backward] All net params (data, diff): ...`)."""

    data_l1: float
    diff_l1: float
    data_l2: float
    diff_l2: float
