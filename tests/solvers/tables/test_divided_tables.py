"""Tables divided among ranks in step: equal to one process, whole tables and parts of them."""

import pytest

from tests.support.tablekit import KINDS, assert_close, table_net, train_tables, write_table_data

ITERATIONS = 200


@pytest.fixture
def folder(tmp_path):
    """A folder with data."""
    write_table_data(tmp_path)
    return tmp_path


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("mode", ["SUM", "MEAN"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_equals_that_of_one_process(folder, kind, mode, size):
    alone = train_tables(1, folder, table_net(folder, 1, mode=mode), KINDS[kind], ITERATIONS)
    divided = train_tables(size, folder, table_net(folder, size, mode=mode), KINDS[kind], ITERATIONS)
    assert_close(divided, alone)
