"""Shards of ranks in step: rank 0 hears of each snapshot's own, also after one that it gave up."""

from __future__ import annotations

import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.row_parameter import VALUES, Placement, RowParameter
from mgcaffe.engine.weights.shards import ShardSet
from mgcaffe.solvers.tables.rank_shards import RankShards
from mgcaffe.solvers.tables.shard_holder import ArrayOfTable, SaveOrder, ShardHolder


def test_what_ranks_say_of_a_snapshot_that_was_given_up_is_not_taken_for_the_next_ones(tmp_path):
    """Rank 0 may fail between the order and the wait, for instance while it removes old files."""

    def order(iteration):
        arrays = [ArrayOfTable(0, VALUES, "table/0", 4)]
        return SaveOrder(str(tmp_path), ShardSet(f"net_iter_{iteration}.caffemodel", 2, "ab"), iteration, True, arrays)

    def rank(communicator):
        rows = range(2 * communicator.rank, 2 * communicator.rank + 2)
        table = RowParameter((4, 3), placement=Placement(0, rows, None))
        shards = RankShards(communicator, ShardHolder("rank", [table], lambda *_: torch.ones(2, 3)))
        given_up = shards.begin(order(1))
        finish = shards.begin(order(2))
        names = [each.sum.name for each in finish()] if communicator.rank == 0 else []
        given_up = shards.begin(order(3))
        shards.close()
        return names, given_up

    (names, _), _ = run_ranks(2, rank, timeout_s=5)
    assert names == [f"net_iter_2.caffemodel.shard_{number}_of_2.safetensors" for number in (1, 2)]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 2 and all(name.startswith("net_iter_2") for name in left)  # those of the others are removed
