"""`engine convert_imageset`: an LMDB of the images that a list names (Caffe: tools/convert_imageset.cpp).

Keys are `%08d_<path>`, as Caffe's. Beside the database lies a file with the sum of each record (engine.data.lmdb_sums).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.types import Array
    from mgcaffe.errors import Location
    from mgcaffe.prototxt import Datum

    Made = tuple[Datum, tuple[int, ...]]

# OpenCV's quality, with which Caffe writes JPEG files.
_JPEG_QUALITY = 95
_FORMS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "bmp": "BMP", "tif": "TIFF", "tiff": "TIFF"}
_TELL_EVERY = 1000


@dataclass(frozen=True)
class ImageForm:
    """What becomes of each image.

    Attributes:
        color: three channels, or one.
        size: height and width to resize to; None keeps each image's own.
        encoded: store image files instead of pixels.
        encode_type: of which kind; empty for the kind that each file's name says.
    """

    color: bool
    size: tuple[int, int] | None
    encoded: bool
    encode_type: str


def parser() -> FlagParser:
    """Return the flags of `engine convert_imageset`."""
    flags = FlagParser(
        "convert_imageset",
        "Write an LMDB of the images that a list names, a line each: the path below ROOTFOLDER, a space, the label.",
        files=("ROOTFOLDER/", "LISTFILE", "DB_NAME"),
        epilog=(
            "example:\n  engine convert_imageset --shuffle --resize_height=256 --resize_width=256 images/ train.txt "
            "train_lmdb"
        ),
    )
    flags.switch("gray", "store one channel instead of three")
    flags.switch("shuffle", "store the images in random order")
    flags.flag("shuffle_seed", "which random order", type=number_from(0), default=0, metavar="N")
    flags.flag("backend", "the kind of database", choices=("lmdb", "leveldb"), default="lmdb")
    flags.flag("resize_width", "width to resize to; 0 keeps it", type=number_from(0), default=0, metavar="N")
    flags.flag("resize_height", "height to resize to; 0 keeps it", type=number_from(0), default=0, metavar="N")
    flags.switch("check_size", "stop where an image has another size than the first")
    flags.switch("encoded", "store image files instead of pixels: smaller, and slower to read")
    flags.flag("encode_type", "the kind of image file to store: png, jpg, ...; implies --encoded", default="")
    flags.flag("threads", "images to convert at a time", type=number_from(1), default=2, metavar="N")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the database; images that cannot be read are reported and left out, as Caffe does."""
    session.refuse_ranks("convert_imageset")
    if len(flags.files) != 3:
        raise UsageError(
            f"convert_imageset takes three names, not {len(flags.files)}",
            hint="engine convert_imageset [flags] ROOTFOLDER/ LISTFILE DB_NAME",
        )
    form = _form(flags)
    start_logging(speaks=True)
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    root, listed, target = flags.files
    entries = read_entries(listed)
    if flags.shuffle:
        from mgcaffe.engine.data import random_numbers

        order = random_numbers.permutation(random_numbers.stream(flags.shuffle_seed, "convert_imageset"), len(entries))
        entries = [entries[number] for number in order]
    log_line(f"A total of {len(entries)} images.", "convert_imageset.cpp:89")
    left_out, shape = 0, None
    with LmdbWriter(target) as writer:
        for number, (path, _, location), made in _converted(root, entries, form, flags.threads):
            if isinstance(made, DataError):
                log_line(f"{location}: image '{root}{path}' is left out: {made.message}", level=logging.WARNING)
                left_out += 1
                continue
            datum, found = made
            shape = shape or found
            if flags.check_size and found != shape:
                raise DataError(
                    f"image '{root}{path}' has shape {_times(found)}, the first one {_times(shape)}", location=location
                )
            writer.put(b"%08d_%s" % (number, path.encode()), datum.SerializeToString(deterministic=True))
            if writer.count % _TELL_EVERY == 0:
                log_line(f"Processed {writer.count} files.", "convert_imageset.cpp:144")
        if not writer.count:
            raise DataError(f"none of the {len(entries)} images of '{listed}' can be read")
    log_line(f"Processed {writer.count} files.", "convert_imageset.cpp:153")
    if left_out:
        log_line(f"{left_out} images could not be read and were left out.", level=logging.WARNING)
    return EXIT_OK


def _form(flags: Flags) -> ImageForm:
    if flags.backend != "lmdb":
        raise UsageError("LevelDB databases are not written here", hint="use --backend=lmdb")
    if bool(flags.resize_height) != bool(flags.resize_width):
        raise UsageError("--resize_height and --resize_width go together", hint="give both or neither")
    if flags.encode_type and flags.encode_type.lower() not in _FORMS:
        raise UsageError(f"--encode_type={flags.encode_type}: known types are {', '.join(_FORMS)}")
    size = (flags.resize_height, flags.resize_width) if flags.resize_height else None
    return ImageForm(not flags.gray, size, flags.encoded or bool(flags.encode_type), flags.encode_type.lower())


def read_entries(listed: str) -> list[tuple[str, int, Location]]:
    """Path, label and place of each line of a list.

    Raises:
        DataError: the list cannot be read, or a line does not end in a label.
    """
    from mgcaffe.engine.data.hdf5_files import read_list

    entries = []
    for line, location in read_list(listed):
        path, _, label = line.rpartition(" ")
        try:
            entries.append((path.strip(), int(label), location))
        except ValueError as error:
            raise DataError(f"'{line}' does not end in a label, a whole number", location=location) from error
    return entries


def _converted(
    root: str, entries: Sequence[tuple[str, int, Location]], form: ImageForm, threads: int
) -> Iterator[tuple[int, tuple[str, int, Location], Made | DataError]]:
    """Each entry with its number and what became of it, in order, made by several threads a little ahead."""
    waiting: deque[tuple[int, Future[Made | DataError]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for number, (path, label, _) in enumerate(entries):
            waiting.append((number, pool.submit(_attempt, root + path, label, form)))
            if len(waiting) > 8 * threads:
                first, future = waiting.popleft()
                yield first, entries[first], future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, entries[first], future.result()


def _attempt(path: str, label: int, form: ImageForm) -> Made | DataError:
    try:
        return make_datum(path, label, form)
    except DataError as error:
        return error


def make_datum(path: str, label: int, form: ImageForm) -> Made:
    """Return the Datum of an image file, and the shape that the image has.

    Raises:
        DataError: it cannot be read.
    """
    from mgcaffe.engine.data.images.decoding import decode_image
    from mgcaffe.prototxt import Datum

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(str(error.strerror)) from error
    pixels = decode_image(content, form.color, form.size)
    if not form.encoded:
        channels, height, width = pixels.shape
        datum = Datum(channels=channels, height=height, width=width, label=label, data=pixels.tobytes())
        return datum, pixels.shape
    extension = Path(path).suffix[1:].lower()
    kind = form.encode_type or extension
    if kind not in _FORMS:
        raise DataError(f"an image file of type '{kind}' cannot be written; give --encode_type")
    as_it_is = _FORMS.get(extension) == _FORMS[kind] and form.size is None and _has_color(content) == form.color
    data = content if as_it_is else _encode(pixels, _FORMS[kind])
    return Datum(label=label, encoded=True, data=data), pixels.shape


def _has_color(content: bytes) -> bool:
    from mgcaffe.engine.data.images.decoding import decode_image

    return len(decode_image(content)) == 3


def _encode(pixels: Array, form: str) -> bytes:
    """Return an image file; `pixels` are channels x height x width in the order B, G, R."""
    import io

    import numpy as np
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels[::-1].transpose(1, 2, 0)))
    image.save(buffer, form, **({"quality": _JPEG_QUALITY} if form == "JPEG" else {}))
    return buffer.getvalue()


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
