"""The surface of pycaffe: what scripts written for Caffe's Python interface use.

    import mgcaffe.pycaffe as caffe

is all that such a script changes; `python -m mgcaffe.pycaffe script.py` runs one unchanged. docs/pycaffe.md lists
what works and what differs.
"""

import sys
from typing import TYPE_CHECKING, NoReturn

from mgcaffe.engine.user_layer import UserLayer as Layer
from mgcaffe.pycaffe import coord_map, draw, io, proto
from mgcaffe.pycaffe.blob import Blob
from mgcaffe.pycaffe.blob import BlobVec as BlobVec
from mgcaffe.pycaffe.blob import RawBlobVec as RawBlobVec
from mgcaffe.pycaffe.classifier import Classifier
from mgcaffe.pycaffe.detector import Detector
from mgcaffe.pycaffe.mode import (
    TEST,
    TRAIN,
    Timer,
    has_nccl,
    init_log,
    layer_type_list,
    log,
    set_device,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from mgcaffe.pycaffe.nccl import NCCL
from mgcaffe.pycaffe.net import Net
from mgcaffe.pycaffe.net_spec import NetSpec, layers, params, to_proto
from mgcaffe.pycaffe.problems import removed
from mgcaffe.pycaffe.solvers import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
    Solver,
    get_solver,
    solver_class,
)

__version__ = "1.0.0"
"""The release of Caffe whose interface this is, since scripts compare it."""

__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "Timer",
    "coord_map",
    "draw",
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "params",
    "proto",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_class",
    "solver_count",
    "solver_rank",
    "to_proto",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        """Say what became of a function that Caffe had before its release 1.0."""
        text = f"module '{__name__}'"
        if name.startswith("set_phase_") and (error := removed(text, name)):
            raise error
        raise AttributeError(f"{text} has no attribute '{name}'", name=name, obj=sys.modules[__name__])
