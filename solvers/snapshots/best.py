"""`snapshot_best`: which test output says that a snapshot is the best one so far, and which way is better.

`"accuracy"`: higher is better, since an Accuracy layer (or AUC) makes it. `"loss"`: lower is better, since a loss layer
(or NormalizedEntropy) makes it. `"1:top5:higher"`: output top5 of test net 1, with the direction given.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from mgcaffe.engine import Net, TestShard
from mgcaffe.errors import DataError, SolverError
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.prototxt import Source, nearest
from mgcaffe.solvers.events import OutputValue
from mgcaffe.solvers.source import locate

_FORM = re.compile(r"(?:(?P<net>\d+):)?(?P<output>.+?)(?::(?P<better>higher|lower))?", re.DOTALL)
_LOWER = re.compile(r"loss|err|perplexity|cost|distance", re.IGNORECASE)
_HIGHER = re.compile(r"acc|top[-_]?\d|iou|map$|f1|auc|precision|recall|psnr", re.IGNORECASE)


@dataclass(frozen=True)
class BestScore:
    """The best score so far.

    Attributes:
        net: the test net's number.
        output: the output's name.
        higher: whether more is better.
        value: the score.
        iteration: updates done when it was reached.
    """

    net: int
    output: str
    higher: bool
    value: float
    iteration: int

    def encode(self) -> bytes:
        """Encode the score as JSON, for a solverstate."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, content: bytes) -> BestScore | None:
        """Read the score that `encode` wrote; None if the content is damaged."""
        try:
            values = parse_json(content, "solverstate", "the best score is damaged")
            return cls(
                values["net"].integer(least=0),
                values["output"].text(),
                values["higher"].flag(),
                values["value"].number(),
                values["iteration"].integer(least=0),
            )
        except DataError:
            return None


class BestRule:
    """Decides whether a test's scores are the best so far.

    Args:
        text: the field's value.
        test_nets: the solver's test nets.
        source: where the solver's fields stand.

    Attributes:
        best: the best score whose snapshot is on disk, if any.

    Raises:
        SolverError: no test net has such an output of one number, or it is unclear which way is better.
    """

    def __init__(self, text: str, test_nets: Sequence[Net], source: Source | None = None) -> None:
        self.best: BestScore | None = None
        self._source = source
        match = _FORM.fullmatch(text)
        assert match is not None
        self._output = match["output"]
        self._net = self._find(test_nets, None if match["net"] is None else int(match["net"]))
        better = match["better"] or self._direction(test_nets[self._net])
        self._higher = better == "higher"

    def candidate(self, scores: Sequence[Sequence[OutputValue]], iteration: int) -> BestScore | None:
        """Return the score of a test, if it is better than the best so far; a non-finite one never is.

        Args:
            scores: the scores of each test net.
            iteration: updates done.
        """
        value = next(score.value for score in scores[self._net] if score.name == self._output)
        if not math.isfinite(value):
            return None
        if self.best is not None and (value <= self.best.value if self._higher else value >= self.best.value):
            return None
        return BestScore(self._net, self._output, self._higher, value, iteration)

    def resume(self, best: BestScore | None) -> None:
        """Go on from the best score of an earlier run, if it was judged alike."""
        same = best is not None and (best.net, best.output, best.higher) == (self._net, self._output, self._higher)
        self.best = best if same else None

    def _find(self, test_nets: Sequence[Net], wanted: int | None) -> int:
        if not test_nets:
            self._fail("snapshot_best needs a test net, and the solver has none", "set test_iter and test_interval")
        if wanted is not None and wanted >= len(test_nets):
            self._fail(f"snapshot_best names test net {wanted}, and there are {len(test_nets)}", None)
        chosen = range(len(test_nets)) if wanted is None else [wanted]
        tested = [index for index in chosen if _batches(test_nets[index])]
        if not tested:
            self._fail("snapshot_best needs a test net that is run, and test_iter is 0", "set test_iter above 0")
        for index in tested:
            if self._output not in test_nets[index].outputs:
                continue
            count = test_nets[index].blobs[self._output].count
            if count != 1:
                self._fail(f"snapshot_best names '{self._output}', which is {count} numbers", "choose a single number")
            return index
        names = sorted({name for index in tested for name in test_nets[index].outputs})
        near = nearest(self._output, names)
        guess = f". Did you mean '{near}'?" if near else ""
        self._fail(
            f"snapshot_best names '{self._output}', which is no output of the test net{guess}",
            f"the outputs are {', '.join(names)}",
        )

    def _direction(self, net: Net) -> str:
        makers = [layer.type for layer in net.layers if self._output in layer.param.top]
        if net.loss_weights.get(self._output) or any(kind.endswith(("Loss", "Entropy")) for kind in makers):
            return "lower"
        if "Accuracy" in makers or "AUC" in makers:
            return "higher"
        is_lower, is_higher = bool(_LOWER.search(self._output)), bool(_HIGHER.search(self._output))
        if is_lower == is_higher:
            self._fail(
                f"snapshot_best names '{self._output}', and nothing tells whether more of it is better",
                f'say snapshot_best: "{self._output}:higher" or "{self._output}:lower"',
            )
        return "lower" if is_lower else "higher"

    def _fail(self, message: str, hint: str | None) -> NoReturn:
        raise SolverError(message, location=locate(self._source, "snapshot_best"), hint=hint)


def _batches(net: Net) -> int:
    """Return how many batches a test net's test has."""
    shard = net.context.shard
    assert isinstance(shard, TestShard)
    return shard.test_iter
