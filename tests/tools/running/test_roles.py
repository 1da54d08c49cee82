"""What trainers and servers do under `engine train`: threads as ranks, and over gloo; tests/mpi has it under mpirun."""

import threading
import time
from argparse import Namespace

import numpy as np
import pytest

from mgcaffe.comm import ThreadedCommunicator, run_ranks
from mgcaffe.comm.replicas.rules import SequentialElasticAveraging
from mgcaffe.comm.replicas.servers import Servers
from mgcaffe.comm.replicas.synchronizer import ParameterSynchronizer
from mgcaffe.comm.supervision.status import Status
from mgcaffe.errors import NetError, PeerFailure, RankDisagreement, SolverError, UsageError
from mgcaffe.prototxt import parse_solver
from mgcaffe.tools.running.roles import run_in_role
from mgcaffe.tools.running.signals import Requests
from tests.support.gloo import run_gloo_ranks


class _Watch:
    """What keeps an eye on a rank, as far as roles use it."""

    def __init__(self):
        self.status, self.requests, self.tasks = Status(), Requests(), []

    def add_task(self, task):
        self.tasks.append(task)


def _run(ranks, fields, train, before=lambda rank, watch: None, run=run_ranks):
    """Run `train(groups, watch)` on the trainers; return exit code and role of every rank."""

    def rank(world):
        watch = _Watch()
        before(world.rank, watch)
        text = fields if isinstance(fields, str) else fields[world.rank]
        source = parse_solver(f"comm_param {{ {text} }}", file="solver.prototxt")
        code = run_in_role(FLAGS, source, world, watch, lambda groups: train(groups, watch))
        return code, watch.status.read().role

    return run(ranks, rank)


FLAGS = Namespace(dtype="float64", strict=False)
SERVED = "sync: EASGD sync_servers: 2 alpha: 0.5"


@pytest.mark.parametrize("run", [run_ranks, run_gloo_ranks])
def test_servers_hold_the_centre_of_trainers_until_all_have_left(run):
    def train(groups, watch):
        assert groups.trainers.size == 2 and groups.embedding is None
        sync = ParameterSynchronizer(SequentialElasticAveraging(0.5), Servers(groups.sync, 2), every=1)
        replica = np.zeros(3)
        sync.start(replica)
        replica += groups.trainers.rank
        sync.iteration_done()
        sync.finish()
        assert 0 <= sync.state["centre"].min() <= 0.5
        return 0

    assert _run(4, SERVED, train, run=run) == [(0, "trainer")] * 2 + [(0, "synchronization server")] * 2


@pytest.mark.parametrize("run", [run_ranks, run_gloo_ranks])
def test_a_stop_asked_of_a_server_stops_the_trainers_and_all_end_with_75(run):
    causes = []

    def train(groups, watch):
        while not watch.requests.cause:
            for task in watch.tasks:
                task()
            time.sleep(0.01)
        causes.append(watch.requests.cause)
        return 75

    def before(rank, watch):
        if rank == 2:
            watch.requests.stop("SIGTERM")

    codes = _run(3, SERVED.replace("2", "1"), train, before, run)
    assert [code for code, _ in codes] == [75] * 3
    assert causes == ["SIGTERM at rank 2 (synchronization server)"] * 2


def test_servers_end_by_the_trainers_error():
    def train(groups, watch):
        raise NetError("a net that cannot be built")

    with pytest.raises(NetError):
        _run(3, SERVED.replace("2", "1"), train)

    def rank(world):
        source = parse_solver(f"comm_param {{ {SERVED.replace('2', '1')} }}")
        try:
            run_in_role(FLAGS, source, world, _Watch(), lambda groups: train(groups, None))
        except (NetError, PeerFailure) as error:
            return error.exit_code

    assert run_ranks(3, rank) == [65, 65, 69]


def test_a_trainer_that_dies_just_before_the_end_is_reported(monkeypatch, caplog):
    """Between the last look of rank 0, of two in a second, and the end of its training."""
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "1")
    dead = threading.Event()

    def train(groups, watch):
        groups.control.tolerate({1})
        if groups.trainers.rank == 1:
            groups.control.die()
            dead.set()
        assert dead.wait(15)
        return 0

    assert [code for code, _ in _run(3, SERVED.replace("2", "1") + " on_trainer_loss: CONTINUE", train)] == [0] * 3
    said = [record.getMessage() for record in caplog.records if record.threadName == "rank 0"]
    (text,) = [each for each in said if "is gone" in each]
    assert "rank 1 (trainer) is gone: training goes on without it" in text and "(1 record of 2) is not seen" in text


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ("embedding_servers: 3", UsageError, "--embedding_servers=3 of 3 ranks: no trainer would be left"),
        ("sync: MA sync_servers: 1", SolverError, "sync MA has no centre"),
        ("on_trainer_loss: CONTINUE", SolverError, "CONTINUE needs synchronization servers: .* wait for each other"),
        (
            "sync: EASGD sync_servers: 1 on_trainer_loss: CONTINUE",
            UsageError,
            "needs an mpirun that .*\n.* launcher --on_trainer_loss=continue, or mpirun --with-ft ulfm",
        ),
        (
            ["sync: EASGD", "sync: EASGD", "sync: EASGD sync_servers: 1"],
            RankDisagreement,
            "not given the same roles:\n.*\n    ranks 0-1: .*sync_servers: 0\n    rank 2: .*sync_servers: 1",
        ),
    ],
)
def test_roles_that_cannot_be_are_refused_before_anything_is_set_up(fields, error, said):
    with pytest.raises(error, match=said):
        _run(3, fields, lambda groups, watch: pytest.fail("it was set up"))


def test_under_torchrun_the_others_cannot_go_on_without_a_trainer(monkeypatch):
    monkeypatch.setattr(ThreadedCommunicator, "transport", "gloo")
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "1")  # torchrun may itself be started by mpirun
    fields = SERVED.replace("2", "1") + " on_trainer_loss: CONTINUE"
    with pytest.raises(UsageError, match=r"not possible under torchrun, which ends all ranks .*\n.*engine train -np N"):
        _run(3, fields, lambda groups, watch: pytest.fail("it was set up"))


def test_without_servers_the_ranks_are_as_they_were():
    def train(groups, watch):
        assert groups.control is groups.sync is None and not watch.tasks
        return groups.trainers.size

    assert _run(2, "sync: EASGD", train) == [(2, ""), (2, "")]
