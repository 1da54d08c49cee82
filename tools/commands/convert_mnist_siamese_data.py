"""`engine convert_mnist_siamese_data`: an LMDB of pairs of MNIST's images, for a siamese network.

Keys are `%08d`; a record has channels (2, one for each image of the pair), height, width, data and label: 1 for two
images of one class, else 0. There are as many pairs as images, each of two random ones. Which they are follows from
`--seed` as from Caffe's generator of that seed (MT19937, two numbers of 32 bits a pair, modulo the count); Caffe's tool
takes another seed each time. (Caffe: examples/siamese/convert_mnist_siamese_data.cpp, which writes a LevelDB.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK
from mgcaffe.tools.datasets.command_line import add_backend_flag, check_backend, take_names
from mgcaffe.tools.datasets.mnist_files import read_mnist
from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.types import Array

_NAMES = ("INPUT_IMAGE_FILE", "INPUT_LABEL_FILE", "OUTPUT_DB_FILE")
_MAX_SEED = 2**32 - 1


def parser() -> FlagParser:
    """Return the flags of `engine convert_mnist_siamese_data`."""
    flags = FlagParser(
        "convert_mnist_siamese_data",
        "Write an LMDB of random pairs of MNIST's images, labelled 1 where both are of one class, else 0.",
        files=_NAMES,
        epilog=(
            "example:\n"
            "  engine convert_mnist_siamese_data train-images-idx3-ubyte train-labels-idx1-ubyte siamese_train_lmdb"
        ),
    )
    add_backend_flag(flags)
    flags.flag("seed", "which random pairs", type=number_from(0, _MAX_SEED), default=1701, metavar="N")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the database."""
    session.refuse_ranks("convert_mnist_siamese_data")
    image_file, label_file, target = take_names(flags, "convert_mnist_siamese_data", *_NAMES)
    check_backend(flags.backend)
    start_logging(speaks=True)
    from mgcaffe.engine.data.image_records import pixels_record
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    images, labels = read_mnist(image_file, label_file)
    count, rows, columns = images.shape
    log_line(f"A total of {count} items.")
    log_line(f"Rows: {rows} Cols: {columns}")
    with LmdbWriter(target) as writer, RecordProgress(count) as progress:
        for number, (first, second) in enumerate(random_pairs(flags.seed, count)):
            pixels = images[first].tobytes() + images[second].tobytes()
            label = int(labels[first] == labels[second])
            writer.put(b"%08d" % number, pixels_record(pixels, (2, rows, columns), label))
            progress.advance(writer.count)
    log_line(f"Processed {count} files.")
    return EXIT_OK


def random_pairs(seed: int, count: int) -> Array:
    """Return the numbers of two images for each pair, count x 2."""
    import numpy as np

    # RandomState is seeded as the C++ standard says, and its stream is frozen.
    drawn = np.frombuffer(np.random.RandomState(seed).bytes(8 * count), "<u4")
    return (drawn % np.uint32(count)).astype(np.int64).reshape(count, 2)
