"""One learnable blob of a layer: its values, its gradient, and the multipliers that the solver applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import FillerParameter


class KeptProduct(Protocol):
    """A gradient that is kept as the two matrices whose product it is (`ProductGradient`).

    Attributes:
        left, right: the matrices.
    """

    left: torch.Tensor
    right: torch.Tensor

    @property
    def is_surely_finite(self) -> bool:
        """Whether no value of the gradient can be infinite or NaN; False where that is not certain."""

    def pieces(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield which rows of the gradient come, and these rows, whose memory the next ones use again."""

    def write(self, total: torch.Tensor) -> None:
        """Write the whole gradient to a tensor of its shape."""


@dataclass(eq=False)
class Parameter:
    """A learnable blob.

    A layer declares it in `setup` with shape and filler; the net decides where it lives (in the arena, or
    in the storage of the parameter that it shares) and only then fills it. `data` and `diff` are views
    of shape `shape`.

    Attributes:
        shape: the blob's shape.
        filler: the FillerParameter message that initialises it, or None for zeros.
        name: the name that shares it between layers; empty for none.
        lr_mult: factor on the learning rate.
        decay_mult: factor on the weight decay.
        wanted: whether backward has to compute its gradient.
        owner: the parameter whose values it shares, or None.
        measured: forward itself changes it, solvers do not (a normalisation's statistics).
        initial: the values that it begins with, where a layer gives them itself instead of a filler.
        given: puts the values into `data` that the net's definition holds for it, which come before both.
        explicit_multipliers: those of lr_mult and decay_mult that a prototxt gives for the owned values.
        memory_format: the order in memory of `data` and `diff`.
        fresh: True while `diff` holds nothing of this iteration: the next gradient replaces it.
        keeps_product: whether a gradient that is the product of two much smaller matrices may be kept as these.
        product: the gradient that is kept so, which `diff` does not hold; None: there is none.
    """

    shape: Shape
    filler: FillerParameter | None = None
    name: str = ""
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    wanted: bool = True
    measured: bool = False
    data: torch.Tensor = field(default=None, repr=False)  # type: ignore[assignment]
    diff: torch.Tensor = field(default=None, repr=False)  # type: ignore[assignment]
    owner: Parameter | None = field(default=None, repr=False)
    initial: torch.Tensor | None = field(default=None, repr=False)
    given: Callable[[], None] | None = field(default=None, repr=False)
    explicit_multipliers: dict[str, float] = field(default_factory=dict, repr=False)
    memory_format: torch.memory_format = field(default=torch.contiguous_format, repr=False)
    keeps_product: bool = field(default=False, repr=False)
    product: KeptProduct | None = field(default=None, repr=False)
    _fresh: bool = field(default=True, repr=False)

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def shape_here(self) -> Shape:
        """The shape of the values that lie in this process: of all of them, but for some tables."""
        return self.shape

    @property
    def fresh(self) -> bool:
        """Whether `diff` holds nothing yet, so that a gradient may be written over it."""
        return (self.owner or self)._fresh

    @fresh.setter
    def fresh(self, value: bool) -> None:
        (self.owner or self)._fresh = value

    def accumulate(self, gradient: torch.Tensor) -> None:
        """Add `gradient` (of any shape with the same count, in the parameter's order) to `diff`."""
        gradient = gradient.reshape(self.shape)
        self.complete()
        if self.fresh:
            self.diff.copy_(gradient)
            self.fresh = False
        else:
            self.diff.add_(gradient)

    def accumulate_sum(self, gradients: torch.Tensor) -> None:
        """Add the sum of `gradients`, (any number, *shape), to `diff`."""
        self.complete()
        if self.fresh:
            torch.sum(gradients, 0, out=self.diff)
            self.fresh = False
        else:
            self.diff.add_(gradients.sum(0))

    def complete(self) -> None:
        """Let `diff` hold the gradient, if it is kept as a product, so that something may be added to it."""
        if self.product is not None:
            self.product.write(self.diff)
            self.product = None

    def _readable(self) -> torch.Tensor:
        """Return `diff` with the gradient in it; one that is kept as a product stays that."""
        if self.product is not None:
            self.product.write(self.diff)
        return self.diff

    def beta(self) -> float:
        """0.0 if the next gradient replaces `diff`, else 1.0; marks `diff` as written.

        For operators that accumulate themselves: `diff.addmm_(g, x, beta=parameter.beta())`.
        """
        self.complete()
        beta = 0.0 if self.fresh else 1.0
        self.fresh = False
        return beta

    def freeze(self) -> None:
        """Keep solvers from it, whatever multipliers a prototxt gives."""
        self.lr_mult, self.decay_mult, self.wanted = 0.0, 0.0, False
        self.explicit_multipliers = {}

    def clear_diff(self) -> None:
        """Set the gradient to zero."""
        self.diff.zero_()
        self.fresh, self.product = True, None

    def gradient_values(self) -> torch.Tensor:
        """Return all values of the gradient that may differ from zero, in any shape; they are not to be changed."""
        return self._readable()

    def dense_diff(self) -> torch.Tensor:
        """Return the gradient in the parameter's shape; it is not to be changed."""
        return self._readable()
