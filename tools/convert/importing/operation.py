"""One node of a graph, as the functions see it that make layers of operators: names, refusals, layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from mgcaffe.tools.convert.importing.layers_made import LayersMade
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value

COMPUTES_WITH_WHOLE = "it computes with whole numbers, which only Embed and EmbeddingBag read"


class Operation(ABC):
    """One node. An importer's subclass knows the node's arguments, and says how to name its layers and refuse it.

    Args:
        made: takes the layers.
        shape: of the node's value; () where it has none or is a list.

    Attributes:
        made: takes the layers.
        shape: of the node's value; functions set it where they know better.
        rounding: what the result is multiplied by because a factor is float32 in a file; None where that is nothing.
        matrices: for each spatial axis, the weights (new size x size) by which new pixels are sums of pixels, as a file
            holds them in float32; None where they are not.
    """

    def __init__(self, made: LayersMade, shape: Shape) -> None:
        self.made = made
        self.shape = shape
        self.rounding: torch.Tensor | None = None
        self.matrices: Sequence[torch.Tensor] | None = None
        self._part = ""

    @property
    def first_is_batch(self) -> bool:
        """Whether axis 0 is that of the items: behind layers that go over it, or move it, it may be another one."""
        return not self.made.has_steps and not self.made.items_move

    def takes_all_items(self, x: Value, axis: int) -> None:
        """Note that all values along an axis are taken by numbers, which hold for one batch size if it is that axis."""
        if axis == 0 and self.first_is_batch and not self.made.is_fixed(x):
            self.made.all_items.append(self.layer_name(""))

    def multiply_by(self, factor: torch.Tensor | float) -> None:
        """Note how a factor of the result is rounded that the node does not have itself, such as a reciprocal."""
        exact = torch.as_tensor(factor, dtype=torch.float64)
        rounding = exact.float().double() / exact
        self.rounding = None if bool((rounding == 1).all()) else rounding.nan_to_num(1.0)

    @contextmanager
    def step(self, part: str, shape: Shape) -> Iterator[None]:
        """Let layers be that part of the operator where they say nothing of it, and make values of that shape."""
        kept = self._part, self.shape
        self._part, self.shape = part, shape
        yield
        self._part, self.shape = kept

    @abstractmethod
    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise the NetError that names the node and its place."""

    @abstractmethod
    def layer_name(self, part: str) -> str:
        """Return what a layer is to be called, or the part of it where an operator becomes several."""

    def as_blob(self, value: Any, *, padded: bool = False) -> Value:
        """Return a value that has to be a blob, a parameter or constant as one; zeros around it only if `padded`."""
        if isinstance(value, Constant):
            return self.parameter(value)
        if not isinstance(value, Value):
            self.refuse("it computes with a number alone, or a list, where a layer reads a blob")
        if value.whole:
            self.refuse(COMPUTES_WITH_WHOLE)
        if value.pad and not padded:
            self.refuse("zeros are put around an image that no convolution reads", "pad in the convolution itself")
        return value

    def parameter(self, constant: Constant, part: str = "constant") -> Value:
        """Return the top of a Parameter layer, one for each parameter or constant; what is not trained is frozen.

        Args:
            constant: of floating-point numbers.
            part: what it is for, if it has no name.
        """
        shape = tuple(constant.tensor.shape)
        if not constant.tensor.is_floating_point():
            self.refuse(COMPUTES_WITH_WHOLE)

        def make() -> list[Value]:
            name = constant.name or self.layer_name(part)
            fields = {"parameter_param": {"shape": {"dim": shape}}}
            return self.made.add(name, "Parameter", [], [shape], [constant], fields)

        return self.remembered(("parameter", constant.name or id(constant.tensor), shape), make)[0]

    def layer(
        self,
        kind: str,
        bottoms: Sequence[Value],
        shape: Shape | None = None,
        *,
        part: str = "",
        blobs: Sequence[Constant] = (),
        **fields: Any,
    ) -> Value:
        """Add a layer with one top and return it.

        Args:
            kind: its type.
            bottoms: what it reads.
            shape: the top's; None: that of the node's value.
            part: what the layer is for, where an operator becomes several; added to the name.
            blobs: its parameters.
            fields: fields of its LayerParameter; a message as a dictionary.
        """
        return self.layers(kind, bottoms, [self.shape if shape is None else shape], part=part, blobs=blobs, **fields)[0]

    def layers(
        self,
        kind: str,
        bottoms: Sequence[Value],
        shapes: Sequence[Shape],
        *,
        part: str = "",
        blobs: Sequence[Constant] = (),
        **fields: Any,
    ) -> list[Value]:
        """Add a layer with any number of tops and return these; arguments as for `layer`."""
        return self.made.add(self.layer_name(part or self._part), kind, bottoms, shapes, blobs, fields)

    def remembered(self, key: tuple[Any, ...], make: Callable[[], list[Value]]) -> list[Value]:
        """Return what was made for this key before, or make it."""
        return self.made.remembered(key, make)
