"""The command line by which the launcher starts its ranks: mpirun with what it needs, or one process."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgcaffe.comm.supervision.record_folders import FOLDER_VARIABLE
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, UsageError
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.launcher.files import place_files

PROGRAM = (sys.executable, "-m", "mgcaffe.tools.main")

# What ranks on other hosts need of this environment; Open MPI itself hands on its own variables.
_HANDED_ON = (
    FOLDER_VARIABLE, "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
# A rank whose connection breaks is ended by MPI in the same instant. A second later, mpirun has heard of the rank that
# broke it, and takes that one for the cause.
_ABORT_DELAY = "mpi_abort_delay"
# Two ranks of Open MPI 5.0 write files of more than 100,000 bytes, and hang or crash in ways of their own at less.
_MIN_FILE_SIZE = 1 << 20
_LOCAL = ("localhost", "127.0.0.1")
_HOST_FLAGS = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
# By these mpirun finds the hosts that a scheduler (Slurm, PBS, LSF) has granted.
_HOST_VARIABLES = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "LSB_JOBID")


def count_ranks(flags: Flags) -> int:
    """Return how many ranks `--np` and `-H` ask for; without both, one.

    Raises:
        UsageError: hosts that cannot be read, or too few places on them.
    """
    if not flags.H:
        return int(flags.np or 1)
    places = sum(_read_hosts(flags.H).values())
    if flags.np and flags.np > places:
        raise UsageError(
            f"-np {flags.np} ranks on -H {flags.H}, which has {places} slots",
            hint="say how many each host takes: -H a:2,b:2",
        )
    return int(flags.np or places)


def survives(flags: Flags) -> bool:
    """Return whether ranks are to outlive another one's death."""
    return bool(flags.rescue or flags.on_trainer_loss == "continue")


def are_elsewhere(flags: Flags) -> bool:
    """Return whether ranks may run on other hosts than this one."""
    local = {*_LOCAL, socket.gethostname(), socket.gethostname().partition(".")[0]}
    hosts = set(_read_hosts(flags.H)) if flags.H else set()
    named = _names(flags.mpirun_args.split(), *_HOST_FLAGS)
    return bool(hosts - local) or named or any(name in os.environ for name in _HOST_VARIABLES)


def rank_command(flags: Flags, words: Sequence[str], program: Sequence[str] = PROGRAM) -> list[str]:
    """Return the command that starts all ranks.

    Args:
        flags: the launcher's.
        words: the ranks' own command line, after `train`.
        program: what runs `engine`.

    Raises:
        UsageError: there is no mpirun, or not Open MPI's, or it has arguments that cannot be split into words.
        EngineError: (exit code 73) the limit on file sizes does not let it write its files.
    """
    ranks = count_ranks(flags)
    rank = [*program, "train", *words]
    if ranks == 1 and not flags.H and not flags.mpirun_args:
        return rank
    try:
        extra = shlex.split(flags.mpirun_args)
    except ValueError as error:
        raise UsageError(f"--mpirun_args {flags.mpirun_args}: {str(error).lower()}", hint="see to its quotes") from None
    _check_file_sizes()
    command = [find_mpirun(), "-n", str(ranks)]
    if flags.H:
        command += ["--host", flags.H]
    if not _names(extra, "--bind-to", "-bind-to"):
        command += ["--bind-to", "none"]
    # mpirun counts a machine's cores, not their threads, and would refuse more ranks than that.
    if not flags.H and not _names(extra, "--oversubscribe", "-oversubscribe", "--map-by") and not are_elsewhere(flags):
        command.append("--oversubscribe")
    if survives(flags):
        command += ["--with-ft", "ulfm"]
    if are_elsewhere(flags):
        for name in _HANDED_ON:
            if name in os.environ or name == FOLDER_VARIABLE:
                command += ["-x", name]
        if _ABORT_DELAY not in flags.mpirun_args and f"OMPI_MCA_{_ABORT_DELAY}" not in os.environ:
            command += ["--mca", _ABORT_DELAY, "1"]
    return [*command, *extra, *rank]


def rank_environment(
    folder: Path, command: Sequence[str], *, are_elsewhere: bool, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment that the command of `rank_command` is started with.

    Args:
        folder: of the job (`record_folders.new_folder`); Open MPI's own files go there as well (`launcher_files`).
        command: what is started.
        are_elsewhere: whether ranks may run on other hosts.
        environ: the environment to add to, `os.environ` by default.
    """
    environment = dict(os.environ if environ is None else environ)
    environment[FOLDER_VARIABLE] = str(folder)
    if Path(command[0]).name == "mpirun":
        environment |= place_files(folder, command, environment, are_elsewhere=are_elsewhere)
    if os.geteuid() == 0:
        # Containers run as root, and mpirun refuses that unless it is said twice.
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return environment


def _check_file_sizes() -> None:
    """Refuse to start an mpirun that the limit on file sizes would end by SIGXFSZ, or leave hanging."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < _MIN_FILE_SIZE:
        raise EngineError(
            f"mpirun cannot write its files: files may have {limit} bytes (ulimit -f), and it needs {_MIN_FILE_SIZE}",
            hint="raise the limit, or train with one rank, without -np",
            exit_code=EXIT_CANNOT_WRITE,
        )


def find_mpirun() -> str:
    """Open MPI's mpirun: the one beside this Python, else the one on the PATH.

    Raises:
        UsageError: there is none, or it is another MPI's.
    """
    places = [str(Path(sys.executable).parent), sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
    found = shutil.which("mpirun", path=os.pathsep.join(places))
    if found is None:
        raise UsageError(
            "there is no mpirun beside this Python and none on the PATH",
            hint="pip install 'mgcaffe[mpi]', or load your cluster's Open MPI",
        )
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{found} cannot be run: {error}") from None
    if "Open MPI" not in said:
        raise UsageError(
            f"{found} is not Open MPI's ('{said.strip().partition(chr(10))[0]}'), whose flags --np uses",
            hint="start the ranks with it yourself: mpirun -n 4 engine train solver.prototxt",
        )
    return found


def _read_hosts(text: str) -> dict[str, int]:
    hosts: dict[str, int] = {}
    for word in text.split(","):
        name, colon, count = word.strip().partition(":")
        if not name or (colon and not (count.isdigit() and int(count))):
            raise UsageError(f"-H {text}: '{word}' is not a host like node7 or node7:2")
        hosts[name] = hosts.get(name, 0) + (int(count) if colon else 1)
    return hosts


def _names(words: Sequence[str], *flags: str) -> bool:
    return any(word.partition("=")[0] in flags for word in words)
