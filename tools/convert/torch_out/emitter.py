"""What a layer type's function is given to write its part of a module with."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.importing.activations import LARGEST
from mgcaffe.tools.convert.layer_writer import LayerWriter
from mgcaffe.tools.convert.torch_out.module import Array, Module
from mgcaffe.tools.convert.training_step import Place


@dataclass(frozen=True)
class Together:
    """One expression that gives all tops of a layer.

    Attributes:
        text: the expression.
    """

    text: str


Write = Callable[["Emitter", Any], Sequence[str] | Together]


@dataclass(frozen=True)
class Operator:
    """How a layer type is written: an entry of the table in operators.py.

    Attributes:
        layer_type: the type.
        write: gives the expressions of the tops.
        becomes: the modules and functions of PyTorch, and the helpers, that these may call, in a text with commas.
        refuses: by field (or what else decides), what cannot be written, for the documentation.
        without_effect: fields that count nowhere.
    """

    layer_type: str
    write: Write
    becomes: str
    refuses: dict[str, str] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blob:
    """A parameter of a layer, in the form in which the module has it.

    Attributes:
        number: which of the layer's.
        shape: the shape that it gets; None: its own.
        transposed: its two axes change places.
        values: what stands for it in the module, where that isn't the parameter itself.
        layer: whose it is; None: the layer's that is written.
    """

    number: int
    shape: Shape | None = None
    transposed: bool = False
    values: torch.Tensor | None = None
    layer: Layer | None = None


class Emitter(LayerWriter):
    """Writes one layer: attributes of the module, and the expressions of the tops.

    Attributes:
        layer: the layer.
        bottoms: the variables that it reads.
        bottom_shapes, top_shapes: their sizes.
        top_count: how many tops it has.
        stateless: what is written cannot keep anything from one call to the next.
        follower: the layer that follows at once and works in place on this one's only top, or None.
        took_follower: whether what is written does that layer's work too.

    Args:
        module: what is written to.
        node: the layer in its net.
        bottoms: see the attributes.
        placed: where each parameter, by identity, is in the module by now.
        gradient_places: by identity, what a proof calls each parameter's gradient.
        allow: what the user allows to be written otherwise than it is.
        stateless, follower: see the attributes.
    """

    target = "PyTorch"

    def __init__(
        self,
        module: Module,
        node: Node,
        bottoms: Sequence[str],
        placed: dict[int, Array],
        gradient_places: Mapping[int, Place],
        allow: Collection[str],
        *,
        stateless: bool = False,
        follower: Node | None = None,
    ) -> None:
        super().__init__(node.layer, allow)
        self.bottoms = list(bottoms)
        self.bottom_shapes = [tuple(shape) for shape in node.shapes]
        self.top_shapes = [tuple(blob.shape) for blob in node.tops]
        self.top_count = len(node.tops)
        self.stateless = stateless
        self.follower, self.took_follower = follower, False
        self._module = module
        self._placed, self._gradient_places = placed, gradient_places

    @property
    def x(self) -> str:
        """The first bottom."""
        return self.bottoms[0]

    @property
    def rank(self) -> int:
        """How many axes the first bottom has."""
        return len(self.bottom_shapes[0])

    # -- attributes --------------------------------------------------------------------------------------

    def attribute(self, constructor: str, blobs: Mapping[str, Blob] | None = None) -> str | None:
        """Add a module as an attribute and return it; a layer with the same parameters has the same one.

        Args:
            constructor: the expression that makes it.
            blobs: its parameters and buffers, by name.

        Returns:
            The expression, or None where some of the parameters are another layer's and others are not.
        """
        blobs = blobs or {}
        owners = {name: self._placed.get(self._identity(blob)) for name, blob in blobs.items()}
        if not any(owners.values()):
            name = self._module.add_attribute(self.layer.name, constructor)
            for part, blob in blobs.items():
                self._store(f"{name}.{part}", blob)
            return f"self.{name}"
        homes = {array.name.partition(".")[0] for array in owners.values() if array}
        home = homes.pop() if len(homes) == 1 else ""
        same = all(
            array is not None and array.name == f"{home}.{name}" and self._same_form(array, blobs[name])
            for name, array in owners.items()
        )
        return f"self.{home}" if same and self._module.attributes.get(home) == constructor else None

    def whole_attribute(self, constructor: str, blobs: Mapping[str, Blob]) -> str:
        """Add a module as `attribute` does, of a type that cannot share some of its parameters.

        Raises:
            NetError: it would have to.
        """
        found = self.attribute(constructor, blobs)
        if found is None:
            self.refuse("it shares its parameters with a layer of another form", "param")
        return found

    def parameter(self, part: str, blob: Blob) -> str:
        """Add a parameter as an attribute and return it; a shared one is there once.

        Args:
            part: what it is of the layer, as "bias"; "": the layer's only one.
            blob: which one.
        """
        array = self._placed.get(self._identity(blob))
        if array is None:
            shape = self._form(blob).shape
            wished = f"{self.layer.name}_{part}" if part else self.layer.name
            name = self._module.add_attribute(wished, f"nn.Parameter(torch.zeros({sizes_text(tuple(shape))}))")
            self._store(name, blob)
            return f"self.{name}"
        if self._same_form(array, blob):
            return f"self.{array.name}"
        turned = f"self.{array.name}.T" if array.transposed else f"self.{array.name}"
        given = self._parameter(blob).shape if blob.shape is None else blob.shape
        return f"{turned}.reshape({sizes_text(given)})" + (".T" if blob.transposed else "")

    def buffer(self, part: str, values: torch.Tensor) -> str:
        """Add values that are no parameter of the net's, and return them."""
        name = self._module.add_attribute(f"{self.layer.name}_{part}", None, sizes_text(tuple(values.shape)))
        self._module.store(Array(name, values))
        return f"self.{name}"

    def constant_buffer(self, name: str, values: torch.Tensor) -> None:
        """Store a buffer of a module that PyTorch adds by itself."""
        self._module.store(Array(name, values))

    def _store(self, name: str, blob: Blob) -> None:
        parameter = self._parameter(blob)
        trained = blob.values is None and not parameter.measured
        place = self._gradient_places[id(parameter)] if trained else None
        array = Array(name, self._form(blob), place, blob.transposed)
        self._module.store(array)
        self._placed.setdefault(self._identity(blob), array)

    def _parameter(self, blob: Blob) -> Parameter:
        return (blob.layer or self.layer).parameters[blob.number]

    def _identity(self, blob: Blob) -> int:
        parameter = self._parameter(blob)
        return id(parameter.owner or parameter)

    def _form(self, blob: Blob) -> torch.Tensor:
        """Return the values as the module has them."""
        values = (self._parameter(blob).data if blob.values is None else blob.values).detach()
        if blob.shape is not None:
            values = values.reshape(blob.shape)
        return values.t() if blob.transposed else values

    def _same_form(self, array: Array, blob: Blob) -> bool:
        return array.transposed == blob.transposed and array.tensor.shape == self._form(blob).shape

    # -- the rest of the file ----------------------------------------------------------------------------

    def helper(self, name: str) -> str:
        """Return the name of a helper, which is then in the file."""
        self._module.use(name)
        return name

    def need_import(self, name: str) -> None:
        """Have the file import a module of Python's."""
        self._module.imports.add(name)


def number(value: float) -> str:
    """Return a number as it was written in the prototxt, whose fields are float32: 0.1, not 0.10000000149."""
    short = float(str(np.float32(value)))
    if not np.isfinite(short):
        return f'float("{short}")'
    if abs(short) > LARGEST:  # rounded for the reader, which PyTorch takes for an overflow
        return repr(float(np.float32(value)))
    whole = int(short)
    return str(whole) if whole == short and abs(short) < 1e6 else repr(short)


def shape_text(sizes: Sequence[int]) -> str:
    """Return a tuple's text; a single size without brackets."""
    return str(sizes[0]) if len(sizes) == 1 else str(tuple(sizes))


def sizes_text(sizes: Sequence[int]) -> str:
    """Return sizes as the arguments of a call."""
    return ", ".join(map(str, sizes)) if sizes else "()"


def pair(sizes: Sequence[int]) -> str:
    """Return one number where all sizes are the same, else a tuple."""
    return str(sizes[0]) if len(set(sizes)) == 1 else shape_text(tuple(sizes))


def powered(base: str, exponent: str) -> str:
    """Return a power, with spaces and brackets where an operand is more than a name or number.

    A minus in front of the base needs brackets too: -x**2 is -(x**2).
    """
    patterns = ((r"[\w.]+", base), (r"-?[\w.]+", exponent))
    simple = [bool(re.fullmatch(pattern, each)) for pattern, each in patterns]
    operands = [each if is_simple else f"({each})" for each, is_simple in zip((base, exponent), simple, strict=True)]
    return ("**" if all(simple) else " ** ").join(operands)


def call(function: str, *arguments: str, **fields: tuple[str, str]) -> str:
    """Return a call.

    Args:
        function: what is called.
        arguments: in their order.
        fields: the text and the default of each named argument; it is left away where both are the same.
    """
    named = [f"{name}={text}" for name, (text, default) in fields.items() if text != default]
    return f"{function}({', '.join([*arguments, *named])})"
