"""The factor on the loss that keeps gradients in the range of IEEE half precision (`precision: "fp16"`).

Numbers of 16 bits lie between 6e-8 and 65504, and many gradients below. The gradients of a loss that is multiplied by S
are multiplied by S too; they are added up in float32, and divided by S as they are used. Where one overflows, no rank
updates its weights, and S is halved; after 2000 updates in a row it is doubled. Start, factors and interval are those
of torch.amp.GradScaler. S is always a power of two, so that nothing but the exponents changes.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import torch

from mgcaffe.engine.kernels.precision import Precision
from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import parse_json

FIRST = 2.0**16
LEAST, MOST = 1.0, 2.0**24
"""Below 1 even the gradients themselves overflow; beyond 2^24 float32 would be the next to overflow."""

INTERVAL = 2000
"""After how many updates in a row the scale is doubled."""


@dataclass(frozen=True)
class LossScaleState:
    """What a snapshot has to hold.

    Attributes:
        scale: the factor on the next iteration's loss.
        updates: how many updates have been made in a row since it changed.
    """

    scale: float = FIRST
    updates: int = 0

    def encode(self) -> bytes:
        """Encode the state for a snapshot."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(content: bytes) -> LossScaleState:
        """Read what `encode` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            values = parse_json(content, "solverstate", "the loss scale is damaged")
            scale = values["scale"].number(least=LEAST, most=MOST)
            state = LossScaleState(scale, values["updates"].integer(least=0, most=INTERVAL - 1))
        except DataError as error:
            raise ValueError(error.message) from None
        if math.frexp(scale)[0] != 0.5:
            raise ValueError(f"the loss scale is damaged: {scale:g} is no power of two")
        return state


class LossScale:
    """The factor on the loss: of a run in fp16 one that adapts itself, of all others 1.

    Args:
        precision: in how many bits products are computed.

    Attributes:
        state: what a snapshot has to hold; None: the factor is always 1.
    """

    def __init__(self, precision: Precision) -> None:
        self.state = LossScaleState() if precision.operands == torch.float16 else None

    @property
    def value(self) -> float:
        """The factor on the next loss."""
        return 1.0 if self.state is None else self.state.scale

    def updated(self) -> bool:
        """Take note that gradients are finite; return whether the scale has been doubled."""
        if self.state is None:
            return False
        updates = self.state.updates + 1
        if updates < INTERVAL:
            self.state = LossScaleState(self.state.scale, updates)
            return False
        before = self.state.scale
        self.state = LossScaleState(min(MOST, 2 * before))
        return self.state.scale > before

    def overflowed(self) -> bool:
        """Take note that gradients are not finite; return whether the scale has been halved, as it could be."""
        if self.state is None or self.state.scale <= LEAST:
            return False
        self.state = LossScaleState(self.state.scale / 2)
        return True
