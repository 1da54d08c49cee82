"""Random numbers that follow from seed, name and record number."""

import numpy as np

from mgcaffe.engine.data import random_numbers

STREAM = 16687766222964113329
BITS = [9521127375086637376, 4837492004697829260, 6979966360684188744]


def test_numbers_do_not_change_from_release_to_release():
    stream = random_numbers.stream(1701, "data")
    assert stream == STREAM
    assert random_numbers.bits(stream, [0, 1, 2**63]).tolist() == BITS


def test_limits_are_kept_and_reached_evenly():
    found = random_numbers.below(7, range(60000), np.full(60000, 6))
    counts = np.bincount(found, minlength=6)
    assert len(counts) == 6
    assert np.abs(counts - 10000).max() < 500
    assert not random_numbers.below(7, range(10), np.ones(10, np.int64)).any()


def test_neighbouring_records_and_streams_are_unrelated():
    def signs(stream, first):
        return (random_numbers.bits(stream, range(first, first + 20000)) >> np.uint64(63)).astype(float) - 0.5

    reference = signs(40, 0)
    for other in (signs(40, 1), signs(41, 0), signs(40 ^ 3, 0), signs(40, 2**32)):
        assert abs(np.corrcoef(reference, other)[0, 1]) < 0.04


def test_a_permutation_holds_every_number_once():
    order = random_numbers.permutation(5, 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != random_numbers.permutation(6, 1000).tolist()
