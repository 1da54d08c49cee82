"""A module of PyTorch while it is being written: attributes, statements, and arrays that are not copied.

Arrays stay where they are (a net's weights in its arena) until a file is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.torch_out.helpers import HELPERS
from mgcaffe.tools.convert.torch_out.names import attribute_names


@dataclass(frozen=True)
class Array:
    """A parameter or buffer.

    Attributes:
        name: in the module's `state_dict`.
        tensor: its values.
        place: layer and number of the trained blob that it is; None: it is none.
        transposed: the blob's two axes have changed places.
    """

    name: str
    tensor: torch.Tensor
    place: tuple[str, int] | None = None
    transposed: bool = False


@dataclass(frozen=True)
class Statement:
    """An assignment in `forward`.

    Attributes:
        targets: the variables.
        text: the expression.
        values: what the net calls what is assigned.
        shapes: its sizes there.
        comment: what stands behind it.
    """

    targets: tuple[str, ...]
    text: str
    values: tuple[str, ...]
    shapes: tuple[Shape, ...]
    comment: str = ""


@dataclass(frozen=True)
class Value:
    """An input or output: its variable, its name in the net, its shape there."""

    variable: str
    name: str
    shape: Shape


@dataclass
class Module:
    """What the text of a file is made of.

    Attributes:
        name: the class.
        attributes: what makes each of them, by name; None: a buffer.
        buffers: the shapes of the buffers, as text.
        statements: those of `forward`, in order.
        inputs, outputs: of `forward`, in order.
        arrays: the `state_dict`, by name.
        helpers: what of HELPERS is called.
        imports: modules of Python's.
    """

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._names = attribute_names()

    def add_attribute(self, wished: str, constructor: str | None, shape: str = "") -> str:
        """Add an attribute and return its name.

        Args:
            wished: the name that it gets if that is possible.
            constructor: the expression that makes it; None: a buffer.
            shape: the buffer's shape, as text.
        """
        name = self._names.new(wished)
        self.attributes[name] = constructor
        if constructor is None:
            self.buffers[name] = shape
        return name

    def store(self, array: Array) -> None:
        """Add an array."""
        self.arrays[array.name] = array

    def use(self, helper: str) -> None:
        """Put a helper into the file, with those that it calls."""
        self.helpers.add(helper)
        self.imports |= HELPERS[helper].imports
        for other in HELPERS[helper].calls:
            self.use(other)

    def document(self) -> dict[str, Any]:
        """Return, as JSON, what the net calls the module's variables and parameters.

        `values` has a row for each statement of `forward`; `parameters` the layer and number of each trained blob, and
        whether it is transposed.
        """
        return {
            "inputs": {value.name: list(value.shape) for value in self.inputs},
            "outputs": [value.name for value in self.outputs],
            "values": [list(statement.values) for statement in self.statements],
            "parameters": {
                array.name: [*array.place, array.transposed] for array in self.arrays.values() if array.place
            },
        }
