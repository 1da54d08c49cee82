"""`engine compute_image_mean`: the mean image of a database, for `mean_file` (Caffe: tools/compute_image_mean.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import log_line, number, start_logging
from mgcaffe.tools.record_images import read_image
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.types import Array

_TELL_EVERY = 10000


def parser() -> FlagParser:
    """Return the flags of `engine compute_image_mean`."""
    flags = FlagParser(
        "compute_image_mean",
        "Compute the mean image of a database, for mean_file, and the mean of each channel, for mean_value.",
        files=("INPUT_DB", "[OUTPUT_FILE]"),
        epilog="example:\n  engine compute_image_mean train_lmdb mean.binaryproto",
    )
    flags.flag("backend", "taken as in Caffe; what INPUT_DB holds decides", choices=("lmdb", "leveldb"), default="lmdb")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Add the images up, write the mean if a file is named, and log the channels' means."""
    session.refuse_ranks("compute_image_mean")
    if len(flags.files) not in (1, 2):
        raise UsageError(
            f"compute_image_mean takes one or two names, not {len(flags.files)}",
            hint="engine compute_image_mean INPUT_DB [OUTPUT_FILE]",
        )
    start_logging(speaks=True)
    mean = mean_image(flags.files[0])
    if len(flags.files) == 2:
        log_line(f"Write to {flags.files[1]}", "compute_image_mean.cpp:108")
        write_mean(flags.files[1], mean)
    log_line(f"Number of channels: {len(mean)}", "compute_image_mean.cpp:114")
    for channel, value in enumerate(mean.mean(axis=(1, 2)).tolist()):
        log_line(f"mean_value channel [{channel}]: {number(value)}", "compute_image_mean.cpp:119")
    return EXIT_OK


def mean_image(folder: str) -> Array:
    """Return the mean of all images, channels x height x width, added up in float64.

    Raises:
        DataError: the database or a record is damaged, or the images are not of one size.
    """
    import numpy as np

    from mgcaffe.engine.data.databases import open_records

    source = open_records(folder)
    total: Array | None = None
    for record in range(len(source)):
        image, _ = read_image(source, record)
        if total is None:
            total = np.zeros(image.shape)
        if image.shape != total.shape:
            shapes = [" x ".join(map(str, shape)) for shape in (image.shape, total.shape)]
            raise DataError(
                f"{source.describe(record)} has shape {shapes[0]}, the first one {shapes[1]}",
                hint="resize them: engine convert_imageset --resize_height=N --resize_width=N ...",
            )
        total += image
        if (record + 1) % _TELL_EVERY == 0:
            log_line(f"Processed {record + 1} files.", "compute_image_mean.cpp:97")
    if len(source) % _TELL_EVERY:
        log_line(f"Processed {len(source)} files.", "compute_image_mean.cpp:101")
    assert total is not None  # open_records refuses an empty database
    mean: Array = total / len(source)
    return mean


def write_mean(path: str, mean: Array) -> None:
    """Write a mean image as a BlobProto of shape 1 x channels x height x width, as Caffe does.

    Raises:
        EngineError: (exit code 73) it cannot be written.
    """
    import numpy as np

    from mgcaffe.errors.whole_files import write_output
    from mgcaffe.prototxt import BlobProto

    channels, height, width = mean.shape
    blob = BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(mean.astype(np.float32).ravel().tolist())
    write_output(path, blob.SerializeToString())
