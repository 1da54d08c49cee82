"""What the tests of a solver's setting up share."""

import pytest

from mgcaffe.solvers.setup import autotune
from tests.support.autotunekit import measure_here


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measures_here(monkeypatch):
    """`autotune` starts no process that measures."""
    monkeypatch.setattr(autotune, "measure", measure_here)
