"""Lists of files: text files that name a file a line, or an image and its label (Caffe: image_data_layer.cpp)."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import refuse_device, shown_name, what_is_wrong_with_name

_BLANK = " \t\r\n\f\v"
_NUMBER = re.compile(rf"[{_BLANK}]*([+-]?[0-9]+)")
_MOST_DIGITS = 40
_LABELS = range(-(2**31), 2**31)


class ListedImage(NamedTuple):
    """An image of a list.

    Attributes:
        path: as the list has it.
        label: a number of 32 bits.
        location: the line.
    """

    path: str
    label: int
    location: Location


class ImageList(NamedTuple):
    """A list of images.

    Attributes:
        images: in the order of the list.
        note: a warning about lines that do not end in a label, or nothing.
    """

    images: list[ListedImage]
    note: str


def read_source(source: str, what: str) -> bytes:
    """Return what a file holds; `what` is what messages call it.

    Raises:
        DataError: it does not exist, or cannot be read.
    """
    try:
        refuse_device(source)
        return Path(source).read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"{what} '{source}' does not exist",
            hint=f"relative paths start from the working directory, {Path.cwd()}",
        ) from error
    except OSError as error:
        raise DataError(f"{what} '{source}' cannot be read: {error.strerror}") from error


def read_list(source: str) -> list[tuple[str, Location]]:
    """Return the lines of a list and where they stand; empty ones are skipped.

    Bytes that are no UTF-8 are surrogates, as in all names of files that Python gives, so such files are found.

    Raises:
        DataError: the list does not exist, cannot be read, is no text, begins with a byte order mark, or names nothing.
    """
    content = read_source(source, "list of files")
    if b"\0" in content:
        raise DataError(f"'{source}' is no text file; it has to list files, one a line")
    if content.startswith(codecs.BOM_UTF8):
        raise DataError(
            "the list begins with a byte order mark, which would belong to the first name",
            location=Location(source, 1, 1),
            hint="save it as UTF-8 without one",
        )
    texts = (line.decode("utf-8", "surrogateescape").strip(_BLANK) for line in content.splitlines())
    lines = [(text, Location(source, number, 1)) for number, text in enumerate(texts, 1) if text]
    if not lines:
        raise DataError(f"list of files '{source}' names no files")
    return lines


def read_image_list(source: str) -> ImageList:
    """Return the images of a list, each a path, a space and a label.

    As in Caffe the path ends at the last space, and the label is what C's `atoi` makes of the rest: the number that it
    begins with, or 0. A line without a space is a path, and its label is made of it likewise.

    Raises:
        DataError: as `read_list`, or a line names no file, or its label needs more than 32 bits; located.
    """
    images, odd = [], []
    for line, location in read_list(source):
        path, _, text = line.rpartition(" ")
        path = path.strip(_BLANK) or line
        check_listed(path, location)
        number = _NUMBER.match(text)
        images.append(ListedImage(path, _label(number[1], location) if number else 0, location))
        if path is line or number is None or number.end() != len(text):
            odd.append((images[-1], "no space in front of a label" if path is line else f"'{shown_name(text)}'"))
    return ImageList(images, _note(odd) if odd else "")


def check_listed(name: str, location: Location) -> None:
    """Make sure that a line of a list can name a file.

    Raises:
        DataError: it cannot; located.
    """
    problem = what_is_wrong_with_name(name)
    if problem:
        raise DataError(f"'{shown_name(name)}' names no file: {problem}", location=location)


def _label(digits: str, location: Location) -> int:
    label = int(digits) if len(digits) <= _MOST_DIGITS else _LABELS.stop
    if label not in _LABELS:
        raise DataError(f"label {shown_name(digits)} does not fit into 32 bits", location=location)
    return label


def _note(odd: list[tuple[ListedImage, str]]) -> str:
    """Say of the first line that does not end in a label what stands there, and what was made of it."""
    image, found = odd[0]
    others = len(odd) - 1
    more = f"; {others} more {'line does' if others == 1 else 'lines do'} not end in a label" if others else ""
    return (
        f"{image.location}: a line is a path, a space and a label, a whole number, but '{shown_name(image.path)}' has"
        f" {found}; as in Caffe its label is {image.label}{more}"
    )
