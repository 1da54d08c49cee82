"""Window files, as R-CNN's tools write them: images, and in each the windows that a net is trained on.

    # 0                            the image's number, which is not used: a window belongs to the image above it
    folder/image.jpg               its path
    3                              its channels, height and width, and how many windows follow
    375
    500
    2
    7 0.83 10 20 110 220            of each window: label, overlap with an object, and the corners x1 y1 x2 y2, from 0,
    7 0.12 30 5 80 90               both included

Empty lines are skipped. A window whose overlap reaches the foreground threshold is foreground; one whose overlap is
below the background threshold is background, with label 0; others are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.file_lists import check_listed, read_source
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import shown_name

_NUMBERS_A_WINDOW = 6
_MAX_NUMBER = 2**31 - 1


class WindowImage(NamedTuple):
    """An image of a window file: its path, its size as the file says, and where it says so."""

    path: str
    channels: int
    height: int
    width: int
    location: Location


class Window(NamedTuple):
    """A window: the number of its image, its label, its corners (both inside), and the line that describes it."""

    image: int
    label: int
    x1: int
    y1: int
    x2: int
    y2: int
    line: int


@dataclass(frozen=True)
class WindowFile:
    """What a window file says.

    Attributes:
        source: its path.
        images: in its order.
        foreground, background: one row of `Window` each, int64.
    """

    source: str
    images: Sequence[WindowImage]
    foreground: NDArray[np.int64]
    background: NDArray[np.int64]

    @property
    def channels(self) -> int:
        """Of all images."""
        return self.images[0].channels


class _Lines:
    """The lines of the file that are not empty, one after the other, each with its number."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        self._next = 0

    @property
    def ended(self) -> bool:
        return self._next == len(self._lines)

    def take(self, what: str) -> tuple[str, Location]:
        """Return the next line.

        Raises:
            DataError: there is none; says what should stand there.
        """
        if self.ended:
            last = self._lines[-1][0] if self._lines else 1
            raise DataError(
                f"the window file ends where {what} should follow", location=Location(self._source, last, 1)
            )
        number, line = self._lines[self._next]
        self._next += 1
        return line, Location(self._source, number, 1)

    def number(self, what: str, least: int) -> int:
        """Return the next line as a whole number.

        Raises:
            DataError: it is none, or below `least`.
        """
        line, location = self.take(what)
        try:
            value = int(line)
        except ValueError:
            value = least - 1
        if not least <= value <= _MAX_NUMBER:
            raise DataError(f"'{shown_name(line)}' is not {what}, a whole number from {least} on", location=location)
        return value

    def windows(self, count: int, path: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the numbers of the next `count` lines, six each, and the lines' own numbers."""
        taken = self._lines[self._next : self._next + count]
        rows = [line.split() for _, line in taken]
        try:
            if any(len(row) != _NUMBERS_A_WINDOW for row in rows):
                raise ValueError
            values = np.array(rows, dtype=np.float64).reshape(-1, _NUMBERS_A_WINDOW)
        except ValueError:
            self._fail_at_bad_window(taken)
        self._next += len(taken)
        if len(taken) < count:
            self.take(f"window {len(taken) + 1} of {count} of image '{path}'")
        return values, np.array([number for number, _ in taken], dtype=np.int64)

    def _fail_at_bad_window(self, lines: Sequence[tuple[int, str]]) -> None:
        for number, line in lines:
            try:
                if len([float(word) for word in line.split()]) == _NUMBERS_A_WINDOW:
                    continue
            except ValueError:
                pass
            location = Location(self._source, number, 1)
            raise DataError(f"'{shown_name(line)}' is not a window: label, overlap, x1, y1, x2, y2", location=location)
        raise AssertionError("every line is a window")


def read_window_file(source: str, root: str, foreground: float, background: float) -> WindowFile:
    """Read a window file.

    Args:
        source: its path.
        root: put in front of each image's path.
        foreground: the overlap from which on a window is foreground.
        background: the overlap below which it is background, unless it is foreground.

    Raises:
        DataError: the file is missing, or a line does not fit; located.
    """
    lines = _Lines(source, _read_text(source))
    images: list[WindowImage] = []
    windows: list[NDArray[np.int64]] = []
    overlaps: list[NDArray[np.float32]] = []
    while not lines.ended:
        image = _read_image(lines, root)
        if images and image.channels != images[0].channels:
            raise DataError(
                f"image '{image.path}' has {image.channels} channel(s), those before have {images[0].channels}",
                location=image.location,
            )
        values, numbers = lines.windows(lines.number(f"the number of windows of '{image.path}'", 0), image.path)
        overlaps.append(values[:, 1].astype(np.float32))
        windows.append(_as_windows(values, numbers, len(images), source))
        images.append(image)
    if not images:
        raise DataError(f"window file '{source}' names no images", location=Location(source))
    return _divide(source, images, np.concatenate(windows), np.concatenate(overlaps), foreground, background)


def _read_text(source: str) -> str:
    try:
        return read_source(source, "window file").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"'{source}' is no text file; it has to be a window file") from error


def _read_image(lines: _Lines, root: str) -> WindowImage:
    """Return the head of an image's block, up to its size."""
    line, location = lines.take("'# NUMBER'")
    words = line.split()
    if len(words) != 2 or words[0] != "#" or not words[1].isdigit():
        raise DataError(
            f"'{shown_name(line)}' stands where the next image begins, with '# NUMBER'",
            location=location,
            hint="an image's number of windows has to be that of the lines that follow it",
        )
    path, location = lines.take("the path of an image")
    check_listed(path, location)
    sizes = [lines.number(f"the {what} of '{path}'", 1) for what in ("number of channels", "height", "width")]
    if sizes[0] not in (1, 3):
        raise DataError(
            f"image '{path}' has {sizes[0]} channels; 3 (colour) or 1 (grey) can be read", location=location
        )
    return WindowImage(root + path, sizes[0], sizes[1], sizes[2], location)


def _as_windows(values: NDArray[np.float64], numbers: NDArray[np.int64], image: int, source: str) -> NDArray[np.int64]:
    """Return rows of `Window`; check that labels and corner are whole numbers, and that no window is empty."""
    kept = values[:, [0, 2, 3, 4, 5]]
    whole = (kept == np.rint(kept)).all(axis=1) & (np.abs(kept) < 2**31).all(axis=1)
    _require(whole, numbers, source, "labels and corners have to be whole numbers")
    corners = kept[:, 1:]
    full = (corners[:, 0] <= corners[:, 2]) & (corners[:, 1] <= corners[:, 3])
    _require(full, numbers, source, "the window is empty: x1 has to be at most x2, and y1 at most y2")
    rows = np.empty((len(kept), len(Window._fields)), np.int64)
    rows[:, 0], rows[:, 1:6], rows[:, 6] = image, kept, numbers
    return rows


def _divide(
    source: str,
    images: Sequence[WindowImage],
    windows: NDArray[np.int64],
    overlaps: NDArray[np.float32],
    foreground: float,
    background: float,
) -> WindowFile:
    """Sort the windows into foreground and background. Caffe compares in single precision."""
    in_front = overlaps >= np.float32(foreground)
    labels, numbers = windows[:, 1], windows[:, 6]
    _require(~in_front | (labels > 0), numbers, source, "the label of a foreground window has to be at least 1")
    behind = windows[~in_front & (overlaps < np.float32(background))]
    behind[:, 1] = 0
    return WindowFile(source, images, windows[in_front], behind)


def _require(good: NDArray[np.bool_], numbers: NDArray[np.int64], source: str, rule: str) -> None:
    if not good.all():
        raise DataError(rule, location=Location(source, int(numbers[int(np.argmin(good))]), 1))
