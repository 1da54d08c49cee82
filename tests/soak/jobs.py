"""Jobs of three ranks through the launcher, with faults in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.jobs import JobResult, RunningJob
from tests.support.launcher import launch_command
from tests.support.paths import PROGRAMS

RANKS = 3
MAX_S = 150.0
"""A job that takes longer hangs: on a busy machine the set-up alone can take half a minute."""
_PATIENCE_S = 1.0
"""For so long after the end of a job one of its processes may still be there."""

_NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 16 dim: 8 } shape { dim: 16 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""

_SOLVER = """
net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" momentum: 0.9 max_iter: {max_iter} display: 100
test_iter: 30 test_interval: 50 snapshot: 40 snapshot_keep: 2 snapshot_prefix: "small" random_seed: 7 solver_mode: CPU
comm_param {{ schedule: WFBP }}
"""


class Job(RunningJob):
    """One job in a folder of its own.

    Args:
        folder: where; net and solver are written there.
        words: flags of `engine train` beside the solver.
        fault: `rank:point:how:occurrence`, as `faulty_engine` reads it.
        max_iter: where training ends.
    """

    def __init__(self, folder: Path, words: Sequence[str] = (), *, fault: str = "", max_iter: int = 10_000_000) -> None:
        (folder / "net.prototxt").write_text(_NET)
        (folder / "solver.prototxt").write_text(_SOLVER.format(max_iter=max_iter))
        super().__init__(
            launch_command(PROGRAMS / "faulty_engine.py", "-np", str(RANKS), *words, "solver.prototxt"),
            environment={"RECORD": str(folder), "FAULT": fault},
            cwd=folder,
            places_files=False,
        )

    def await_(self, condition: Callable[[], bool], timeout: float = MAX_S) -> bool:
        """Wait until something holds; False if the job ended first or it took longer."""
        return super().await_(condition, timeout)

    def end(self, timeout: float = MAX_S, *, patience_s: float = _PATIENCE_S) -> JobResult:
        """Wait for the end; a job that hangs is killed and has no code."""
        return super().end(timeout, patience_s=patience_s)
