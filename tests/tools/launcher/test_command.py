"""The command line that starts the ranks."""

from __future__ import annotations

import pytest

from mgcaffe.comm.supervision import record_folders
from mgcaffe.errors import EngineError, UsageError
from mgcaffe.tools.launcher import command as launcher_command
from tests.support.launcher import parse


def test_mpirun_gets_the_flags_it_needs(mpirun):
    found = mpirun("mpirun (Open MPI) 5.0.11")
    program = ["python", "-m", "engine"]
    rank = [*program, "train", "solver.prototxt"]
    command = launcher_command.rank_command(parse("-np", "4"), ["solver.prototxt"], program)
    assert command == [found, "-n", "4", "--bind-to", "none", "--oversubscribe", *rank]
    command = launcher_command.rank_command(parse("-np", "2", "--rescue"), ["solver.prototxt"], program)
    assert command == [found, "-n", "2", "--bind-to", "none", "--oversubscribe", "--with-ft", "ulfm", *rank]


def test_other_hosts_get_the_environment_and_the_users_words_win(mpirun, monkeypatch):
    found = mpirun("mpirun (Open MPI) 5.0.11")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    flags = parse("-H", "a:2,b:2", "--mpirun_args", "--bind-to core --prefix '/opt/open mpi'")
    command = launcher_command.rank_command(flags, [], ["engine"])
    assert command[:5] == [found, "-n", "4", "--host", "a:2,b:2"]
    assert command[-6:] == ["--bind-to", "core", "--prefix", "/opt/open mpi", "engine", "train"]
    assert command.count("--bind-to") == 1 and "--oversubscribe" not in command
    handed_on = {command[index + 1] for index, word in enumerate(command) if word == "-x"}
    assert {"PYTHONPATH", record_folders.FOLDER_VARIABLE} <= handed_on
    delay = command.index("mpi_abort_delay")
    assert command[delay - 1 : delay + 2] == ["--mca", "mpi_abort_delay", "1"]


def test_a_delay_of_mpis_abort_that_the_user_sets_stays(mpirun, monkeypatch):
    mpirun("mpirun (Open MPI) 5.0.11")
    given = launcher_command.rank_command(parse("-H", "a:2,b:2", "--mpirun_args=--mca mpi_abort_delay 5"), [], ["x"])
    assert given.count("mpi_abort_delay") == 1
    monkeypatch.setenv("OMPI_MCA_mpi_abort_delay", "0")
    assert "mpi_abort_delay" not in launcher_command.rank_command(parse("-H", "a:2,b:2"), [], ["x"])


@pytest.mark.parametrize(
    ("words", "variable", "elsewhere"),
    [
        (["-np", "2"], "", False),
        (["-H", "localhost:2"], "", False),
        (["-np", "2", "--mpirun_args=-v --mca x -Hy"], "", False),
        (["-H", "a:2,b:2"], "", True),
        (["-np", "2", "--mpirun_args=-H a:2,b:2"], "", True),
        (["-np", "2", "--mpirun_args=--host=a,b"], "", True),
        (["-np", "2", "--mpirun_args=--hostfile hosts"], "", True),
        (["-np", "2"], "SLURM_JOB_ID", True),
        (["-np", "2"], "PBS_NODEFILE", True),
        (["-np", "2"], "LSB_JOBID", True),
    ],
)
def test_other_hosts_are_known_by_flags_and_by_the_schedulers_variables(monkeypatch, words, variable, elsewhere):
    if variable:
        monkeypatch.setenv(variable, "1")
    assert launcher_command.are_elsewhere(parse(*words)) is elsewhere


def test_one_rank_needs_no_mpirun(mpirun):
    assert launcher_command.rank_command(parse("--max_restarts=1"), ["x"], ["engine"]) == ["engine", "train", "x"]


def test_without_mpirun_it_is_said_what_to_install(mpirun):
    with pytest.raises(UsageError, match=r"no mpirun beside this Python and none on the PATH\n.*pip install"):
        launcher_command.rank_command(parse("-np", "2"), [])


def test_another_mpis_mpirun_is_refused(mpirun):
    mpirun("HYDRA build details:")
    with pytest.raises(UsageError, match=r"is not Open MPI's \('HYDRA build details:'\)"):
        launcher_command.rank_command(parse("-np", "2"), [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-np", "5", "-H", "a:2,b:2"], "has 4 slots"),
        (["-H", "a:two"], "'a:two' is not a host"),
        (["-H", "a:2,,b"], "'' is not a host"),
        (["-np", "0"], "0 is too small"),
    ],
)
def test_hosts_and_ranks_that_make_no_sense_are_usage_errors(words, message):
    with pytest.raises(UsageError, match=message):
        launcher_command.count_ranks(parse(*words))


def test_words_for_mpirun_that_cannot_be_split_are_a_usage_error():
    with pytest.raises(UsageError, match=r"--mpirun_args --x 'y: no closing quotation"):
        launcher_command.rank_command(parse("-np", "2", "--mpirun_args=--x 'y"), [])


@pytest.mark.parametrize(
    ("words", "ranks"), [(["-np", "3"], 3), (["-H", "a:2,b"], 3), (["-np", "2", "-H", "a:4"], 2), ([], 1)]
)
def test_ranks_are_counted(words, ranks):
    assert launcher_command.count_ranks(parse(*words)) == ranks


@pytest.mark.parametrize("limit", [0, 100_000])
def test_a_limit_on_file_sizes_that_mpirun_cannot_live_with_is_an_error_before_it_starts(mpirun, monkeypatch, limit):
    monkeypatch.setattr(launcher_command.resource, "getrlimit", lambda which: (limit, limit))
    with pytest.raises(EngineError, match=rf"files may have {limit} bytes \(ulimit -f\)") as caught:
        launcher_command.rank_command(parse("-np", "2"), [])
    assert caught.value.exit_code == 73
