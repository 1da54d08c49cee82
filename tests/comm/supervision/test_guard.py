"""The guard on one rank and on threads; tests/mpi/test_guard.py has the real thing."""

import io
import os
import pickle
import sys

import pytest

from mgcaffe.comm.supervision import record_folders, status
from mgcaffe.comm.supervision.guard import Outcome, common_code, describe, run_guarded
from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.errors import NetError, PeerFailure
from tests.support.gloo import run_gloo_ranks


class Left(Exception):
    """Stands for the end of the process."""


def leave(code):
    raise Left(code)


def raising(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("main", "code", "said"),
    [
        (lambda: None, 0, []),
        (lambda: 75, 75, []),
        (raising(SystemExit(0)), 0, []),
        (raising(SystemExit(2)), 2, []),
        (raising(SystemExit("usage: ...")), 1, ["usage: ..."]),
        (raising(NetError("unknown layer")), 65, ["unknown layer"]),
        (raising(KeyboardInterrupt()), 1, ["interrupted"]),
    ],
)
@pytest.mark.parametrize("communicator", [lambda: None, SingleCommunicator])
def test_one_rank_ends_with_its_code_and_message(monkeypatch, main, code, said, communicator):
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    heard = []
    assert run_guarded(main, communicator, print_message=heard.append) == code
    assert heard == said


def test_a_bug_shows_its_traceback(capsys):
    assert run_guarded(raising(ZeroDivisionError("oops")), SingleCommunicator) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: internal error: ZeroDivisionError: oops\nTraceback")


@pytest.mark.parametrize("module", ["google.protobuf", "mgcaffe.of_tomorrow", None])
def test_a_package_that_is_not_installed_is_no_bug_unless_it_is_ours(capsys, module):
    assert run_guarded(raising(ModuleNotFoundError("No module", name=module)), SingleCommunicator) == 1
    missing = (
        f"error: the Python module '{module}' is not installed\n  python -m pip check says which packages are missing\n"
    )
    assert (capsys.readouterr().err == missing) == (module == "google.protobuf")


def test_output_that_nobody_reads_is_no_bug(monkeypatch, capsys):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as raw:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, write_through=False))
        assert run_guarded(lambda: print("x" * 100_000), SingleCommunicator) == 1
        assert capsys.readouterr().err == "error: standard output was closed before everything was printed\n"
        sys.stdout.detach()
    monkeypatch.undo()
    assert run_guarded(raising(BrokenPipeError("another pipe")), SingleCommunicator) == 1
    assert "internal error: BrokenPipeError: another pipe" in capsys.readouterr().err


def test_an_exception_without_a_text_is_reported_too(capsys):
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert run_guarded(raising(Mute()), SingleCommunicator) == 1
    assert capsys.readouterr().err.startswith("error: internal error: Mute (its __str__ raises ValueError)\nTraceback")


def test_an_unconnected_rank_names_itself_and_rank_0_does_not_wait(monkeypatch):
    monkeypatch.setattr("mgcaffe.comm.supervision.guard._ALONE_PATIENCE_S", 0.01)
    monkeypatch.setenv("PMI_SIZE", "2")
    for rank, said in (("0", ["bad file"]), ("1", ["rank 1: bad file"])):
        monkeypatch.setenv("PMI_RANK", rank)
        heard = []
        with pytest.raises(Left, match="65"):
            run_guarded(raising(NetError("bad file")), lambda: None, print_message=heard.append, leave=leave)
        assert heard == said


def test_a_launcher_that_cannot_be_understood_is_the_message(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.delenv("PMI_SIZE", raising=False)
    heard = []
    from mgcaffe.comm.transport.environment import detect

    assert run_guarded(detect, lambda: None, print_message=heard.append) == 1
    assert "PMI_RANK but not PMI_SIZE" in heard[0]


def on_threads(size, main, patience_s=0.3):
    """Run `main(communicator)` guarded on threads; return what each rank said and its code."""

    def work(ranks):
        heard = []
        try:
            code = run_guarded(
                lambda: main(ranks), lambda: ranks, print_message=heard.append, leave=leave, patience_s=patience_s
            )
        except Left as error:
            code = ("left", error.args[0])
        except SystemExit as error:
            code = ("aborted", error.code)
        return heard, code

    return run_ranks(size, work)


def test_all_ranks_that_succeed_return():
    assert on_threads(3, lambda ranks: 0) == [([], 0)] * 3


def test_all_ranks_that_fail_alike_give_one_message():
    def main(ranks):
        raise NetError("unknown bottom")

    results = on_threads(3, main)
    assert [heard for heard, _ in results] == [["unknown bottom"], [], []]
    assert {code for _, code in results} == {("left", 65)}


def test_different_failures_come_in_one_message():
    def main(ranks):
        if ranks.rank == 1:
            raise NetError("no mean file")
        raise PeerFailure("the other one failed")

    results = on_threads(3, main)
    assert [heard for heard, _ in results] == [["rank 1 (threads): no mean file"], [], []]
    assert {code for _, code in results} == {("left", 65)}


def test_a_failure_after_the_others_succeeded_is_everybodys():
    def main(ranks):
        if ranks.rank == 1:
            raise NetError("late")

    results = on_threads(2, main)
    assert results[0] == (["rank 1 (threads): late"], ("left", 65))


def test_one_failure_among_busy_ranks_ends_the_job():
    def main(ranks):
        if ranks.rank == 1:
            raise NetError("lonely")
        ranks.barrier()

    results = on_threads(2, main)
    assert results[1] == (["rank 1 (threads): lonely"], ("aborted", 65))


def test_codes_and_messages_prefer_causes_to_consequences():
    consequence = Outcome(69, "peer failed", True, "a")
    cause = Outcome(65, "bad net", True, "b")
    assert common_code([consequence, cause, Outcome(0)]) == 65
    assert common_code([Outcome(0)]) == 0 and common_code([consequence]) == 69
    assert describe([consequence, cause]) == "rank 1 (b): bad net"
    assert describe([cause, cause]) == "bad net"
    assert describe([Outcome(75), Outcome(75)]) is None and describe([Outcome(0)]) is None
    assert describe([Outcome(3), Outcome(0)]) == "rank 0 (): ended with exit code 3"


@pytest.mark.parametrize("own", [lambda: 0, raising(PeerFailure("rank 1 is gone"))])
def test_over_gloo_a_rank_that_fails_alone_speaks_once_and_the_others_end_because_of_it(tmp_path, monkeypatch, own):
    monkeypatch.setattr(ProcessGroupCommunicator, "abort", lambda self, code: leave(code))
    heard = []

    def work(ranks):
        record = record_folders.open_status(tmp_path, ranks.rank, 2)
        ranks.barrier()
        if ranks.rank == 0:
            ranks.barrier()  # rank 1 fails before
        monkeypatch.setattr(status, "_current", record)
        with pytest.raises(Left) as left:
            run_guarded(
                own if ranks.rank == 0 else raising(NetError("unknown layer")),
                lambda: ranks,
                print_message=heard.append,
                leave=leave,
                patience_s=0.05,
            )
        if ranks.rank == 1:
            ranks.barrier()
        return left.value.args[0]

    assert run_gloo_ranks(2, work) == [69, 65]
    assert len(heard) == 1 and heard[0].startswith("rank 1 (") and "unknown layer" in heard[0]


@pytest.mark.parametrize(
    "outcome",
    [Outcome(0), Outcome(-1, "blob 'fc8' of größe\n2", True, "trainer, node7"), Outcome(True, raised=True)],
)
def test_an_outcome_is_sent_as_it_is(outcome):
    assert Outcome.of_bytes(outcome.to_bytes()) == outcome


class Hostile:
    """What runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    "message",
    [pickle.dumps(Hostile()), b"", b"[]", b'{"code": "0"}', b'{"code": 0, "raised": 1, "host": ""}', b"\xff" * 100],
    ids=["a pickle", "nothing", "a list", "a text for the code", "a number for the flag", "no text"],
)
def test_what_somebody_else_writes_in_place_of_an_outcome_is_a_failure_and_runs_nothing(monkeypatch, tmp_path, message):
    monkeypatch.chdir(tmp_path)

    def work(ranks):
        if ranks.rank == 1:
            return ranks.meet(message, 5.0) is not None
        heard = []
        with pytest.raises(Left, match="1"):
            run_guarded(lambda: 0, lambda: ranks, print_message=heard.append, leave=leave, patience_s=0.05)
        return heard

    (said,), met = run_ranks(2, work)
    assert met and said.startswith("rank 1 (): a rank has not said how it ended: ")
    assert not list(tmp_path.iterdir())
