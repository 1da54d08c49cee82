"""What the functions that write layers in other formats have in common: refusals, and the types that no format has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NoReturn

import torch

from mgcaffe.engine.data.dummy_data import DummyData
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layer import Layer

READS_RECORDS = "it reads records, where a converted model is fed: convert the deploy net"

WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "CriteoData"), READS_RECORDS),
    **dict.fromkeys(("AUC", "NormalizedEntropy"), "it judges a whole test, where a model computes a batch"),
    "HDF5Output": "it writes a file",
    "Python": "what it computes is a program",
}
"""The types that have no equivalent, and why."""

WEIGHTS_OF_CLASSES = dict.fromkeys(("weight_by_label_freqs", "class_weighting"), "as in training")
"""Fields of losses that the layers themselves refuse where they would count."""

INPUT = "Input"
"""The type whose tops are the inputs of the model."""

DUMMY_REFUSES = {
    "data_filler": "other fillers than constant, which draw at random",
    "nets without an Input layer": "whose data it is: convert the deploy net",
}
"""When a DummyData layer is no constant."""


def refuse_as_data(layer: Layer, nodes: Iterable[Node], target: str) -> None:
    """Refuse a DummyData layer that is the data of its net.

    Raises:
        NetError: the net has no Input layer.
    """
    if layer.type == "DummyData" and not any(node.layer.type == INPUT for node in nodes):
        layer.fail(f"{target} has nothing like DummyData: {READS_RECORDS}")


class LayerWriter:
    """Writes one layer in a format; a base class.

    Args:
        layer: the layer.
        allow: what the user allows to be written otherwise than it is.

    Attributes:
        layer: the layer.
        target: what the format is called.
    """

    target: str

    def __init__(self, layer: Layer, allow: Collection[str]) -> None:
        self.layer = layer
        self._allow = allow

    def refuse(self, message: str, path: str | None = None, hint: str | None = None) -> NoReturn:
        """Fail with the layer's name and place.

        Raises:
            NetError: always (exit code 65).
        """
        self.layer.fail(f"{self.target} cannot express it: {message}", path, hint=hint)

    def constant_tops(self, layer: DummyData) -> list[torch.Tensor]:
        """Return the values of a DummyData layer's tops.

        Raises:
            NetError: they are drawn at random in each pass.
        """
        values = [each for each in layer.first_values() if each is not None]
        if len(values) < len(layer.param.top):
            self.refuse("it draws values at random", "dummy_data_param.data_filler")
        return values

    def need_allowance(self, name: str, message: str, what_happens: str) -> None:
        """Go on only where the user allows that something is written otherwise than it is.

        Args:
            name: what `--allow` calls it.
            message: what cannot be expressed.
            what_happens: what is written instead, where it is allowed.
        """
        if name not in self._allow:
            self.refuse(message, hint=f"--allow={name} writes it so that {what_happens}")
