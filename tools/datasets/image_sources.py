"""Where convert_imageset finds images and their labels: a list, a tree of folders, archives of the webdataset form.

Each source is read into entries first, so that they can be shuffled, converted by several threads and resumed.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mgcaffe.errors import DataError, Location
from mgcaffe.errors.checked_json import parse_json

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".webp")
"""The ends of the names of image files, in a tree of folders and in archives."""
_LABELS = range(-(2**31), 2**31)
_LONGEST_LABEL_FILE = 1 << 20
_MAX_SHOWN = 5
_BLOCK = 1 << 20


class Entry(NamedTuple):
    """An image that is to become a record.

    Attributes:
        name: what stands for it in its record's key.
        label: its label.
        location: where its label comes from, for messages.
        path: the file that it lies in.
        offset: where it begins there.
        size: how many bytes it has; None for the whole file.
    """

    name: str
    label: int
    location: Location
    path: str
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """Return the image file's bytes.

        Raises:
            OSError: it cannot be read.
        """
        file = os.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(file).st_size if self.size is None else self.size
            return os.pread(file, size, self.offset)
        finally:
            os.close(file)


@dataclass(frozen=True)
class ImageSource:
    """What a source holds.

    Attributes:
        entries: in the order of the source.
        classes: names of the labels 0, 1, ... where the source has them.
        notes: what the user should know about it.
    """

    entries: list[Entry]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_image_list(root: str, listed: str) -> ImageSource:
    """Return the images of a list, a line each: the path below `root`, a space, the label.

    Raises:
        DataError: the list cannot be read, or a line names no file.
    """
    from mgcaffe.engine.data.file_lists import read_image_list as read_lines

    images, note = read_lines(listed)
    entries = [Entry(path, label, location, root + path) for path, label, location in images]
    return ImageSource(entries, notes=(note,) if note else ())


def read_folders(root: str) -> ImageSource:
    """Return the images of a tree of folders: one folder a class, labels in the order of the folders' names.

    Raises:
        DataError: `root` is no folder, or holds no folders of images.
    """
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"'{root}' is no folder", hint="it has to hold a folder of images for each class")
    try:
        classes = sorted(path.name for path in top.iterdir() if path.is_dir() and not _is_hidden(path.name))
        files_of = {name: _files_below(top / name) for name in classes}
    except OSError as error:
        raise DataError(f"'{error.filename}' cannot be read: {error.strerror}") from error
    if not classes:
        raise DataError(f"'{root}' holds no folders", hint="it has to hold a folder of images for each class")
    entries, passed_over, empty = [], [], []
    for label, (name, files) in enumerate(files_of.items()):
        images = [path for path in files if path.suffix.lower() in IMAGE_ENDINGS]
        passed_over += [path for path in files if path.suffix.lower() not in IMAGE_ENDINGS]
        if not images:
            empty.append(name)
        for path in images:
            relative = path.relative_to(top).as_posix()
            entries.append(Entry(relative, label, Location(str(path)), str(path)))
    if not entries:
        raise DataError(f"the folders of '{root}' hold no images", hint=f"known endings are {', '.join(IMAGE_ENDINGS)}")
    notes = []
    if passed_over:
        notes.append(f"files that are no images by their names are passed over: {_shown(map(str, passed_over))}")
    if empty:
        notes.append(f"classes without an image: {_shown(empty)}")
    return ImageSource(entries, tuple(classes), tuple(notes))


def _files_below(top: Path) -> list[Path]:
    """Return the files at any depth, in the order of their paths, but for hidden ones and those in hidden folders.

    Raises:
        OSError: a folder cannot be read.
    """
    found = []

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(top, onerror=refuse):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        found += [path for name in files if not _is_hidden(name) and (path := Path(folder, name)).is_file()]
    return sorted(found)


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def read_archives(paths: Sequence[str]) -> ImageSource:
    """Return the images of tar archives of the webdataset form.

    Members whose names are the same up to the first dot of the file name are one sample. It has one image, and its
    label in a `.cls` file (a whole number) or as the number `label` of a `.json` file.

    Raises:
        DataError: an archive cannot be read to its end, or a sample lacks an image or a label.
    """
    entries: list[Entry] = []
    for path in paths:
        try:
            with _opened(path) as archive:
                _check_end(archive)
                entries += _entries_of(archive, path)
        except FileNotFoundError as error:
            raise DataError(f"archive '{path}' does not exist") from error
        except tarfile.TarError as error:
            raise DataError(
                f"archive '{path}' is damaged: {error}",
                hint="make or fetch it again, each archive as a file of its own",
            ) from error
        except OSError as error:
            raise DataError(f"archive '{path}' cannot be read: {error.strerror}") from error
    if not entries:
        raise DataError(f"{_shown(paths)}: no samples")
    return ImageSource(entries)


def _opened(path: str) -> tarfile.TarFile:
    try:
        return tarfile.open(path, "r:")
    except tarfile.TarError as error:
        raise DataError(
            f"'{path}' cannot be read as a tar archive: {error}", hint="a compressed one has to be unpacked to .tar"
        ) from error


def _check_end(archive: tarfile.TarFile) -> None:
    """Refuse what is no member and does not consist of zeros: tarfile takes it for the end, and leaves out the rest.

    Raises:
        tarfile.TarError: there is such a byte.
    """
    count, file = len(archive.getmembers()), archive.fileobj
    place = f"at byte {archive.offset}, behind {count} file{'s' * (count != 1)},"
    assert file is not None
    file.seek(archive.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"{place} no further file begins")
    while block:
        if block.strip(b"\0"):
            raise tarfile.ReadError(f"{place} is its end, and more data follow (several archives in one?)")
        block = file.read(_BLOCK)


def _entries_of(archive: tarfile.TarFile, path: str) -> list[Entry]:
    samples: dict[str, list[tarfile.TarInfo]] = {}
    for member in archive:
        if member.isfile() and not _is_hidden(member.name.rpartition("/")[2]):
            samples.setdefault(_sample(member.name), []).append(member)
    return [_entry(archive, path, name, members) for name, members in samples.items()]


def _sample(name: str) -> str:
    folder, slash, file = name.removeprefix("./").rpartition("/")
    return folder + slash + file.partition(".")[0]


def _entry(archive: tarfile.TarFile, path: str, name: str, members: list[tarfile.TarInfo]) -> Entry:
    images = [member for member in members if member.name.lower().endswith(IMAGE_ENDINGS)]
    location = Location(path)
    if len(images) != 1:
        raise DataError(
            f"sample '{name}' has {len(images)} images, not 1",
            location=location,
            hint=f"its files are {_shown(member.name for member in members)}",
        )
    image = images[0]
    label = _label_of(archive, path, name, members)
    return Entry(image.name.removeprefix("./"), label, location, path, image.offset_data, image.size)


def _label_of(archive: tarfile.TarFile, path: str, name: str, members: list[tarfile.TarInfo]) -> int:
    for ending in (".cls", ".json"):
        for member in members:
            if not member.name.lower().endswith(ending):
                continue
            file = f"{path}({member.name})"
            content = archive.extractfile(member)
            assert content is not None  # it is a file
            text = content.read(_LONGEST_LABEL_FILE)
            if ending == ".cls":
                said = text.decode(errors="backslashreplace").strip()
                return _label(said, f"'{said[:40]}' is no label", Location(file))
            found = parse_json(text, file, "no label").get("label")
            if found is not None:
                return found.integer(_LABELS.start, _LABELS.stop - 1)
    raise DataError(
        f"sample '{name}' has no label",
        location=Location(path),
        hint="a .cls file with a whole number is needed, or a .json file with a number 'label'",
    )


def _label(text: str, problem: str, location: Location) -> int:
    try:
        label = int(text)
    except ValueError as error:
        raise DataError(f"{problem}, a whole number", location=location) from error
    if label not in _LABELS:
        raise DataError(f"label {label} does not fit into 32 bits", location=location)
    return label


def _shown(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MAX_SHOWN} more" if len(listed) > _MAX_SHOWN else ""
    return ", ".join(listed[:_MAX_SHOWN]) + more
