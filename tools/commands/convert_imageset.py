"""`engine convert_imageset`: an LMDB of images (Caffe: tools/convert_imageset.cpp).

Keys are `%08d_<path>`, and records are those of Caffe, byte for byte (engine/data/image_records.py). Images come from a
list, as in Caffe, from a tree of folders, or from tar archives. Beside the database lies a file with the sum of each
record (engine/data/lmdb/sums.py), and, from a tree of folders, `classes.txt`: the folders' names, a line each.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.datasets.command_line import add_backend_flag
from mgcaffe.tools.datasets.image_sources import Entry, ImageSource, read_archives, read_folders, read_image_list
from mgcaffe.tools.datasets.record_progress import RecordProgress
from mgcaffe.tools.flags.parsing import MAX_INT64, FlagParser, Flags, number_from
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.engine.data.image_records import ImageForm, ImageRecord
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter


class Converted(NamedTuple):
    """What became of an entry.

    Attributes:
        entry: the entry.
        key: of its record.
        made: its record, or why there is none.
        checksum: the record's sum, computed where its bytes are in the processor's cache still.
    """

    entry: Entry
    key: bytes
    made: ImageRecord | DataError
    checksum: int


CLASSES_FILE = "classes.txt"
# How many images a thread converts before it hands them on, and how many such parts a thread is ahead.
_PART = 2
_PARTS_AHEAD = 8
_MAX_BYTES = 2**31 - 2**10
"""Of an image's pixels: protobuf's messages have less than 2 GiB."""
_MAX_IMAGES = 10**8
"""Keys have eight digits: that of one more would come before the others."""
_USAGE = {
    "list": "ROOTFOLDER/ LISTFILE DB_NAME",
    "folders": "--source=folders ROOTFOLDER/ DB_NAME",
    "tar": "--source=tar ARCHIVE.tar... DB_NAME",
}


def parser() -> FlagParser:
    """Return the flags of `engine convert_imageset`."""
    flags = FlagParser(
        "convert_imageset",
        "Write an LMDB of the images that a list names, a line each: the path below ROOTFOLDER, a space, the label.\n"
        "Or of a tree of folders, one a class, or of tar archives: see --source.",
        files=("ROOTFOLDER/", "LISTFILE", "DB_NAME"),
        epilog=(
            "examples:\n"
            "  engine convert_imageset --shuffle --resize_height=256 --resize_width=256 images/ train.txt train_lmdb\n"
            "  engine convert_imageset --source=folders --shuffle images/train train_lmdb\n"
            "  engine convert_imageset --source=tar --resume shards/train-000.tar shards/train-001.tar train_lmdb"
        ),
    )
    flags.flag(
        "source",
        "where images and labels come from. list: as above. folders: ROOTFOLDER/ DB_NAME; one folder a class, labels "
        "from 0 in the order of their names, which DB_NAME/classes.txt lists. tar: ARCHIVE.tar... DB_NAME; archives of "
        "the webdataset form, labels in .cls files or as 'label' in .json files",
        choices=tuple(_USAGE), default="list",
    )  # fmt: skip
    flags.switch("gray", "store one channel instead of three")
    flags.switch("shuffle", "store the images in random order")
    flags.flag("shuffle_seed", "which random order", type=number_from(0, MAX_INT64), default=0, metavar="N")
    add_backend_flag(flags)
    flags.flag("resize_width", "width to resize to; 0 keeps it", type=number_from(0), default=0, metavar="N")
    flags.flag("resize_height", "height to resize to; 0 keeps it", type=number_from(0), default=0, metavar="N")
    flags.switch("check_size", "stop where an image has another size than the first")
    flags.switch("encoded", "store image files instead of pixels: smaller, and slower to read")
    flags.flag(
        "encode_type",
        "the kind of image file to store: png, jpg, ...; implies --encoded. Files of another kind are encoded anew",
        default="",
    )  # fmt: skip
    flags.flag(
        "threads", "images to convert at a time (default: as many as there are cores)", type=number_from(1), metavar="N"
    )
    flags.switch(
        "resume",
        "go on with the records of the same command that was interrupted, in DB_NAME.partial, if there are any",
    )
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the database; images that cannot be read are reported and left out, as Caffe does."""
    session.refuse_ranks("convert_imageset")
    form = _form(flags)
    start_logging(speaks=True)
    from mgcaffe.engine.data.lmdb.writer import LmdbWriter
    from mgcaffe.tools.running.process import speed_up_memory

    speed_up_memory()  # pixels of every image would be mapped anew, which takes a fifth of the processor time
    target = flags.files[-1]
    source = _source(flags)
    for note in source.notes:
        log_line(note, level=logging.WARNING)
    entries = source.entries
    if len(entries) > _MAX_IMAGES:
        raise DataError(f"{len(entries)} images are too many for keys of eight digits; {_MAX_IMAGES} is the most")
    if flags.shuffle:
        from mgcaffe.engine.data import random_numbers

        log_line("Shuffling data")
        order = random_numbers.permutation(random_numbers.stream(flags.shuffle_seed, "convert_imageset"), len(entries))
        entries = [entries[number] for number in order]
    log_line(f"A total of {len(entries)} images.", "convert_imageset.cpp:89")
    is_main = threading.current_thread() is threading.main_thread()  # no other may handle signals
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    try:
        with LmdbWriter(target, work=_work(entries, form), resume=flags.resume) as writer:
            if source.classes:
                writer.add_file(CLASSES_FILE, os.fsencode("".join(f"{name}\n" for name in source.classes)))
            changed = _convert(writer, entries, form, flags)
    except KeyboardInterrupt:
        if not Path(target).exists():  # else all that was left to do was making it last
            log_line("Interrupted: the same command with --resume goes on from here.")
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    log_line(f"Processed {writer.count} files.", "convert_imageset.cpp:153")
    if writer.count < len(entries):
        log_line(f"{len(entries) - writer.count} images could not be read and were left out.", level=logging.WARNING)
    if changed:
        kind, field = ("three channels", "force_color") if form.color else ("one channel", "force_gray")
        log_line(
            f"{changed} images are stored as the files that they are, which do not have {kind}:"
            f" set transform_param {{ {field}: true }} in the data layer",
            level=logging.WARNING,
        )
    return EXIT_OK


def _form(flags: Flags) -> ImageForm:
    from mgcaffe.engine.data.image_records import ENCODINGS, ImageForm

    wanted = {"list": 3, "folders": 2}.get(flags.source)
    count = len(flags.files)
    if count != wanted if wanted else count < 2:
        number = {3: "three names", 2: "two names", None: "two names or more"}[wanted]
        with_source = "" if flags.source == "list" else f" --source={flags.source}"
        raise UsageError(
            f"convert_imageset{with_source} takes {number}, not {count}",
            hint=f"engine convert_imageset [flags] {_USAGE[flags.source]}",
        )
    if flags.backend != "lmdb":
        raise UsageError("LevelDB databases are not written here", hint="use --backend=lmdb")
    if bool(flags.resize_height) != bool(flags.resize_width):
        raise UsageError("--resize_height and --resize_width go together", hint="give both or neither")
    if flags.resize_height * flags.resize_width * (1 if flags.gray else 3) > _MAX_BYTES:
        raise UsageError(
            f"images of {flags.resize_height} x {flags.resize_width} pixels have more than the {_MAX_BYTES} bytes that"
            " a record can hold"
        )
    if flags.encode_type and flags.encode_type.lower() not in ENCODINGS:
        raise UsageError(f"--encode_type={flags.encode_type}: known types are {', '.join(ENCODINGS)}")
    size = (flags.resize_height, flags.resize_width) if flags.resize_height else None
    return ImageForm(not flags.gray, size, flags.encoded or bool(flags.encode_type), flags.encode_type.lower())


def _source(flags: Flags) -> ImageSource:
    if flags.source == "folders":
        return read_folders(flags.files[0])
    if flags.source == "tar":
        return read_archives(flags.files[:-1])
    return read_image_list(*flags.files[:2])


def _work(entries: Sequence[Entry], form: ImageForm) -> str:
    """Return a digest of all that the records follow from, but the images' own contents."""
    digest = hashlib.sha256(repr(form).encode())
    for entry in entries:
        digest.update(
            f"{entry.name}\0{entry.label}\0{entry.path}\0{entry.offset}\0{entry.size}\n".encode(
                errors="surrogateescape"
            )
        )
    return digest.hexdigest()


def _convert(writer: LmdbWriter, entries: Sequence[Entry], form: ImageForm, flags: Flags) -> int:
    """Write the records that are missing, and return how many hold a file with another number of channels."""
    from mgcaffe.engine.data.datum import decode_datum

    begin, shape, changed = 0, None, 0
    if writer.last_key is not None and writer.first_value is not None:
        begin = int(writer.last_key.partition(b"_")[0]) + 1
        log_line(f"Going on after {writer.count} records of the run that was interrupted.")
        shape = decode_datum(writer.first_value, form.color if form.encoded else None)[0].shape
    threads = flags.threads or len(os.sched_getaffinity(0))
    with RecordProgress(len(entries), "convert_imageset.cpp:144", done=begin) as progress:
        for entry, key, made, checksum in _converted(entries, begin, form, threads):
            if isinstance(made, DataError):
                log_line(
                    f"{entry.location}: image '{_image(entry)}' is left out: {made.message}", level=logging.WARNING
                )
                progress.advance(None)
                continue
            shape = shape or made.shape
            if flags.check_size and made.shape != shape:
                raise DataError(
                    f"image '{_image(entry)}' has shape {_times(made.shape)}, the first one {_times(shape)}",
                    location=entry.location,
                )
            changed += made.stored_channels != made.shape[0]
            writer.put(key, *made.parts, checksum=checksum)
            progress.advance(writer.count)
    if not writer.count:
        raise DataError(
            f"none of the {len(entries)} images of '{flags.files[-2]}' can be read", hint=_missing_slash(flags)
        )
    return changed


def _missing_slash(flags: Flags) -> str | None:
    root = flags.files[0]
    if flags.source != "list" or not root or root.endswith("/") or not Path(root).is_dir():
        return None
    return f"'{root}' stands in front of each path as it is; say '{root}/'"


def _image(entry: Entry) -> str:
    """Return what to call an entry's image in a message."""
    return entry.path if entry.size is None else entry.name


def _converted(entries: Sequence[Entry], begin: int, form: ImageForm, threads: int) -> Iterator[Converted]:
    """Return what becomes of each entry from `begin` on, in order, made by threads ahead."""
    numbers = range(begin, len(entries))
    if threads == 1:  # one thread alone has each record in the processor's cache still when it is written
        for number in numbers:
            yield _attempt(entries[number], number, form)
        return
    waiting: deque[Future[list[Converted]]] = deque()
    pool = ThreadPoolExecutor(threads)

    def convert(part: range) -> list[Converted]:
        return [_attempt(entries[number], number, form) for number in part]

    try:
        for start in range(0, len(numbers), _PART):
            waiting.append(pool.submit(convert, numbers[start : start + _PART]))
            if len(waiting) > _PARTS_AHEAD * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(entry: Entry, number: int, form: ImageForm) -> Converted:
    from mgcaffe.engine.data.image_records import record_of_file
    from mgcaffe.engine.data.lmdb.sums import record_sum

    key = b"%08d_%s" % (number, os.fsencode(entry.name))
    try:
        made = record_of_file(entry.read(), entry.label, form, Path(entry.name).suffix[1:])
    except OSError as error:
        return Converted(entry, key, DataError(str(error.strerror)), 0)
    except DataError as error:
        return Converted(entry, key, error, 0)
    return Converted(entry, key, made, record_sum(key, *made.parts))


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
