"""What a reader found that it does not know: collected while reading, then reported or raised.

An unknown field is a warning with its place, so that files of every fork can be read, and an error where the
reading is strict. It is never dropped without a warning. (An unknown value of a known field is an error at once: its
default would train something else.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from mgcaffe.errors import Location, PrototxtError
from mgcaffe.prototxt.foreign_text import foreign_note

logger = logging.getLogger("mgcaffe.prototxt")

MAX_SUGGESTIONS = 100
"""How many names are compared with the known ones: a hostile file must not buy itself endless comparisons."""
_MAX_NAME = 64
_MESSAGE = "_param"
_FORMER = {"blobs_lr": "lr_mult", "weight_decay": "decay_mult", "blob_share_mode": "share_mode"}
"""Fields of `layers` before 2015, and what stands for each in the `param` messages of today's `layer`."""
_UNSUPPORTED = frozenset(
    [
        *("CONVOLUTION3D", "DECONVOLUTION3D", "DENSE_IMAGE_DATA", "IMAGE_SEG_DATA", "LOCAL", "POOLING3D"),
        *("SEG_ACCURACY", "UNPOOLING", "UPSAMPLE", "VIDEO_DATA", "VOLUME_DATA"),
    ]
)
"""Types that forks of Caffe added to those of `layers`, and that no layer has here.

UNPOOLING is not POOLING spelled wrongly.
"""


@dataclass
class Problem:
    """One thing that was not known.

    Attributes:
        message: what, without its place.
        location: where.
        suggestion: what it was perhaps meant to be, as a sentence that begins with a space, or nothing.
        field: the name that was unknown.
        excerpt: the line with a caret, empty for a binary file.
        is_top_level: whether it stood outside of every message.
    """

    message: str
    location: Location
    field: str
    suggestion: str = ""
    excerpt: str = ""
    is_top_level: bool = False

    def error(self) -> PrototxtError:
        """Make an error of it."""
        message = f"{self.message}.{self.suggestion}" if self.suggestion else self.message
        full = f"{message}\n{self.excerpt}" if self.excerpt else message
        return PrototxtError(full, location=self.location)


@dataclass
class Problems:
    """All that was not known in one file, in the order of the file.

    Attributes:
        found: the problems.
        foreign: the place, the field and the text of each string that is not UTF-8 (see foreign_text.py).
    """

    found: list[Problem] = field(default_factory=list)
    foreign: list[tuple[Location, str, str]] = field(default_factory=list)
    _suggestions: dict[tuple[str, int], str] = field(default_factory=dict)

    def suggest(self, name: str, known: Iterable[str]) -> str:
        """Give ` Did you mean 'x'?` for the known name nearest to an unknown one, what it became, or nothing."""
        choices = list(known)
        if name in _FORMER and "param" in choices:
            return f" It belongs to the older 'layers'; in 'layer' write it as param {{ {_FORMER[name]}: ... }}."
        if name == "update_interval" and "iter_size" in choices:
            return " It belongs to a fork of Caffe; write it as iter_size."
        if name == "CROP" and "CONVOLUTION" in choices:
            return " It belongs to a fork of Caffe, which works its offset out of the layers between its bottoms."
        if name in _UNSUPPORTED and "CONVOLUTION" in choices:
            return " It belongs to a fork of Caffe, and is not supported."
        key = (name, hash(tuple(choices)))
        if key not in self._suggestions:
            if len(self._suggestions) >= MAX_SUGGESTIONS or len(name) > _MAX_NAME:
                return ""
            near = nearest(name, choices)
            self._suggestions[key] = f" Did you mean '{near}'?" if near else ""
        return self._suggestions[key]

    def report(self, strict: bool) -> None:
        """Warn of each problem through the logger `mgcaffe.prototxt`, or raise the first one under strict.

        One more warning, also under strict, tells of strings that are not UTF-8.

        Raises:
            PrototxtError: there is a problem, and `strict` is set.
        """
        if strict and self.found:
            raise self.found[0].error()
        for problem in self.found:
            logger.warning("%s: %s, ignored.%s", problem.location, problem.message, problem.suggestion)
        if self.foreign:
            logger.warning("%s", foreign_note(self.foreign))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that an unknown one was most likely meant to be, or None.

    The `_param` or `_loss_param` at the end of a layer's message says nothing: without it, center_loss_param is not
    like hinge_loss_param.
    """
    folded = {choice.lower(): choice for choice in known}
    lower = name.lower()
    if not lower.endswith(_MESSAGE):
        near = get_close_matches(lower, folded, n=1, cutoff=0.6)
        return folded[near[0]] if near else None
    stems = {_stem(key): choice for key, choice in folded.items() if key.endswith(_MESSAGE)}
    near = get_close_matches(_stem(lower), stems, n=1, cutoff=0.7)
    return stems[near[0]] if near else None


def _stem(name: str) -> str:
    return name.removesuffix(_MESSAGE).removesuffix("_loss")
