"""The flags of replicas kept together."""

from __future__ import annotations

import re

from mgcaffe.tools import main


def test_help_says_which_jobs_may_lose_a_trainer(capsys):
    assert main.main(["train", "--help"]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    help_text = text.partition("--on_trainer_loss {stop,continue} ")[2].partition(" --")[0]
    assert "continue, for jobs with synchronization servers" in help_text
