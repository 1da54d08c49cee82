import pytest

from mgcaffe.engine.shard import BatchShard, Shard, TestShard


def test_one_rank_reads_every_record_in_order():
    shard = Shard()
    assert [list(shard.records(5, batch, 3)) for batch in range(2)] == [[5, 6, 7], [8, 9, 10]]
    assert shard.position(5, 2, 3) == 11


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [0, 7])
def test_the_ranks_together_read_what_one_rank_with_their_batches_joined_reads(ranks, start):
    whole, batch_size = Shard(), 12 // ranks
    for batch in range(3):
        parts = [Shard(rank, ranks).records(start, batch, batch_size) for rank in range(ranks)]
        dealt = [record for hand in zip(*parts, strict=True) for record in hand]
        assert dealt == list(whole.records(start, batch, 12))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_position_is_where_the_next_batch_begins_for_every_number_of_ranks(ranks):
    batch_size = 12 // ranks
    position = Shard(ranks - 1, ranks).position(4, 5, batch_size)
    assert position == 4 + 5 * 12
    assert Shard(0, ranks).records(4, 5, batch_size)[0] == position
    assert Shard(0, 1).records(position, 0, 12)[0] == position


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("test_iter", [1, 2, 5, 8])
def test_a_test_deals_out_whole_batches_each_once(ranks, test_iter):
    shards = [TestShard(rank, ranks, test_iter) for rank in range(ranks)]
    assert sum(shard.batches for shard in shards) == test_iter
    for test in range(2):
        batches = [
            list(shard.records(3, test * shard.batches + batch, 4))
            for shard in shards
            for batch in range(shard.batches)
        ]
        single = TestShard(0, 1, test_iter)
        assert sorted(batches) == [list(single.records(3, test * test_iter + batch, 4)) for batch in range(test_iter)]


def test_a_rank_takes_every_so_manieth_batch_of_a_test():
    shard = TestShard(1, 2, 5)
    assert shard.batches == 2
    assert [shard.records(0, batch, 10)[0] for batch in range(4)] == [10, 30, 60, 80]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_position_after_whole_tests_is_the_same_on_every_rank_that_works(rank):
    shard = TestShard(rank, 3, 4)
    assert shard.position(7, 2 * shard.batches, 5) == 7 + 2 * 4 * 5


def test_a_rank_beyond_the_batches_runs_none():
    shard = TestShard(3, 4, 2)
    assert shard.batches == 0
    assert shard.position(7, 0, 5) == 7


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_sequences_are_dealt_out_in_whole_batches_of_the_same_records(ranks):
    dealt, pieces = Shard(0, ranks), BatchShard(ranks - 1, ranks)
    for batch in range(3):
        parts = [BatchShard(rank, ranks).records(7, batch, 5) for rank in range(ranks)]
        assert [record for part in parts for record in part] == list(Shard().records(7, batch, 5 * ranks))
    assert pieces.position(7, 3, 5) == dealt.position(7, 3, 5) == 7 + 3 * 5 * ranks
