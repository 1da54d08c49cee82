"""The rules by which DistributedDataParallel fills buckets, against PyTorch's own function."""

import random

import pytest
import torch
import torch.distributed as dist

from mgcaffe.pytorch.advice.bucket_rules import BucketRules, Gradient, fill_buckets

MIB = 2**20


@pytest.mark.parametrize("seed", range(40))
def test_buckets_are_those_of_pytorch(seed):
    choose = random.Random(seed)
    types = [torch.float32, torch.float64, torch.bfloat16][: 1 + seed % 3]
    tensors = [torch.empty(choose.randrange(1000), dtype=choose.choice(types)) for _ in range(choose.randrange(1, 40))]
    limits = [choose.randrange(1, 5000) for _ in range(choose.randrange(1, 4))]
    gradients = [Gradient(each.nbytes, (each.dtype, each.device)) for each in tensors]
    sparse = [False] * len(tensors)
    by_parameters, _ = dist._compute_bucket_assignment_by_size(tensors, limits, sparse)
    assert fill_buckets(gradients, limits, sort=True) == by_parameters
    by_order, _ = dist._compute_bucket_assignment_by_size(tensors, limits, sparse, list(range(len(tensors))))
    found = fill_buckets(gradients, limits)
    # In which order the last buckets of several types come is not said.
    assert sorted(found) == sorted(by_order)
    assert len(types) > 1 or found == by_order


def test_the_first_bucket_is_small_unless_a_size_is_given():
    gradients = [Gradient(MIB, "float32")] * 60
    order = list(reversed(range(60)))
    default = BucketRules.default(by_readiness=True).buckets(gradients, order)
    assert [len(bucket) for bucket in default] == [1, 25, 25, 9] and default[0] == [59]
    capped = BucketRules.capped(25, by_readiness=True).buckets(gradients, order)
    assert [len(bucket) for bucket in capped] == [25, 25, 10]


def test_buckets_that_are_made_once_follow_the_parameters():
    gradients = [Gradient(MIB, "float32")] * 4
    rules = BucketRules.default(by_readiness=False)
    assert rules.buckets(gradients, [0, 1, 2, 3]) == [[1, 2, 3], [0]]
