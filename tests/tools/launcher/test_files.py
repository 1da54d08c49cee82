"""Where Open MPI's files lie."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.tools.launcher import command as launcher_command
from tests.support.launcher import parse


def test_open_mpis_files_lie_in_the_jobs_folder_unless_another_place_is_named(mpirun, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found = mpirun("mpirun (Open MPI) 5.0.11")

    def settings(*words, **variables):
        flags = parse(*words)
        command = launcher_command.rank_command(flags, [], ["engine"])
        elsewhere = launcher_command.are_elsewhere(flags)
        environment = launcher_command.rank_environment(
            tmp_path / "job", command, are_elsewhere=elsewhere, environ=variables
        )
        return {name: value for name, value in environment.items() if name.startswith(("PRTE_", "OMPI_MCA_"))}

    session = {"PRTE_MCA_prte_local_tmpdir_base": str(tmp_path / "job")}
    memory = {"OMPI_MCA_btl_sm_backing_directory": str(tmp_path / "job")}
    assert settings("-np", "2") == session | memory
    assert settings("-H", "a:2,b:2") == session  # b has no such folder
    assert settings("-np", "2", "--mpirun_args=-H a:2,b:2") == session
    assert settings("--max_restarts=1") == {}  # one process, without mpirun
    assert settings("-np", "2", "--mpirun_args=--prtemca prte_tmpdir_base /scratch") == memory
    for variable in ("PRTE_MCA_prte_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base"):
        assert settings("-np", "2", **{variable: "/scratch"}) == memory | {variable: "/scratch"}
    older = {"OMPI_MCA_btl_vader_backing_directory": "/scratch"}
    assert settings("-np", "2", **older) == session | older
    projects = ("openmpi", "prte", "pmix")
    etc = Path(found).parent.parent / "etc"
    system = [etc / f"{name}-mca-params{kind}.conf" for name in projects for kind in ("", "-override")]
    for file in (*system, *(home / f".{name}" / "mca-params.conf" for name in projects)):
        file.parent.mkdir(exist_ok=True)
        file.write_text("# prte_tmpdir_base = /scratch\n  # btl_sm_backing_directory = /scratch\n")
        assert settings("-np", "2") == session | memory
        file.write_text("prte_tmpdir_base = /scratch\nbtl_sm_backing_directory=/scratch\n")
        assert settings("-np", "2") == {}
        file.unlink()
