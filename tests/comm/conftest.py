"""Ranks of two kinds for the tests of comm: threads that exchange objects, and threads with gloo between them."""

import pytest

from tests.support.gloo import run_gloo_ranks


@pytest.fixture(params=["threads", "gloo"])
def both_transports(request, monkeypatch):
    """Have a module's tests call `run_ranks` of the one kind and then of the other."""
    if request.param == "gloo":
        monkeypatch.setattr(request.module, "run_ranks", run_gloo_ranks)
