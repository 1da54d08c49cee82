"""What tests of solvers with embedding tables share."""

from __future__ import annotations

import pytest

from tests.support.tablekit import write_table_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with generated data for `tablekit.table_net`."""
    folder = tmp_path_factory.mktemp("tables")
    write_table_data(folder)
    return folder
