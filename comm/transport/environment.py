"""Reads from the environment which launcher started this process, its rank and the world size.

| launcher   | rank                   | size                   | within the host                          |
|------------|------------------------|------------------------|------------------------------------------|
| torchrun   | RANK                   | WORLD_SIZE             | LOCAL_RANK, LOCAL_WORLD_SIZE             |
| Open MPI   | OMPI_COMM_WORLD_RANK   | OMPI_COMM_WORLD_SIZE   | OMPI_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE  |
| MVAPICH2   | MV2_COMM_WORLD_RANK    | MV2_COMM_WORLD_SIZE    | MV2_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE   |
| MPICH, PMI | PMI_RANK               | PMI_SIZE               | MPI_LOCALRANKID, MPI_LOCALNRANKS (Hydra) |
|            |                        |                        | PMI_LOCAL_RANK, PMI_LOCAL_SIZE (PALS)    |
| Slurm      | SLURM_PROCID           | SLURM_STEP_NUM_TASKS   | SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE |
| PMIx       | PMIX_RANK              | MPI itself is asked    |                                          |

The order is the precedence. mpirun and srun may start torchrun on every host, whose ranks then carry their variables
too; torchrun counts where TORCHELASTIC_RUN_ID is set and it has started several ranks. Other launchers of
torch.distributed, which set LOCAL_RANK, come last. Open MPI and Hydra start their daemons through srun, so that
Slurm's variables in their ranks describe the daemons. Slurm's variables count only inside a job step: the shell of
`sbatch` and of `salloc` carries SLURM_PROCID=0 and SLURM_NTASKS too, and is one process.

A launcher that cannot be understood is an error: N processes that each believe to be alone would train N
times and write one snapshot over another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mgcaffe.errors import CommError


@dataclass(frozen=True)
class Launch:
    """The place of this process in the job.

    Attributes:
        rank: 0 to size - 1.
        size: the number of ranks.
        local_rank: the rank within the host, None where the launcher doesn't say (the communicator finds
            out).
        local_size: the number of ranks on the host, or None likewise.
        launcher: "none", "openmpi", "mvapich2", "pmi", "slurm", "pmix" or "torchrun" (which stands for every launcher
            of torch.distributed).
    """

    rank: int
    size: int
    local_rank: int | None
    local_size: int | None
    launcher: str

    @property
    def has_mpi(self) -> bool:
        """Whether the launcher is MPI's."""
        return self.launcher not in ("none", "torchrun")


@dataclass(frozen=True)
class _Dialect:
    """The variables in which one launcher speaks; several names mean: the first that is set."""

    launcher: str
    rank: str
    size: str
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]


_TORCHRUN = _Dialect("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",))

_DIALECTS = (
    _Dialect(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Dialect(
        "mvapich2",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Dialect(
        "pmi",
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    ),
)

# Launchers of other libraries: name, its size variable, and a variable that only it sets.
_FOREIGN = (
    ("horovodrun", "HOROVOD_SIZE", "HOROVOD_RANK"),
    ("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
)

# Slurm numbers the steps that are no job steps (batch shell, extern, interactive shell) from the top down.
_FIRST_SPECIAL_SLURM_STEP = 0xFFFFFFF0

_USE_MPIRUN = "start the ranks with `mpirun -n N` (or srun --mpi=pmix, or torchrun)"


def detect(environ: Mapping[str, str] | None = None) -> Launch:
    """Return this process's place in the job.

    Args:
        environ: the environment to read, `os.environ` by default.

    Raises:
        CommError: a rank without a size, values that are no numbers or contradict each other, a launcher of another
            kind, or PMIx alone (which doesn't say the size) without mpi4py to ask.
    """
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ and (launch := _read(_TORCHRUN, environ)) and launch.size > 1:
        return launch
    claims = [claim for dialect in _DIALECTS if (claim := _read(dialect, environ))]
    several = [claim for claim in claims if claim.size > 1]
    for other in several[1:]:
        if (other.rank, other.size) != (several[0].rank, several[0].size):
            raise CommError(
                f"two launchers contradict each other: {_describe(several[0])}, {_describe(other)}",
                hint="start the job from a shell that was not itself started by mpirun, mpiexec or srun",
            )
    if several or claims:
        return (several or claims)[0]
    if launch := _read_slurm(environ):
        return launch
    if "PMIX_RANK" in environ:
        return _ask_mpi()
    _refuse_foreign(environ)
    if "LOCAL_RANK" in environ and environ.get("WORLD_SIZE", "1") != "1" and (launch := _read(_TORCHRUN, environ)):
        return launch
    return Launch(0, 1, 0, 1, "none")


def _describe(launch: Launch) -> str:
    return f"{launch.launcher} says rank {launch.rank} of {launch.size}"


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CommError(f"the launcher's variable {name}={text!r} is not a number", hint=_USE_MPIRUN) from None


def _first_integer(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if (value := _integer(environ, name)) is not None), None)


def _checked(launch: Launch, rank_name: str, size_name: str) -> Launch:
    if not 0 <= launch.rank < launch.size:
        raise CommError(
            f"{rank_name}={launch.rank} and {size_name}={launch.size} contradict each other", hint=_USE_MPIRUN
        )
    return launch


def _read(dialect: _Dialect, environ: Mapping[str, str]) -> Launch | None:
    rank = _integer(environ, dialect.rank)
    size = _integer(environ, dialect.size)
    if rank is None and size is None:
        return None
    if rank is None or size is None:
        present, absent = (dialect.rank, dialect.size) if size is None else (dialect.size, dialect.rank)
        raise CommError(f"the launcher set {present} but not {absent}", hint=_USE_MPIRUN)
    local_rank = _first_integer(environ, dialect.local_rank)
    local_size = _first_integer(environ, dialect.local_size)
    if size == 1:
        local_rank, local_size = 0, 1
    launch = Launch(rank, size, local_rank, local_size, dialect.launcher)
    return _checked(launch, dialect.rank, dialect.size)


def _read_slurm(environ: Mapping[str, str]) -> Launch | None:
    step = _first_integer(environ, ("SLURM_STEP_ID", "SLURM_STEPID"))
    if step is None or step >= _FIRST_SPECIAL_SLURM_STEP or "SLURM_PROCID" not in environ:
        return None
    rank = _integer(environ, "SLURM_PROCID")
    size = _first_integer(environ, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    if rank is None or size is None:
        raise CommError("Slurm set SLURM_PROCID but not SLURM_STEP_NUM_TASKS", hint=_USE_MPIRUN)
    tasks_per_node = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    node = _integer(environ, "SLURM_NODEID")
    counts = _expand_tasks_per_node(tasks_per_node)
    local_size = counts[node] if node is not None and 0 <= node < len(counts) else None
    launch = Launch(rank, size, _integer(environ, "SLURM_LOCALID"), local_size, "slurm")
    return _checked(launch, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


def _expand_tasks_per_node(text: str) -> list[int]:
    """Expand Slurm's "2(x3),1" to [2, 2, 2, 1]; anything else gives an empty list."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _ask_mpi() -> Launch:
    from mgcaffe.comm.transport.mpi_library import world_place

    rank, size = world_place()
    return Launch(rank, size, None, None, "pmix")


def _refuse_foreign(environ: Mapping[str, str]) -> None:
    for name, size_name, marker in _FOREIGN:
        if marker in environ and environ.get(size_name, "1") != "1":
            raise CommError(
                f"started by {name} ({size_name}={environ[size_name]}), which is neither MPI's launcher nor"
                " torch.distributed's",
                hint=_USE_MPIRUN,
            )
