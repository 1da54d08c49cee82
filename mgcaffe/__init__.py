"""The Python entry: nets and solvers of Caffe's prototxt files.

    import mgcaffe

    with mgcaffe.Solver(mgcaffe.read_solver("solver.prototxt")) as solver:
        solver.solve()

| name                         | what it is                                                                     |
|------------------------------|--------------------------------------------------------------------------------|
| `Net`                        | a net that runs forward and backward (engine/net.py)                           |
| `Solver`                     | trains a net as a SolverParameter says (solvers/solver.py)                     |
| `read_net`, `read_solver`    | read a prototxt file and return its message (prototxt/files.py)                |
| `convert`                    | convert a model to another format, with proof (tools/convert/conversion.py)    |
| `write_lmdb`                 | write the LMDB of any dataset of images (engine/data/dataset_writer.py)        |
| `Schedule`                   | how gradients are merged for their all-reduce (comm/planning/schedules.py)     |
| `EngineError` and the others | every error that is raised on purpose (errors/__init__.py)                     |

Names are loaded on first use, so that importing this package loads neither torch nor MPI. The packages behind them
are imported by their full names (`import mgcaffe.prototxt`); scripts written for pycaffe use `mgcaffe.pycaffe`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcaffe.comm.planning.schedules import Schedule
    from mgcaffe.engine.data.dataset_writer import write_lmdb
    from mgcaffe.engine.net import Net
    from mgcaffe.errors import (
        CommError,
        DataError,
        EngineError,
        NetError,
        NotFiniteError,
        PeerFailure,
        PrototxtError,
        RankDisagreement,
        SnapshotError,
        SolverError,
        UsageError,
    )
    from mgcaffe.prototxt.files import read_net, read_solver
    from mgcaffe.solvers.solver import Solver
    from mgcaffe.tools.convert.conversion import convert

    __version__: str

_NAMES_OF_MODULE = {
    "comm.planning.schedules": ("Schedule",),
    "engine.data.dataset_writer": ("write_lmdb",),
    "engine.net": ("Net",),
    "errors": (
        "CommError",
        "DataError",
        "EngineError",
        "NetError",
        "NotFiniteError",
        "PeerFailure",
        "PrototxtError",
        "RankDisagreement",
        "SnapshotError",
        "SolverError",
        "UsageError",
    ),
    "prototxt.files": ("read_net", "read_solver"),
    "solvers.solver": ("Solver",),
    "tools.convert.conversion": ("convert",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}

__all__ = [
    "CommError",
    "DataError",
    "EngineError",
    "Net",
    "NetError",
    "NotFiniteError",
    "PeerFailure",
    "PrototxtError",
    "RankDisagreement",
    "Schedule",
    "SnapshotError",
    "Solver",
    "SolverError",
    "UsageError",
    "__version__",
    "convert",
    "read_net",
    "read_solver",
    "write_lmdb",
]


def __getattr__(name: str) -> Any:
    """Load a name on its first use; it is an ordinary attribute from then on."""
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version(__name__)
    elif name in _MODULE_OF:
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
