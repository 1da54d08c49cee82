"""What a format of models is made of: a reader, a writer, and what both are given. format_tables.py has them all.

A reader opens a model as an `Opened`: something that can be run, and, unless it is only there to be compared, brought
into the form between all formats. A writer writes files, and runs what it has written.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import UsageError

if TYPE_CHECKING:
    from mgcaffe.engine.net import Net
    from mgcaffe.tools.convert.model import Model
    from mgcaffe.tools.convert.proof import Side
    from mgcaffe.tools.convert.training_step import TrainingSide

Shapes = Sequence[tuple[str, tuple[int, ...]]]

WEIGHTS_ENDINGS = (".caffemodel", ".caffemodel.h5", ".h5")
"""What the names of Caffe's weight files end with."""
ARRAY_ENDINGS = (".safetensors", ".npz")
"""What the names of files of named arrays end with, which may hold weights too."""
CAFFE = "Caffe"
"""The name of the format of nets in prototxt and their weights."""


@dataclass(frozen=True)
class Options:
    """What a user can say about a conversion.

    Attributes:
        input_shapes: (input, shape) pairs; the name '' means the first input.
        seed: of inputs, and of fillers where no weights are given.
        allow: what may be written otherwise than the model says.
        strict: unknown fields in prototxt files are errors.
        note: what a written model says of itself.
    """

    input_shapes: Shapes = ()
    seed: int = 0
    allow: frozenset[str] = field(default_factory=frozenset)
    strict: bool = False
    note: str = ""


class Opened:
    """A model that is to be converted or compared. Subclasses say `side`, and `model` where it can be converted.

    Args:
        words: the names that the user gave for it.
        options: see there.

    Attributes:
        weights_alone: whether it is a file of weights without a net.
        trains: whether it has a `training` step.
        notes: what the user should know of how it was read.
    """

    trains = False
    weights_alone = False

    def __init__(self, words: Sequence[str], options: Options) -> None:
        self.words = list(words)
        self.notes: list[str] = []
        self.options = options

    def model(self) -> Model:
        """Return it in the form between all formats; called once.

        Raises:
            UsageError: this format can be compared but not converted from.
        """
        raise UsageError(f"{self.words[0]} is of a format that nothing can be made from")

    def side(self) -> Side:
        """Return it as something that runs."""
        raise NotImplementedError

    @cached_property
    def source(self) -> Model:
        """What `model` returns."""
        return self.model()

    @cached_property
    def net(self) -> Net:
        """The net of the model, in its TEST phase and with its weights."""
        return self.source.build(seed=self.options.seed)

    def close(self) -> None:
        """Give the memory of the net back; it would be built again where it is asked for."""
        self.__dict__.pop("net", None)
        gc.collect()  # a net's parts point at each other

    def training(self) -> TrainingSide:
        """Return it as something that computes a training step, where `trains` says that there is such a thing."""
        raise NotImplementedError

    def forget(self) -> None:
        """Give all memory back; nothing is asked of it any more."""
        self.__dict__ = {"words": self.words, "options": self.options}
        gc.collect()

    def name_of(self, value: str) -> str | None:
        """Return what the model calls a value of the net (`value_names`); None where it has none such."""
        return self.source.names.get(value)


@dataclass(frozen=True)
class Reader:
    """A format that models are read from.

    Attributes:
        name: what it is called.
        written: how a user writes such a model on the command line.
        matches: whether a model's words are of this format.
        open: opens it; called with the words and the options.
        remark: what the documentation adds.
    """

    name: str
    written: str
    matches: Callable[[Sequence[str]], bool]
    open: Callable[[Sequence[str], Options], Opened]
    remark: str = ""


@dataclass(frozen=True)
class Writer:
    """A format that models are written in.

    Attributes:
        name: what it is called.
        endings: what the names of such files end with.
        files: all files that are written where the user names one of them; the one that is opened first comes first.
        write: writes a model to these files; called with other names than the final ones.
        side: runs what was written.
        training: computes a training step of what was written; None, or gives None, where there is no such thing.
        weights_alone: what is written is weights without a net: their arrays are compared, not values that a net
            computes, and they have to be the same.
    """

    name: str
    endings: tuple[str, ...]
    files: Callable[[Path], Sequence[Path]]
    write: Callable[[Opened, Sequence[Path], Options], None]
    side: Callable[[Sequence[Path], Options], Side]
    training: Callable[[Sequence[Path], Options], TrainingSide | None] | None = None
    weights_alone: bool = False


def ending_of(name: str, endings: Sequence[str]) -> str | None:
    """Return which of the endings, the longest first, a name has, in small letters or others."""
    return next((end for end in sorted(endings, key=len, reverse=True) if name.lower().endswith(end)), None)
