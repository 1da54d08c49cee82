"""Where Open MPI puts its own files: into the job's folder, which is removed at its end, or by the next job.

Left to itself, mpirun calls a folder in /tmp after its process id, and a killed one leaves it; a later mpirun that is
given the same id fails on it ("The PMIx server's listener thread failed to start", exit code 213, Open MPI 5.0). Ranks
of one host talk through files in /dev/shm, which stay there as well, in memory, when mpirun was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

# mpirun refuses both of its names for a place at once.
_SESSION = ("prte_local_tmpdir_base", "prte_tmpdir_base")
_SHARED_MEMORY = ("btl_sm_backing_directory", "btl_vader_backing_directory")
_PROJECTS = ("openmpi", "prte", "pmix")  # each reads the parameter files of the others, too


def place_files(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], *, are_elsewhere: bool
) -> dict[str, str]:
    """Return the variables that have Open MPI put its files into a folder, but for places chosen already.

    That may have been the user, on the command line, in the environment or a file, or whoever installed Open MPI.

    Args:
        folder: of the job (`record_folders.new_folder`).
        command: mpirun and its arguments.
        environ: what mpirun's environment holds besides.
        are_elsewhere: whether ranks may run on other hosts too, where there is no such folder. mpirun's own is then the
            only one that can be placed.
    """
    said = [*command, *environ, *_lines_of_files(Path(command[0]))]
    places = {}
    if not _are_named(_SESSION, said):
        places[f"PRTE_MCA_{_SESSION[0]}"] = str(folder)
    if not are_elsewhere and not _are_named(_SHARED_MEMORY, said):
        places[f"OMPI_MCA_{_SHARED_MEMORY[0]}"] = str(folder)
    return places


def _are_named(names: Sequence[str], said: Sequence[str]) -> bool:
    return any(name in text for name in names for text in said)


def _lines_of_files(mpirun: Path) -> list[str]:
    """Return what files of parameters say, without comments."""
    system = mpirun.resolve().parent.parent / "etc"
    paths = [system / f"{name}-mca-params{kind}.conf" for name in _PROJECTS for kind in ("", "-override")]
    with contextlib.suppress(RuntimeError):  # a user without a home
        paths += [Path.home() / f".{name}" / "mca-params.conf" for name in _PROJECTS]
    lines = []
    for path in paths:
        with contextlib.suppress(OSError):
            lines += [line for line in path.read_text(errors="replace").splitlines() if line.lstrip()[:1] != "#"]
    return lines
