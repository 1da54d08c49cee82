"""What bucket sizes of DistributedDataParallel would cost, and what merged groups that are planned would give."""
