"""`engine convert_mnist_data`: an LMDB of MNIST's files (Caffe: examples/mnist/convert_mnist_data.cpp).

Keys are `%08d`; a record has channels (1), height, width, data and label.
"""

from __future__ import annotations

from mgcaffe.errors import EXIT_OK
from mgcaffe.tools.datasets.command_line import add_backend_flag, check_backend, take_names
from mgcaffe.tools.datasets.mnist_files import read_mnist
from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

_NAMES = ("INPUT_IMAGE_FILE", "INPUT_LABEL_FILE", "OUTPUT_DB_FILE")


def parser() -> FlagParser:
    """Return the flags of `engine convert_mnist_data`."""
    flags = FlagParser(
        "convert_mnist_data",
        "Write an LMDB of MNIST's images and labels. The files may be packed by gzip.",
        files=_NAMES,
        epilog=(
            "example:\n  engine convert_mnist_data train-images-idx3-ubyte train-labels-idx1-ubyte mnist_train_lmdb"
        ),
    )
    add_backend_flag(flags)
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the database."""
    session.refuse_ranks("convert_mnist_data")
    image_file, label_file, target = take_names(flags, "convert_mnist_data", *_NAMES)
    check_backend(flags.backend)
    start_logging(speaks=True)
    from mgcaffe.engine.data.image_records import pixels_record
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    images, labels = read_mnist(image_file, label_file)
    count, rows, columns = images.shape
    log_line(f"A total of {count} items.")
    log_line(f"Rows: {rows} Cols: {columns}")
    with LmdbWriter(target) as writer, RecordProgress(count) as progress:
        for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            writer.put(b"%08d" % number, pixels_record(image.tobytes(), (1, rows, columns), label))
            progress.advance(writer.count)
    log_line(f"Processed {count} files.")
    return EXIT_OK
