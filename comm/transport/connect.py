"""Connects a process to the ranks of its job, which is the first thing that it does."""

from __future__ import annotations

from mgcaffe.comm.transport.communicator import Communicator, SingleCommunicator
from mgcaffe.comm.transport.environment import Launch, detect
from mgcaffe.errors import CommError


def connect() -> Communicator:
    """Return the communicator of all ranks of this job; the first thing a rank does, and once only.

    Raises:
        CommError: the launcher cannot be understood, mpi4py is missing although mpirun started several ranks, MPI
            lacks thread support, or it sees another rank or size than the launcher; under torchrun: the ranks cannot
            find each other.
    """
    launch = detect()
    if launch.size == 1:
        return SingleCommunicator()
    if not launch.has_mpi:
        from mgcaffe.comm.transport.process_group import LONG_S, ProcessGroupCommunicator
        from mgcaffe.comm.transport.rendezvous import place_of_environment

        return ProcessGroupCommunicator(place=place_of_environment(), timeout_s=LONG_S)
    from mgcaffe.comm.transport.mpi import MpiCommunicator
    from mgcaffe.comm.transport.mpi_library import library_name, load_mpi

    mpi = load_mpi()
    check_place(launch, mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size(), library_name(mpi))
    communicator = MpiCommunicator(mpi.COMM_WORLD.Dup(), launcher=launch.launcher)
    communicator.set_busy_polling(True)
    return communicator


def check_place(launch: Launch, rank: int, size: int, library: str) -> None:
    """Raise CommError unless MPI's rank and size are the launcher's."""
    if (rank, size) != (launch.rank, launch.size):
        raise CommError(
            f"the launcher ({launch.launcher}) says rank {launch.rank} of {launch.size}, but mpi4py's MPI "
            f"library ({library}) says rank {rank} of {size}",
            hint="use the mpirun that belongs to that library, or with Slurm: srun --mpi=pmix",
        )
