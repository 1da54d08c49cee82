"""Files of named arrays, safetensors and NumPy's npz, as files of weights: an array for each blob, `layer/number`."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy

from mgcaffe.engine.weights.safetensors import LONGEST_HEAD
from mgcaffe.engine.weights.saved_layers import SavedBlob, SavedLayer
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError
from mgcaffe.tools.convert.safetensors_file import ArrayToWrite, need_safetensors, write_safetensors

_NPZ, _SAFETENSORS = ".npz", ".safetensors"
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
_NAMES = (
    "weights are called as the blobs of Caffe's layers: 'conv1/0' for the first one of layer 'conv1', 'conv1/1' for"
    " the second. Names of other programs ('conv1.weight') are not guessed."
)
_CHECKPOINT = (
    "convert a function that makes the module and loads its weights, FILE.py:FUNCTION, or save them with NumPy under"
    " names like those of Caffe's blobs, 'conv1/0' for the first one of layer 'conv1'"
)
_SHOWN = 4
"""How many names an error lists."""


def is_array_file(path: Path) -> bool:
    """Return whether a file is safetensors or npz: by its name, else by how it begins."""
    return _kind(path) is not None


def _kind(path: Path) -> str | None:
    """Return the ending that a file of this kind has; None: it is of neither kind."""
    if path.suffix.lower() in (_NPZ, _SAFETENSORS):
        return path.suffix.lower()
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError:
        return None
    if start[:4] == b"PK\x03\x04":
        return _NPZ
    # Eight bytes of a length, the upper ones zeros, then JSON. A caffemodel begins with a name, which has no zeros.
    return _SAFETENSORS if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= LONGEST_HEAD else None


def read_array_file(path: Path) -> list[SavedLayer]:
    """Read the weights of a file.

    Raises:
        UsageError: the package safetensors is needed and not installed.
        DataError: the file cannot be read, or has arrays of other names than `layer/number`.
    """
    if not path.is_file():
        raise DataError(f"cannot read {path}: {'it is no file' if path.exists() else 'No such file or directory'}")
    arrays = _read_npz(path) if _kind(path) == _NPZ else _read_safetensors(path)
    return layers_of_arrays(arrays, str(path))


def layers_of_arrays(arrays: Mapping[str, np.ndarray], source: str) -> list[SavedLayer]:
    """Return the layers that arrays called `layer/number` belong to, in the order of the arrays.

    Raises:
        DataError: one is called otherwise.
    """
    layers: dict[str, dict[int, SavedBlob]] = {}
    unknown = []
    for name, values in arrays.items():
        layer, slash, digits = name.rpartition("/")
        if not slash or not _NUMBER.fullmatch(digits):
            unknown.append(name)
            continue
        layers.setdefault(layer, {})[int(digits)] = SavedBlob(values.shape, partial(np.asarray, values))
    if unknown or not layers:
        raise _no_weights(unknown, len(arrays), source)
    return [SavedLayer(name, blobs) for name, blobs in layers.items()]


def _no_weights(unknown: Sequence[str], count: int, source: str) -> DataError:
    if not count:
        return DataError(f"{source} holds no arrays", hint=_NAMES)
    shown = ", ".join(f"'{name[:60]}'" for name in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return DataError(
        f"{source}: {len(unknown)} of {count} arrays are not called layer/number: {shown}{more}", hint=_NAMES
    )


def named_arrays(saved: Sequence[SavedLayer], source: str) -> Iterator[tuple[str, SavedBlob]]:
    """Return each blob with its name, `layer/number`.

    Raises:
        DataError: two layers with blobs have one name.
    """
    seen = set()
    for layer in saved:
        if layer.name in seen:
            raise DataError(
                f"{source} has several layers '{layer.name}' with weights, and their arrays would have the same names",
                hint="give the layers different names",
            )
        if layer.blobs:
            seen.add(layer.name)
        yield from ((f"{layer.name}/{number}", layer.blobs[number]) for number in sorted(layer.blobs))


def write_array_file(saved: Sequence[SavedLayer], path: Path, source: str) -> None:
    """Write weights as safetensors or npz, by the file's name.

    Args:
        saved: the weights, float32 or float64.
        path: the file.
        source: where they come from, for messages.

    Raises:
        UsageError: the package safetensors is needed and not installed.
        DataError: two layers have one name, or a name that cannot be written.
        EngineError: (exit code 73) the file cannot be written.
    """
    blobs = dict(named_arrays(saved, source))
    write = _write_npz if path.suffix.lower() == _NPZ else _write_safetensors
    try:
        write(blobs, path)
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


# -- npz --------------------------------------------------------------------------------------------------


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no zip file")
        with np.load(path, allow_pickle=False) as file:
            if any(name.endswith("/data.pkl") for name in file.files):
                what = "a checkpoint of PyTorch, whose weights have other names than Caffe's"
                raise DataError(f"{path} is {what}", hint=_CHECKPOINT)
            for name in file.files:
                if name in arrays:
                    raise ValueError(f"array '{name}' is there twice")
                arrays[name] = _numbers(file[name], name, path)
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy have many, and more with each version
        raise _damaged(path, error) from None
    return arrays


def _write_npz(blobs: Mapping[str, SavedBlob], path: Path) -> None:
    with path.open("wb") as whole, zipfile.ZipFile(whole, "w", allowZip64=True) as archive:
        for name, blob in blobs.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            if entry.filename != f"{name}.npy":
                raise DataError(f"the name '{name}' cannot stand in an npz file")
            with archive.open(entry, "w", force_zip64=True) as file:
                npy.write_array(file, np.asarray(blob.load(), order="C"), allow_pickle=False)  # type: ignore[no-untyped-call]
        archive.close()
        whole.flush()
        os.fsync(whole.fileno())


# -- safetensors ------------------------------------------------------------------------------------------


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    need_safetensors()
    from safetensors import safe_open

    arrays = {}
    try:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():
                tensor: torch.Tensor = file.get_tensor(name)
                if tensor.dtype in (torch.float16, torch.bfloat16):
                    tensor = tensor.to(torch.float32)
                arrays[name] = _numbers(tensor.numpy(), name, path)
    except DataError:
        raise
    except Exception as error:  # safetensors' own class, and what PyTorch raises
        raise _damaged(path, error) from None
    return arrays


def _write_safetensors(blobs: Mapping[str, SavedBlob], path: Path) -> None:
    need_safetensors()  # reads the file back
    arrays = {}
    for name, blob in blobs.items():
        kind = np.dtype(np.float64 if blob.load().dtype == np.float64 else np.float32)
        arrays[name] = ArrayToWrite(kind, blob.shape, blob.load)
    write_safetensors(arrays, path)


def _numbers(values: Any, name: str, path: Path) -> np.ndarray:
    """Return an array as the engine holds weights: float64 as it is, other numbers as float32."""
    if values.dtype.kind not in "fiu":
        raise DataError(f"{path}: array '{name}' holds no numbers ({values.dtype})")
    is_double = values.dtype.kind == "f" and values.dtype.itemsize >= 8
    array: np.ndarray = np.asarray(values, np.float64 if is_double else np.float32)
    return array


def _damaged(path: Path, error: Exception) -> DataError:
    said = str(error).strip().splitlines()
    return DataError(f"{path} cannot be read: cut short or damaged ({said[0][:200] if said else type(error).__name__})")
