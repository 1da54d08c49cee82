"""Functions and modules that a written file defines for itself, where PyTorch has none with Caffe's meaning.

They are texts, since they become part of the user's file. They read sizes from the tensors, so that a written module
takes other batches and images than the net's own, as Caffe does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mgcaffe.tools.convert.torch_out.helper_texts import layers, losses, pooling

_TEXTS: Mapping[str, str] = {**layers.TEXTS, **pooling.TEXTS, **losses.TEXTS}


@dataclass(frozen=True)
class Helper:
    """A definition that is put into files that need it.

    Attributes:
        text: the definition.
        calls: what else it needs.
        imports: modules of Python's that it needs.
    """

    text: str
    calls: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()


def _helper(name: str, text: str) -> Helper:
    calls = (other for other in _TEXTS if other != name and re.search(rf"(?<![\w.]){other}\(", text))
    return Helper(text.strip(), tuple(calls), frozenset({"math"} if "math." in text else ()))


HELPERS: Mapping[str, Helper] = {name: _helper(name, text) for name, text in _TEXTS.items()}
"""By name; what others call stands before them."""
