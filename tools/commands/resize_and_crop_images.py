"""`engine resize_and_crop_images`: square images of one size, cut from the middle of others.

(Caffe: tools/extra/resize_and_crop_images.py.)

With `--image_lib=opencv` the shorter side is resized to the length that is asked for, as OpenCV does it without
smoothing, and the middle of the longer one kept. With `--image_lib=PIL` the middle is cut out first, and made smaller
with Pillow's LANCZOS filter, never larger; the result is a JPEG file of quality 75. An image appears complete or not at
all.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_OK, DataError, EngineError, UsageError
from mgcaffe.tools.datasets.image_sources import IMAGE_ENDINGS
from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from PIL import Image

_PIL_QUALITY = 75


def parser() -> FlagParser:
    """Return the flags of `engine resize_and_crop_images`."""
    flags = FlagParser(
        "resize_and_crop_images",
        "Resize images and keep the square in their middle.",
        epilog=(
            "example:\n"
            "  engine resize_and_crop_images --input_folder=images --output_folder=squares --output_side_length=256"
        ),
    )
    flags.flag("input_folder", "the folder with the images", default="", metavar="DIR")
    flags.flag("output_folder", "where the new ones go, under the same names", default="", metavar="DIR")
    flags.flag("output_side_length", "side of the new images", type=number_from(1), default=256, metavar="N")
    flags.flag(
        "input", "a list of images, one a line, below input_folder; otherwise all images there are", metavar="FILE"
    )
    flags.flag("image_lib", "opencv or PIL: which of Caffe's two ways", default="opencv", metavar="NAME")
    flags.flag(
        "num_clients", "images to work on at a time (default: as many as there are cores)",
        type=number_from(1), metavar="N",
    )  # fmt: skip
    flags.switch("resume", "leave out images that are in output_folder already")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the images; those that cannot be read are reported and left out."""
    session.refuse_ranks("resize_and_crop_images")
    _check(flags)
    start_logging(speaks=True)
    names = _names(flags)
    _remove_unfinished(names, Path(flags.output_folder))
    convert = partial(_attempt, flags=flags)
    left_out = written = 0
    with (
        ThreadPoolExecutor(flags.num_clients or len(os.sched_getaffinity(0))) as pool,
        RecordProgress(len(names)) as progress,
    ):
        for name, problem in zip(names, pool.map(convert, names), strict=True):
            if problem is None:
                written += 1
                progress.advance(written)
                continue
            log_line(f"'{Path(flags.input_folder) / name}' is left out: {problem}", level=logging.WARNING)
            left_out += 1
            progress.advance(None)
    if not written:
        raise DataError(f"none of the {len(names)} images of '{flags.input_folder}' can be read")
    log_line(f"Processed {written} files.")
    if left_out:
        log_line(f"{left_out} images could not be read and were left out.", level=logging.WARNING)
    return EXIT_OK


def _check(flags: Flags) -> None:
    for name in ("input_folder", "output_folder"):
        if not getattr(flags, name):
            raise UsageError(f"--{name} is missing", hint="engine resize_and_crop_images --help shows an example")
    if flags.image_lib.lower() not in ("opencv", "pil"):
        raise UsageError(f"--image_lib={flags.image_lib}: known are opencv and PIL")
    source = Path(flags.input_folder)
    if not source.is_dir():
        raise DataError(f"'{flags.input_folder}' is no folder")
    if source.resolve() == Path(flags.output_folder).resolve():
        raise UsageError("--input_folder and --output_folder are the same, so the images would be overwritten")


def _names(flags: Flags) -> list[str]:
    """Return the images below input_folder that are to be converted.

    Raises:
        DataError: there are none, or the list cannot be read or names a place outside the folder.
    """
    top = Path(flags.input_folder)
    if flags.input is None:
        target = Path(flags.output_folder).resolve()
        files = sorted(path for path in top.rglob("*") if path.suffix.lower() in IMAGE_ENDINGS and path.is_file())
        names = [path.relative_to(top).as_posix() for path in files if target not in path.resolve().parents]
        if not names:
            raise DataError(f"'{flags.input_folder}' holds no images", hint=f"known: {', '.join(IMAGE_ENDINGS)}")
        return names
    from mgcaffe.engine.data.file_lists import check_listed, read_list

    names = []
    for line, location in read_list(flags.input):
        # As in a list for convert_imageset, a label may follow.
        path, _, label = line.rpartition(" ")
        name = path.strip() if path and label.lstrip("-").isdecimal() else line
        check_listed(name, location)
        name = name.removeprefix(flags.input_folder).lstrip("/")
        if ".." in Path(name).parts:
            raise DataError(f"'{name}' lies outside of --input_folder", location=location)
        names.append(name)
    return names


def _remove_unfinished(names: Sequence[str], folder: Path) -> None:
    """Remove what runs left of these images that were killed while they wrote one."""
    from mgcaffe.errors.whole_files import ASIDE, is_abandoned

    targets = {folder / name for name in names}
    pattern = re.compile("(.+)" + ASIDE, re.DOTALL)
    for parent in {target.parent for target in targets}:
        with contextlib.suppress(OSError):  # mostly since it is not there
            for path in parent.iterdir():
                match = pattern.fullmatch(path.name)
                if match is not None and parent / match[1] in targets and is_abandoned(path, int(match[2])):
                    path.unlink()


def _attempt(name: str, flags: Flags) -> str | None:
    """Convert an image; return what is wrong with it."""
    target = Path(flags.output_folder) / name
    if flags.resume and target.exists():
        return None
    try:
        content = (Path(flags.input_folder) / name).read_bytes()
    except OSError as error:
        return str(error.strerror)
    make = square_by_pillow if flags.image_lib.lower() == "pil" else square_as_opencv
    try:
        made = make(content, flags.output_side_length, target.suffix[1:].lower())
    except DataError as error:
        return error.message
    from mgcaffe.errors.whole_files import write_whole

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, made)
    except OSError as error:
        raise EngineError(f"cannot write {target}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    return None


def square_as_opencv(content: bytes, side: int, extension: str) -> bytes:
    """Return the image file of the square in the middle of an image, its shorter side resized to `side`.

    Raises:
        DataError: it is no image, or none of a kind that can be written.
    """
    from mgcaffe.engine.data.image_records import encode_image
    from mgcaffe.engine.data.images.decoding import decode_image, resized

    image = decode_image(content, color=True)
    height, width = image.shape[1:]
    if height > width:
        new_height, new_width = side * height // width, side
    else:
        new_height, new_width = side, side * width // height
    image = resized(image, new_height, new_width)
    top, left = (new_height - side) // 2, (new_width - side) // 2
    square = image[:, top : top + side, left : left + side]
    return encode_image([plane.tobytes() for plane in square], (3, side, side), extension)


def square_by_pillow(content: bytes, side: int, extension: str) -> bytes:
    """Return the JPEG file of the square in the middle of an image, at most `side` long.

    Raises:
        DataError: it is no image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            made = _square(image, side)
            buffer = io.BytesIO()
            made.save(buffer, "JPEG", quality=_PIL_QUALITY)
    except UnidentifiedImageError:
        raise DataError("it is no image") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"it cannot be converted: {error}") from None
    return buffer.getvalue()


def _square(image: Image.Image, side: int) -> Image.Image:
    from PIL import Image

    if image.mode not in ("L", "RGB", "CMYK", "YCbCr"):  # a JPEG file holds no palette and no transparency
        image = image.convert("L" if image.mode in ("1", "LA") else "RGB")
    factor = 1
    while image.width / factor > 2 * side and image.height * 2 / factor > 2 * side:
        factor *= 2
    if factor > 1:
        image.thumbnail((image.width // factor, image.height // factor), Image.Resampling.NEAREST)
    image = image.crop(_middle(image.size))
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image


def _middle(size: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the square in the middle of an image: left, top, right, bottom."""
    width, height = size
    if height > width:
        return 0, int(height / 2 - width / 2), width, int(height / 2 + width / 2)
    return int(width / 2 - height / 2), 0, int(width / 2 + height / 2), height
