"""`engine convert_cifar_data`: LMDBs of CIFAR-10's binary files (Caffe: examples/cifar10/convert_cifar_data.cpp).

It writes `cifar10_train_lmdb` (data_batch_1.bin to data_batch_5.bin) and `cifar10_test_lmdb` (test_batch.bin). Keys are
`%05d`; a record has channels (3: red, green, blue, as in the files, unlike images that OpenCV decodes), height, width,
data and label.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, DataError, Location
from mgcaffe.tools.datasets.command_line import check_backend, take_names
from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

_NAMES = ("INPUT_FOLDER", "OUTPUT_FOLDER", "DB_TYPE")
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS
_RECORDS = 10000
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)


def parser() -> FlagParser:
    """Return the flags of `engine convert_cifar_data`."""
    return FlagParser(
        "convert_cifar_data",
        "Write OUTPUT_FOLDER/cifar10_train_lmdb and cifar10_test_lmdb of CIFAR-10's binary files in INPUT_FOLDER.\n"
        "DB_TYPE is lmdb.",
        files=_NAMES,
        epilog="example:\n  engine convert_cifar_data data/cifar10 examples/cifar10 lmdb",
    )


def run(flags: Flags, session: Session) -> int:
    """Write both databases."""
    session.refuse_ranks("convert_cifar_data")
    source, target, backend = take_names(flags, "convert_cifar_data", *_NAMES)
    check_backend(backend)
    start_logging(speaks=True)
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter

    parts = {"train": [_read(source, name) for name in _TRAIN], "test": [_read(source, name) for name in _TEST]}
    folder = Path(target)
    # Both are open from the start, so that nothing is written where one of them exists.
    with LmdbWriter(folder / "cifar10_train_lmdb") as train, LmdbWriter(folder / "cifar10_test_lmdb") as test:
        log_line("Writing Training data")
        _write(train, parts["train"])
        log_line("Writing Testing data")
        _write(test, parts["test"])
    log_line(f"Processed {train.count} training and {test.count} test images.")
    return EXIT_OK


def _read(folder: str, name: str) -> bytes:
    """Return the records of a file.

    Raises:
        DataError: it cannot be read, or holds no whole number of records.
    """
    path = Path(folder) / name
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"'{path}' does not exist", hint="INPUT_FOLDER has to hold the unpacked files of cifar-10-binary.tar.gz"
        ) from error
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from error
    if not content or len(content) % _RECORD or len(content) > _RECORDS * _RECORD:
        raise DataError(
            f"it has {len(content)} bytes; {_RECORDS} records of {_RECORD} bytes are {_RECORDS * _RECORD}",
            location=Location(str(path)),
            hint="download it again; the files of CIFAR-100 and those for Python have another form",
        )
    if len(content) < _RECORDS * _RECORD:
        log_line(
            f"{path}: {len(content) // _RECORD} records, where CIFAR-10's files have {_RECORDS}", level=logging.WARNING
        )
    return content


def _write(writer: LmdbWriter, files: Sequence[bytes]) -> None:
    from mgcaffe.engine.data.image_records import pixels_record

    total = sum(len(content) // _RECORD for content in files)
    with RecordProgress(total, line="Processed {count} images.") as progress:
        for number, content in enumerate(files):
            if len(files) > 1:
                log_line(f"Training Batch {number + 1}")
            for item, start in enumerate(range(0, len(content), _RECORD)):
                pixels = content[start + 1 : start + _RECORD]
                writer.put(b"%05d" % (number * _RECORDS + item), pixels_record(pixels, _SHAPE, content[start]))
                progress.advance(writer.count)
