"""rand_skip of Data: a start that the seed picks, the same one on every rank and after a resume."""

import pytest

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.shard import Shard
from tests.support.datakit import labels, make, numbered


@pytest.fixture
def layer(tmp_path):
    source, made = numbered(tmp_path / "db", 10), []

    def build(rand_skip: int, batch: int = 1, more: str = "", **context):
        fields = f'source: "{source}" backend: LMDB batch_size: {batch} rand_skip: {rand_skip} {more}'
        made.append(make(f'name: "data" type: "Data" top: "data" top: "label" data_param {{ {fields} }}', **context))
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_it_starts_somewhere_below_it_and_goes_on_in_order(layer):
    starts = set()
    for seed in range(30):
        numbers = [batch[0] for batch in labels(layer(4, seed=seed), 12)]
        starts.add(numbers[0])
        assert numbers == [(numbers[0] + n) % 10 for n in range(12)]
    assert starts == {0, 1, 2, 3}


@pytest.mark.parametrize("phase", [0, TEST])
def test_the_same_seed_gives_the_same_start(layer, phase):
    first, second = (labels(layer(9, seed=5, phase=phase), 3) for _ in range(2))
    assert first == second


def test_ranks_agree_on_the_start_and_share_the_records_out(layer):
    whole = [number for batch in labels(layer(9, batch=4, seed=5), 5) for number in batch]
    ranks = [labels(layer(9, batch=2, seed=5, shard=Shard(rank, 2)), 5) for rank in range(2)]
    shared = [number for pair in zip(*ranks, strict=True) for two in zip(*pair, strict=True) for number in two]
    assert shared == whole


def test_a_position_means_the_same_record_after_a_resume(layer):
    running = layer(9, batch=3, seed=5)
    labels(running, 2)
    resumed = layer(9, batch=3, seed=5)
    resumed.seek(running.position())
    assert labels(resumed, 3) == labels(running, 3)


def test_with_shuffle_every_record_comes_once_in_as_many_draws_as_there_are(layer):
    numbers = [batch[0] for batch in labels(layer(3, more="shuffle: true", seed=2), 30)]
    counts = [numbers.count(n) for n in range(10)]
    assert max(counts) <= 4
    assert min(counts) >= 2


def test_without_it_record_0_comes_first(layer):
    assert {labels(layer(0, seed=seed), 1)[0][0] for seed in range(10)} == {0}
