import pytest

from mgcaffe.comm.transport.environment import Launch, detect
from mgcaffe.errors import CommError

OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "4",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Launch(0, 1, 0, 1, "none")),
        (OPENMPI, Launch(3, 8, 1, 4, "openmpi")),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, Launch(0, 1, 0, 1, "openmpi")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Launch(1, 2, None, None, "pmi")),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            Launch(1, 4, 1, 2, "pmi"),
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "1"},
            Launch(1, 4, 0, 1, "pmi"),
        ),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, Launch(0, 2, None, None, "mvapich2")),
        (STEP, Launch(4, 5, 0, 1, "slurm")),
        ({**STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0"}, Launch(0, 5, 0, 2, "slurm")),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)", "SLURM_NODEID": "1"}, Launch(4, 5, 0, 2, "slurm")),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "?"}, Launch(4, 5, 0, None, "slurm")),
        (TORCHRUN, Launch(3, 4, 1, 2, "torchrun")),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, Launch(1, 2, 1, None, "torchrun")),
    ],
)
def test_each_launcher_is_understood(environ, expected):
    assert detect(environ) == expected


def test_torchrun_counts_where_another_launcher_has_started_it_on_every_host():
    inner = detect(TORCHRUN)
    one_each = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for outer in (OPENMPI, STEP):
        assert detect({**outer, **TORCHRUN}) == inner
        assert detect({**outer, **one_each}) == detect(outer)
    assert detect(one_each) == Launch(0, 1, 0, 1, "none")


def test_mpi_is_what_its_own_launchers_start():
    assert detect(OPENMPI).has_mpi and detect(STEP).has_mpi
    assert not detect(TORCHRUN).has_mpi and not detect({}).has_mpi


def test_variables_that_a_script_sets_for_torch_do_not_hide_mpi():
    assert detect({**OPENMPI, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}) == detect(OPENMPI)


def test_the_shell_of_sbatch_is_one_process():
    shell = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}
    assert detect(shell).size == 1
    assert detect({**shell, "SLURM_STEP_ID": str(0xFFFFFFFB)}).size == 1


def test_daemons_started_by_srun_do_not_count():
    assert detect({**STEP, **OPENMPI}) == detect(OPENMPI)


def test_slurm_and_pmi_that_agree_are_one_job():
    assert detect({**STEP, "PMI_RANK": "4", "PMI_SIZE": "5"}).size == 5


def test_one_rank_of_an_outer_launcher_does_not_contradict():
    assert detect({**OPENMPI, "PMI_RANK": "0", "PMI_SIZE": "1"}) == detect(OPENMPI)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_RANK but not OMPI_COMM_WORLD_SIZE"),
        ({"PMI_SIZE": "4"}, "PMI_SIZE but not PMI_RANK"),
        ({"PMI_RANK": "one", "PMI_SIZE": "4"}, "PMI_RANK='one' is not a number"),
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, "PMI_RANK=4 and PMI_SIZE=4 contradict"),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}, "SLURM_PROCID but not"),
        ({**OPENMPI, "PMI_RANK": "1", "PMI_SIZE": "2"}, "contradict each other: openmpi says rank 3 of 8"),
        ({**OPENMPI, "PMI_RANK": "1", "PMI_SIZE": "8"}, "openmpi says rank 3 of 8, pmi says rank 1 of 8"),
        ({**OPENMPI, "PMI_RANK": "3", "PMI_SIZE": "9"}, "openmpi says rank 3 of 8, pmi says rank 3 of 9"),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, "neither MPI's launcher nor torch.distributed's"),
        ({"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, "WORLD_SIZE but not RANK"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "WORLD_SIZE but not RANK"),
    ],
)
def test_what_cannot_be_understood_is_an_error(environ, words):
    with pytest.raises(CommError, match=r"mpirun|mpiexec") as caught:
        detect(environ)
    assert words in str(caught.value)


def test_pmix_alone_asks_mpi(monkeypatch):
    monkeypatch.setattr("mgcaffe.comm.transport.mpi_library.world_place", lambda: (1, 3))
    assert detect({"PMIX_RANK": "1"}) == Launch(1, 3, None, None, "pmix")
