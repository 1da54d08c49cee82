"""What a net tells its layers about the world: phase, device, random stream, part of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.kernels.choice.choices import RULES, Choices
from mgcaffe.engine.kernels.precision import FLOAT32, Precision
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import Phase


def _one_rank(value: float) -> float:
    return value


@dataclass
class LayerContext:
    """What a net tells its layers about the world.

    Attributes:
        phase: TRAIN (0) or TEST (1), of the net; a layer's own `phase` field wins for that layer.
        dtype: float32 or float64.
        device: where tensors live.
        stream: the random stream of this net on `device`; layers draw from `generator`.
        seed: the number that data layers derive each record's own random numbers from.
        shard: this rank's part of every data source.
        sum_over_ranks: adds a number up over the ranks that train in step (loss divisors).
        solver_ranks: how many ranks train in step; 1 in a net for tests, whose `sum_over_ranks` changes nothing.
        memory_format: the format that data layers and inputs give to four-dimensional blobs.
        input_shapes: shapes of the records of data layers whose source is absent, by layer name or "*".
        outline: the net is only looked at, so blobs larger than the machine's memory are no mistake.
        choices: which of several ways the heavy operations are computed by.
        precision: in how many bits products are computed.
        runs_again: set by the net while it computes values a second time in a pass (`graph/recomputation.py`): forward
            then leaves its parameters as they are.
        frees_blobs: each blob is freed after its last reader; nobody is to change one between forward and backward.
        divides_tables: the rows of tables are divided among processes, so one may be larger than this machine's memory.
    """

    phase: Phase = Phase.TRAIN
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    stream: torch.Generator = field(default_factory=torch.Generator)
    seed: int = 0
    shard: Shard | TestShard = field(default_factory=Shard)
    sum_over_ranks: Callable[[float], float] = _one_rank
    solver_ranks: int = 1
    memory_format: torch.memory_format = torch.contiguous_format
    input_shapes: Mapping[str, Shape] | None = None
    outline: bool = False
    frees_blobs: bool = False
    divides_tables: bool = False
    choices: Choices = RULES
    precision: Precision = FLOAT32
    runs_again: bool = False
    _restart: Callable[[], int] | None = field(default=None, repr=False)

    @property
    def generator(self) -> torch.Generator:
        """The random stream, restarted where that is due: a pass of a net that draws nothing does not pay for it."""
        if self._restart is not None:
            self.stream.manual_seed(self._restart())
            self._restart = None
        return self.stream

    def restart_stream(self, seed: Callable[[], int]) -> None:
        """Let the random stream begin from what `seed` returns, which is called when it is next drawn from."""
        self._restart = seed
