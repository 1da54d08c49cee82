"""MG-WFBP for PyTorch's modules, where DistributedDataParallel stands today (docs/pytorch.md).

from mgcaffe.pytorch import MergedGradientParallel

torch.distributed.init_process_group("gloo")
model = MergedGradientParallel(model)

For those who stay with DistributedDataParallel: `advise` says which buckets are best, `record_buckets` records them.
`trace_module` measures any module, `RunRecorder` writes the log and the timeline of a training loop.
"""

from __future__ import annotations

from mgcaffe.pytorch.advice.advice import Advice
from mgcaffe.pytorch.advice.advise import advise
from mgcaffe.pytorch.group_step import StepOnGroups
from mgcaffe.pytorch.measuring.module_trace import trace_module
from mgcaffe.pytorch.merged_gradient_parallel import MergedGradientParallel
from mgcaffe.pytorch.recording.bucket_recorder import record_buckets
from mgcaffe.pytorch.recording.run_recorder import RunRecorder

__all__ = [
    "Advice",
    "MergedGradientParallel",
    "RunRecorder",
    "StepOnGroups",
    "advise",
    "record_buckets",
    "trace_module",
]
