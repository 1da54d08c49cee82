"""What the nodes of an imported graph become: blobs, or parameters and constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A blob of the net.

    Attributes:
        blob: its name, before layers in place share one.
        shape: with the batch size of the example.
        pad: of a `Padded` value, the zeros in front of each spatial axis.
        whole: its values are whole numbers, which only look-ups of rows read.
        largest: of whole numbers that the graph computes, what none is larger than, without sign; None: not known.
        stands_in: finite numbers are in the place of infinite ones or NaN, so it is not compared with the graph's.
    """

    blob: str
    shape: Shape
    pad: Shape = ()
    whole: bool = field(default=False, kw_only=True)
    largest: int | None = field(default=None, kw_only=True)
    stands_in: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Padded(Value):
    """A blob with zeros around it that the next layer has to add by itself: `pad` in front, `behind` behind."""

    behind: Shape = ()

    @property
    def whole_shape(self) -> Shape:
        """The shape with the zeros."""
        spatial = zip(self.shape[2:], self.pad, self.behind, strict=True)
        return (*self.shape[:2], *(size + one + two for size, one, two in spatial))


@dataclass(frozen=True)
class Constant:
    """A parameter, or another tensor that the graph holds.

    Attributes:
        tensor: its values.
        name: in the graph (of PyTorch: in the module's `state_dict`); empty for one that was computed.
        trained: it is a parameter that wants gradients.
        rows: where the values are the parameter's rows in another order, the number of each in the graph.
        addends: names of further parameters that are in the sum that these values are.
        movers: how many trained parameters the values are the sum of; each has the gradient of the sum.
    """

    tensor: torch.Tensor
    name: str = ""
    trained: bool = False
    rows: Sequence[int] = ()
    addends: Sequence[str] = ()
    movers: int = 1


@dataclass(frozen=True)
class Normalized(Constant):
    """A weight whose rows along axis 0 are those of a parameter, each times a factor that the net computes.

    Attributes:
        factors: a blob, one for each row.
    """

    factors: Value = field(kw_only=True)


Result = Value | Constant | Sequence[Value]
