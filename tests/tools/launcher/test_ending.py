"""How the launcher judges a job's end."""

import pytest

from mgcaffe.comm.supervision.status import ENDED, FAILED, RUNNING, Place
from mgcaffe.tools.launcher.ending import Ending, judge, read_end_message


def place(rank, state=RUNNING, code=0, **changes):
    fields = {"size": 2, "pid": 10 + rank, "host": "a", "terminated": False, "iteration": 3, "beat": 1}
    return Place(rank=rank, state=state, code=code, **{**fields, "doing": "forward", **changes})


@pytest.mark.parametrize(
    ("returncode", "lost", "others", "code", "words"),
    [
        (0, [], [place(0, ENDED), place(1, ENDED)], 0, ""),
        (0, [], [place(0, ENDED, 75), place(1, ENDED, 75)], 75, ""),
        (65, [], [place(0, ENDED, 65), place(1, ENDED, 65)], 65, ""),
        (137, [place(1)], [place(0, terminated=True)], 69, "rank 1 of 2 on a (process 11) was killed by signal 9"),
        (139, [place(0)], [], 69, "rank 0 of 2 on a (process 10) was ended by signal 11 (SIGSEGV)"),
        (3, [place(1)], [], 69, "ended with exit code 3 without saying why"),
        (1, [place(1)], [], 69, "exited without an error message"),
        (65, [place(0), place(1, FAILED, 65)], [], 65, "rank 1 of 2 on a (process 11) failed with exit code 65"),
        (65, [place(0)], [place(1, ENDED, 65)], 65, ""),
        (-9, [place(0)], [], 69, "mpirun was ended by signal 9"),
        (213, [], [], 1, "mpirun could not start the ranks"),
        (137, [], [place(0, ENDED, 69)], 69, "a rank that was starting, or is on another host, was killed by signal 9"),
        (137, [], [], 69, "a rank that was starting, or is on another host, was killed by signal 9"),
        (143, [place(0, doing="starting")], [], 69, "a rank that was starting, or is on another host, was killed"),
        (143, [place(0, doing="starting")], [place(1)], 69, "rank 0 of 2 on a (process 10) was killed by signal 15"),
        (1, [], [], 1, ""),
        (1, [], [place(0, terminated=True), place(1, terminated=True)], 69, "mpirun was told to end, by SIGINT"),
        (1, [], [place(0, ENDED, 75), place(1, terminated=True)], 69, "mpirun was told to end, by SIGINT"),
        (1, [], [place(0, ENDED, 75), place(1, ENDED, 75)], 75, "mpirun was told to end, by SIGINT"),
        (1, [], [place(0, ENDED, 75), place(1, ENDED, 0)], 75, "which have stopped as on any signal"),
        (1, [], [place(0, ENDED, 0, terminated=True), place(1, ENDED, 0)], 0, ""),
        (1, [], [place(0, ENDED, 75), place(1, ENDED, 69, terminated=True)], 69, "killed the ranks before they had"),
        (1, [], [place(0, ENDED, 0), place(1, terminated=True)], 69, "killed the ranks before they had"),
        (1, [], [place(0, terminated=True), place(1, FAILED, 73, terminated=True)], 73, "failed with exit code 73"),
        (1, [], [place(0, ENDED, 0), place(1, ENDED, 0)], 1, ""),
        (137, [], [place(0, terminated=True), place(1, ENDED, 69)], 69, "rank 0 of 2 on a (process 10) was killed"),
        (213, [], [place(0, ENDED, 69)], 69, "mpirun ended with exit code 213, its own, or that of a rank on another"),
        (183, [], [place(0, ENDED, 69), place(1, ENDED, 69)], 69, "exit code 183, one of its own; it says why above"),
        (1, [], [place(0, ENDED, 1), place(1, terminated=True)], 1, ""),
        (1, [], [place(0, terminated=True)], 1, ""),  # the other rank is on another host, whose mpirun tells why
    ],
)  # fmt: skip
def test_an_end_gets_its_code_and_block(returncode, lost, others, code, words):
    places = {each.rank: each for each in [*lost, *others]}
    ending = judge(returncode, lost, places, None, is_mpirun=True)
    assert ending.code == code
    assert words in ending.block and bool(words) == bool(ending.block)


@pytest.mark.parametrize("last", [place(0), place(3, role="embedding server"), place(4, role="synchronization server")])
def test_a_trainer_that_the_job_went_on_without_is_not_named_for_its_end(last):
    lost = [place(1, role="trainer"), place(2, role="trainer"), last]
    places = {each.rank: each for each in lost}
    ending = judge(1, lost, places, None, is_mpirun=True, may_lose_trainers=True)
    assert ending.code == 69 and ending.block.startswith(f"rank {last.rank} of 2")
    assert judge(1, lost, places, None, is_mpirun=True).block.startswith("rank 1 of 2")
    early = [place(1, role="trainer", iteration=-1)]
    assert judge(1, early, {}, None, is_mpirun=True, may_lose_trainers=True).block.startswith("rank 1 of 2")


def test_what_a_rank_said_last_counts_most(tmp_path):
    assert read_end_message(tmp_path) is None
    (tmp_path / "end message").write_text("70\nno progress\nat all")
    said = read_end_message(tmp_path)
    assert said == Ending(70, "no progress\nat all")
    assert judge(1, [place(0)], {}, said, is_mpirun=True) == said
