"""MG-WFBP for PyTorch's modules, where DistributedDataParallel stands today (docs/pytorch.md).

from mgcaffe.pytorch import MergedGradientParallel

torch.distributed.init_process_group("gloo")
model = MergedGradientParallel(model)
"""

from __future__ import annotations

from mgcaffe.pytorch.group_step import StepOnGroups
from mgcaffe.pytorch.merged_gradient_parallel import MergedGradientParallel

__all__ = ["MergedGradientParallel", "StepOnGroups"]
