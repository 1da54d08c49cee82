"""What a layer type's function is given to write its nodes with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.types import Shape
from mgcaffe.tools.convert.layer_writer import LayerWriter
from mgcaffe.tools.convert.onnx_out.graph import FLOAT, INT64, Graph

Write = Callable[["Emitter", Any], Sequence[str]]


@dataclass(frozen=True)
class Operator:
    """How a layer type is written: an entry of the table in operators.py.

    Attributes:
        layer_type: the type.
        write: gives the names of the tops' values, having added the nodes that make them.
        becomes: ONNX's operators that its nodes may be, in a text with commas.
        refuses: by field (or what else decides), what cannot be written, for the documentation.
        without_effect: fields that count in training only, or not at all.
        any_batch: what is written holds for any number of items, as behind a Filter.
    """

    layer_type: str
    write: Write
    becomes: str
    refuses: dict[str, str] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()
    any_batch: bool = False


class Emitter(LayerWriter):
    """Adds the nodes of one layer to the graph.

    Attributes:
        layer: the layer.
        bottoms: the names of the values that it reads.
        bottom_shapes, top_shapes: their sizes.
        top_count: how many tops it has.
        varies: whether the number of items is known only when the model runs.

    Args:
        graph: where the nodes go.
        node: the layer in its net.
        bottoms: see the attributes.
        weights: the names of the parameters that are in the graph already, by identity and shape.
        allow: what the user allows to be written otherwise than it is.
        varies: see the attributes.
    """

    target = "ONNX"

    def __init__(
        self,
        graph: Graph,
        node: Node,
        bottoms: Sequence[str],
        weights: dict[tuple[int, Shape], str],
        allow: Collection[str],
        *,
        varies: bool = False,
    ) -> None:
        super().__init__(node.layer, allow)
        self.bottoms = list(bottoms)
        self.bottom_shapes = [tuple(shape) for shape in node.shapes]
        self.top_shapes = [tuple(blob.shape) for blob in node.tops]
        self.top_count = len(node.tops)
        self._graph = graph
        self._weights = weights
        self.varies = varies
        self._first_node = len(graph.nodes)

    @property
    def x(self) -> str:
        """The first bottom."""
        return self.bottoms[0]

    # -- nodes -------------------------------------------------------------------------------------------

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that."""
        return self.nodes(operator, inputs, 1, **attributes)[0]

    def nodes(self, operator: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add a node and return its outputs."""
        name = self._graph.new_name(f"{self.layer.name}:{operator}")
        values = [name] + [self._graph.new_name(f"{name}:{number}") for number in range(1, outputs)]
        self._graph.node(operator, inputs, values, name, **attributes)
        return values

    def finish(self, values: Sequence[str], tops: Sequence[str]) -> None:
        """Give the tops their names: to the nodes that make them, or by an Identity where another layer's value is one.

        Args:
            values: what the layer's function returned.
            tops: the names.
        """
        mine = self._graph.nodes[self._first_node :]
        made = {output for node in mine for output in node.output}
        renamed: dict[str, str] = {}
        for value, top in zip(values, tops, strict=True):
            if value not in made or value in renamed:
                name = self._graph.new_name(f"{self.layer.name}:Identity")
                self._graph.node("Identity", [renamed.get(value, value)], [top], name)
                continue
            renamed[value] = top
            for node in mine:
                for names in (node.input, node.output):
                    for place, name in enumerate(names):
                        if name == value:
                            names[place] = top

    def lower_opset(self, most: int) -> None:
        """Write the model for operators of an older version, for an operator whose newer form nothing can run."""
        self._graph.opset = min(self._graph.opset, most)

    # -- arrays ------------------------------------------------------------------------------------------

    def weight(self, number: int, shape: Shape | None = None) -> str:
        """Add a parameter, named layer/number, and return its name; a shared one is there once.

        Args:
            number: which of the layer's parameters.
            shape: the shape to give it; None: its own.
        """
        parameter = self.layer.parameters[number]
        shape = tuple(parameter.shape) if shape is None else shape
        key = (id(parameter.owner or parameter), shape)
        if key not in self._weights:
            self._weights[key] = self.computed_weight(number, parameter.data.reshape(shape))
        return self._weights[key]

    def computed_weight(self, number: int, values: torch.Tensor) -> str:
        """Add an array that stands for a parameter under the name layer/number, and return its name."""
        array = values.detach().to("cpu", torch.float32).numpy()
        return self._graph.array(array, f"{self.layer.name}/{number}")

    def floats(self, values: float | Sequence[float] | np.ndarray) -> str:
        """Add a constant of float32 values (of no axes, for a single number) and return its name."""
        return self._graph.constant(np.asarray(values, np.float32), f"{self.layer.name}:constant")

    def integers(self, *values: int) -> str:
        """Add a constant with one axis of int64 values and return its name."""
        return self._graph.constant(np.asarray(values, np.int64), f"{self.layer.name}:constant")

    # -- what many types need ----------------------------------------------------------------------------

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Return x with another shape; sizes may be 0 or -1 as ONNX means them."""
        if self.varies and (not shape or shape[0] > 0):
            self.refuse_varying()
        return self.node("Reshape", x, self.integers(*shape))

    def scaled(self, x: str, factor: float, shift: float = 0.0) -> str:
        """Return factor x + shift, without the nodes that would do nothing."""
        if factor != 1:
            x = self.node("Mul", x, self.floats(factor))
        return x if shift == 0 else self.node("Add", x, self.floats(shift))

    def to_integers(self, x: str) -> str:
        """Return x as int64; fractions are cut off."""
        return self.node("Cast", x, to=INT64)

    def to_floats(self, x: str) -> str:
        """Return x as float32."""
        return self.node("Cast", x, to=FLOAT)

    def sums(self, x: str, axes: Sequence[int], *, keep: bool = True, operator: str = "ReduceSum") -> str:
        """Return the sums (or what else the operator makes) over axes; over none, that of each value by itself."""
        return self.node(operator, x, self.integers(*axes), keepdims=int(keep), noop_with_empty_axes=int(not axes))

    # -- what cannot be written --------------------------------------------------------------------------

    def refuse_varying(self) -> NoReturn:
        """Refuse what needs to know how many items there are.

        Raises:
            NetError: always (exit code 65).
        """
        self.refuse("the number of items behind a Filter varies, but this layer's form here needs to know it")
