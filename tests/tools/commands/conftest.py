"""What the tests of several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_command import LMDB_NET


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which holds a net whose data is not at hand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(LMDB_NET)
    return tmp_path
