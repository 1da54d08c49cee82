"""The formats that models are converted from and to, recognized by the names of files.

Both tables are ordered; the first entry that recognises the names is taken. What an entry needs is imported when it is
used, so that a format whose packages are missing is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import UsageError
from mgcaffe.tools.convert.formats import (
    ARRAY_ENDINGS,
    CAFFE,
    WEIGHTS_ENDINGS,
    Opened,
    Options,
    Reader,
    Writer,
    ending_of,
)

if TYPE_CHECKING:
    from mgcaffe.tools.convert.proof import Side
    from mgcaffe.tools.convert.training_step import TrainingSide


_SAMPLE = 4096


def _open_caffe(words: Sequence[str], options: Options) -> Opened:
    from mgcaffe.tools.convert.caffe_files import CaffeFiles

    return CaffeFiles(words, options)


def _open_onnx(words: Sequence[str], options: Options) -> Opened:
    from mgcaffe.tools.convert.onnx_files import OnnxFile

    return OnnxFile(words, options)


def _open_torch(words: Sequence[str], options: Options) -> Opened:
    from mgcaffe.tools.convert.torch_files import TorchModule

    return TorchModule(words, options)


def _open_weights(words: Sequence[str], options: Options) -> Opened:
    from mgcaffe.tools.convert.weights_files import WeightsFile

    return WeightsFile(words, options)


def _write_caffe(opened: Opened, paths: Sequence[Path], options: Options) -> None:
    from mgcaffe.tools.convert.caffe_files import write_caffe

    write_caffe(opened.net, opened.source, *paths)


def _written_caffe(paths: Sequence[Path], options: Options) -> Opened:
    return _open_caffe([str(path) for path in paths], Options(seed=options.seed))


def _run_caffe(paths: Sequence[Path], options: Options) -> Side:
    return _written_caffe(paths, options).side()


def _train_caffe(paths: Sequence[Path], options: Options) -> TrainingSide:
    from mgcaffe.tools.convert.caffe_training import CaffeTraining

    return CaffeTraining(_written_caffe(paths, options).source)


def _caffe_paths(path: Path) -> Sequence[Path]:
    """Return the net and its weights: beside a prototxt `.caffemodel`, beside weights `.prototxt`."""
    ending = ending_of(path.name, WEIGHTS_ENDINGS)
    if ending is None:
        return path, path.with_suffix(".caffemodel")
    return path.with_name(path.name.removesuffix(ending) + ".prototxt"), path


def _write_onnx(opened: Opened, paths: Sequence[Path], options: Options) -> None:
    from mgcaffe.tools.convert.onnx_files import write_onnx

    write_onnx(opened.net, paths[0], options)


def _run_onnx(paths: Sequence[Path], options: Options) -> Side:
    from mgcaffe.tools.convert.onnx_side import OnnxSide

    return OnnxSide(paths[0])


def _write_torch(opened: Opened, paths: Sequence[Path], options: Options) -> None:
    from mgcaffe.tools.convert.module_files import write_module, write_program

    write = write_program if _is_program(paths[0]) else write_module
    write(opened.net, opened.words[0], paths, options)


def _run_torch(paths: Sequence[Path], options: Options) -> Side:
    from mgcaffe.tools.convert.module_files import run_program
    from mgcaffe.tools.convert.module_side import read_side

    return run_program(paths[0]) if _is_program(paths[0]) else read_side(paths[0])


def _train_torch(paths: Sequence[Path], options: Options) -> TrainingSide | None:
    from mgcaffe.tools.convert.module_training import ModuleTraining

    return None if _is_program(paths[0]) else ModuleTraining(paths[0])


def _torch_paths(path: Path) -> Sequence[Path]:
    """Return the file, and beside a Python file the weights."""
    return (path,) if _is_program(path) else (path, path.with_suffix(".safetensors"))


def _is_program(path: Path) -> bool:
    return path.name.lower().endswith(".pt2")


def _write_weights(opened: Opened, paths: Sequence[Path], options: Options) -> None:
    from mgcaffe.tools.convert.weights_files import write_weights

    write_weights(opened, paths[0])


def _run_weights(paths: Sequence[Path], options: Options) -> Side:
    from mgcaffe.tools.convert.weights_files import WeightsFile

    return WeightsFile([str(paths[0])], options).side()


READERS: list[Reader] = [
    Reader(
        "ONNX",
        "FILE.onnx",
        lambda words: _ends(words, (".onnx",)),
        _open_onnx,
        " ([converting_onnx.md](converting_onnx.md))",
    ),
    Reader(
        "PyTorch",
        "FILE.py:FUNCTION or FILE.pt2",
        lambda words: is_torch(words[0]),
        _open_torch,
        " ([converting_pytorch.md](converting_pytorch.md))",
    ),
    Reader(
        "weights alone",
        "WEIGHTS.caffemodel, .h5, .safetensors or .npz",
        lambda words: len(words) == 1 and names_weights(words[0]),
        _open_weights,
    ),
    # Last: a net may be called anything.
    Reader(CAFFE, "NET.prototxt WEIGHTS.caffemodel", lambda words: True, _open_caffe),
]
WRITERS: list[Writer] = [
    Writer("ONNX", (".onnx",), lambda path: (path,), _write_onnx, _run_onnx),
    Writer("PyTorch", (".py", ".pt2"), _torch_paths, _write_torch, _run_torch, _train_torch),
    Writer(CAFFE, (".prototxt", *WEIGHTS_ENDINGS), _caffe_paths, _write_caffe, _run_caffe, _train_caffe),
    Writer("weights alone", ARRAY_ENDINGS, lambda path: (path,), _write_weights, _run_weights, weights_alone=True),
]
_CHECKPOINTS = (".pt", ".pth", ".ckpt")
_CAFFE_WEIGHTS = replace(WRITERS[-1], endings=WEIGHTS_ENDINGS)
"""What is written where there is no net."""


def is_torch(word: str) -> bool:
    """Return whether a word names an exported program, or something in a Python file or package."""
    if word.lower().endswith(".pt2"):
        return True
    place, _, name = word.rpartition(":")
    is_module = all(part.isidentifier() for part in place.split("."))
    return name.isidentifier() and (place.endswith(".py") or is_module) and not Path(word).exists()


def _ends(words: Sequence[str], endings: tuple[str, ...]) -> bool:
    return ending_of(words[0], endings) is not None


def names_weights(word: str) -> bool:
    """Return whether a word names weights by its ending."""
    return ending_of(word, (*WEIGHTS_ENDINGS, *ARRAY_ENDINGS)) is not None


def split_models(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each model: weights belong to the net before them."""
    models: list[list[str]] = []
    for word in words:
        if models and len(models[-1]) == 1 and not names_weights(models[-1][0]) and _is_weights(word):
            models[-1].append(word)
        else:
            models.append([word])
    return models


def _is_weights(word: str) -> bool:
    """Return whether a word names weights: by its ending, else by the file's first bytes, which are no text's."""
    if names_weights(word):
        return True
    if any(reader.matches([word]) for reader in READERS[:-1]):
        return False
    try:
        with Path(word).open("rb") as file:
            return any(byte < 32 and byte not in b"\t\n\v\f\r" for byte in file.read(_SAMPLE))
    except OSError:
        return False


def open_model(words: Sequence[str], options: Options) -> Opened:
    """Open a model of any format.

    Raises:
        UsageError: what is named is no model: a Python file as a whole, a checkpoint of PyTorch.
    """
    ending = ending_of(words[0], (".py", *_CHECKPOINTS))
    if ending == ".py":
        raise UsageError(
            f"{words[0]} does not say which module of the file is meant", hint=f"write {words[0]}:FUNCTION"
        )
    if ending is not None:
        raise UsageError(
            f"{words[0]} is named as a checkpoint of PyTorch, which has weights but no model",
            hint="name a function that makes the module and loads them, FILE.py:FUNCTION, or a .pt2 of torch.export",
        )
    return reader_of(words).open(words, options)


def reader_of(words: Sequence[str]) -> Reader:
    """Return the reader of a model."""
    return next(reader for reader in READERS if reader.matches(words))


def writer_of(path: str, *, weights_alone: bool = False) -> Writer:
    """Return the writer for a file of this name.

    Args:
        path: the name.
        weights_alone: what is written has no net, so that of Caffe's files there are only the weights.

    Raises:
        UsageError: no format has names like this one.
    """
    for writer in [_CAFFE_WEIGHTS, *WRITERS] if weights_alone else WRITERS:
        if ending_of(path, writer.endings):
            return writer
    known = ", ".join(ending for writer in WRITERS for ending in writer.endings)
    raise UsageError(f"the name '{path}' does not say which format to write", hint=f"end it with one of {known}")
