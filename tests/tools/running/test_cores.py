import math

from mgcaffe.tools.running.cores import find_share, read_quota, share_of_cores

HOST = frozenset(range(16))


def test_unbound_ranks_share_the_host():
    share = share_of_cores(HOST, HOST, 4)
    assert (share.threads, share.available, share.warning) == (4, 16, None)


def test_more_ranks_than_cores_still_compute():
    assert share_of_cores(frozenset({0, 1}), frozenset({0, 1}), 4).threads == 1


def test_a_rank_bound_to_one_core_is_warned():
    share = share_of_cores(frozenset({3}), HOST, 2)
    assert share.threads == 1
    assert share.warning is not None and "1 core of the host's 16" in share.warning
    assert "--bind-to none" in share.warning


def test_a_rank_bound_to_its_fair_share_is_fine():
    share = share_of_cores(frozenset(range(8)), HOST, 2)
    assert (share.threads, share.warning) == (8, None)


def test_ranks_that_share_a_bound_set_divide_the_host():
    assert share_of_cores(frozenset(range(8)), HOST, 4).threads == 4


def test_a_containers_quota_limits_the_threads():
    assert share_of_cores(HOST, HOST, 1, quota=2.0).threads == 2


def test_quota_files(tmp_path):
    path = tmp_path / "cpu.max"
    assert read_quota(path) == math.inf
    path.write_text("max 100000\n")
    assert read_quota(path) == math.inf
    path.write_text("250000 100000\n")
    assert read_quota(path) == 2.5
    path.write_text("nonsense")
    assert read_quota(path) == math.inf


def test_this_process_has_a_share():
    assert find_share(1).threads >= 1
