"""What the functions that write layers in other formats have in common: refusals, and the types that no format has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from mgcaffe.engine.layer import Layer

_READS_RECORDS = "it reads records, where a converted model is fed: convert the deploy net"

WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData"), _READS_RECORDS),
    "CriteoData": _READS_RECORDS,
    **dict.fromkeys(("AUC", "NormalizedEntropy"), "it judges a whole test, where a model computes a batch"),
    "HDF5Output": "it writes a file",
    "Python": "what it computes is a program",
}
"""The types that have no equivalent, and why."""

WEIGHTS_OF_CLASSES = dict.fromkeys(("weight_by_label_freqs", "class_weighting"), "as in training")
"""Fields of losses that the layers themselves refuse where they would count."""

INPUT = "Input"
"""The type whose tops are the inputs of the model."""


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

    def need_allowance(self, name: str, message: str, what_happens: str) -> None:
        """Go on only where the user allows that something is written otherwise than it is.

        Args:
            name: what `--allow` calls it.
            message: what cannot be expressed.
            what_happens: what is written instead, where it is allowed.
        """
        if name not in self._allow:
            self.refuse(message, hint=f"--allow={name} writes it so that {what_happens}")
