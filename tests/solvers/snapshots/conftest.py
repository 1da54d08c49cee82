"""The net that most tests of snapshots train."""

import pytest

from tests.support.solverkit import LEAST_SQUARES, data_layer, write_data


@pytest.fixture
def net(tmp_path):
    listing = write_data(tmp_path)
    return data_layer(listing, 5, "TRAIN") + data_layer(listing, 4, "TEST") + LEAST_SQUARES
