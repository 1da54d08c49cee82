"""What the tests of images share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.datakit import datum, images, write_lmdb


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An LMDB of two images."""
    return write_lmdb(tmp_path / "db", [datum(image) for image in images(2)])
