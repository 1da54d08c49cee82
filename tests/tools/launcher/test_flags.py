"""The flags that the launcher keeps from its ranks."""

from __future__ import annotations

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.tools.commands import train
from mgcaffe.tools.launcher.flags import is_launcher, words_for_ranks
from tests.support.launcher import parse


def test_the_ranks_see_all_flags_but_the_launchers():
    flags = parse("-np", "2", "--max_restarts=3", "--schedule=wfbp", "-H", "a:2", "-mpirun_args", "-v", "--rescue")
    assert is_launcher(flags) and words_for_ranks(flags.words) == ["--schedule=wfbp", "solver.prototxt"]
    assert not is_launcher(parse("--schedule=wfbp"))


@pytest.mark.parametrize("words", [["--rescue"], ["--mpirun_args=-v"]])
def test_a_flag_for_mpirun_without_ranks_is_a_usage_error(words):
    with pytest.raises(UsageError, match="is for mpirun, which --np starts"):
        is_launcher(parse(*words))


def test_what_the_launcher_alone_gives_is_not_in_the_help():
    text = train.parser().format_help()
    assert "--max_restarts" in text and "restarted" not in text
    assert parse("--restarted=5").restarted == 5.0
