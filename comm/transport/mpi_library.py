"""The MPI library of this process: loaded through mpi4py where there are several ranks, asked its name, and left."""

from __future__ import annotations

import functools
import os
from typing import Any, NoReturn

from mgcaffe.errors import CommError


def load_mpi() -> Any:
    """Import mpi4py, which initialises MPI for several threads, and return its MPI module."""
    _set_defaults()
    try:
        import mpi4py

        mpi4py.rc.thread_level = "multiple"
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommError(
            f"more than one rank was started, and mpi4py is missing or finds no MPI library ({error})",
            hint="pip install 'mgcaffe[mpi]'",
        ) from None
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise CommError(
            f"{library_name(MPI)} allows MPI calls from one thread only; gradients are reduced on a second",
            hint="use an MPI library built with thread support (MPI_THREAD_MULTIPLE)",
        )
    return MPI


def _set_defaults() -> None:
    """Choose what Open MPI and UCX choose badly for us, wherever neither the user nor mpirun has chosen.

    Open MPI's nonblocking all-reduce takes a tree; reducing scattered parts and gathering them (Rabenseifner) takes
    a third of the time at 16 MB on two ranks, and two thirds on four. Opening libfabric costs 1 s at
    start and serves one-sided transfers only, so within one host it is left out. UCX takes SIGHUP away from whoever
    handles it, for a debugging mode of its own.
    """
    os.environ.setdefault("UCX_DEBUG_SIGNO", "0")
    os.environ.setdefault("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "rabenseifner")
    if os.environ.get("OMPI_COMM_WORLD_SIZE", "0") == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")


def library_name(mpi: Any) -> str:
    """Return the MPI library's name and version, such as `Open MPI v5.0.11`."""
    return str(mpi.Get_library_version()).split(",")[0].split("\n")[0].strip("\x00 ")


def refuse_finalize() -> None:
    """Make `MPI.Finalize` an error for everybody else: it would wait for ranks that are training.

    mpi4py leaves MPI when the process exits.
    """
    mpi = load_mpi()

    @functools.wraps(mpi.Finalize)
    def refuse() -> NoReturn:
        raise CommError("MPI.Finalize was called during the run", hint="mgcaffe leaves MPI itself, at the end")

    mpi.Finalize = refuse


def finalize() -> None:
    """Leave MPI now, if this process has joined it; waits for the other ranks to leave it."""
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized():
        getattr(MPI.Finalize, "__wrapped__", MPI.Finalize)()


def world_place() -> tuple[int, int]:
    """Return (rank, size) as MPI itself sees them; for launchers that don't say.

    Raises:
        CommError: mpi4py is missing.
    """
    world = load_mpi().COMM_WORLD
    return world.Get_rank(), world.Get_size()
