"""Converts a model and proves it: what `engine convert` does."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mgcaffe.engine.net import Net
from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, UsageError
from mgcaffe.errors.whole_files import flush_folder
from mgcaffe.tools.convert.allowances import check_allowances
from mgcaffe.tools.convert.caffe_files import CaffeFiles
from mgcaffe.tools.convert.caffe_side import fitting_inputs, value_names
from mgcaffe.tools.convert.caffe_training import scores_of
from mgcaffe.tools.convert.format_tables import names_weights, open_model, split_models, writer_of
from mgcaffe.tools.convert.formats import CAFFE, Opened, Options, Writer
from mgcaffe.tools.convert.proof import (
    TOLERANCE,
    Difference,
    compare,
    document,
    not_finite,
    table,
    unproven,
)
from mgcaffe.tools.convert.training_step import CannotTrain, Scores, TrainingSide, TrainingStep, compare_steps
from mgcaffe.tools.convert.weights_files import WeightsSide, compare_arrays, weights_side

_NOT_TRAINED = "the training step was not compared"
_INNER = "outputs that layers read as well, which the net therefore has as blobs, but not as outputs"
_SHOWN = 5
"""How many names of values a note lists."""
NOT_CHECKED = "not compared with its source (--no_check)"


@dataclass(frozen=True)
class Result:
    """What a conversion or a comparison came to.

    Attributes:
        files: what was written, under the names that the files have now.
        differences: how far apart the sides are, the worst blob first; empty where nothing was compared.
        tolerance: the largest relative difference that is accepted.
        notes: what else the user should know.
        training: how far apart the training steps are; None where they were not compared.
    """

    files: tuple[Path, ...]
    differences: tuple[Difference, ...]
    tolerance: float = TOLERANCE
    notes: tuple[str, ...] = ()
    training: TrainingStep | None = None

    @property
    def values_hold(self) -> bool:
        """Whether every blob is within the tolerance."""
        return not self.differences or self.differences[0].largest_relative <= self.tolerance

    @property
    def holds(self) -> bool:
        """Whether every blob is within the tolerance, and the training step, if there is one, within its own."""
        return self.values_hold and (self.training is None or self.training.holds)

    def document(self) -> dict[str, Any]:
        """Return what was compared as JSON has it; null stands for a training step that was not."""
        step = None if self.training is None else self.training.document()
        return {**document(self.differences), "training_step": step}

    def __str__(self) -> str:
        """Return the notes, the table of the worst blobs, the training step, and what was written."""
        lines = [*self.notes, *([table(self.differences)] if self.differences else [])]
        if self.training is not None:
            lines.append(str(self.training))
        return "\n".join([*lines, *(f"wrote {path}" for path in self.files)])


def convert(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    input_shape: Mapping[str, tuple[int, ...]] | tuple[int, ...] | None = None,
    tolerance: float = TOLERANCE,
    check: bool = True,
    seed: int = 0,
    allow: Iterable[str] = (),
    strict: bool = False,
) -> Result:
    """Convert a model and compare both sides on the same inputs.

    Args:
        source: the model's file, or its files: a net and its weights.
        target: the file to write; its ending says the format.
        input_shape: the shape of the first input, or of inputs by name, where it is to be another than the model's.
        tolerance: the largest relative difference of any blob that is accepted; of weights alone none is.
        check: False leaves the comparison out.
        seed: of the inputs, and of fillers where there are no weights.
        allow: names of ALLOWANCES: what may be written otherwise than the model says.
        strict: unknown fields in prototxt files are errors.

    Returns:
        What was written and how far apart the sides are. Where they are further apart than the tolerance, `holds` is
        False and the files have other names than the target's.

    Raises:
        EngineError: what cannot be read, converted or written, with its place.
    """
    words = _words(source)
    note = "" if check else NOT_CHECKED
    options = Options(_shapes(input_shape), seed, check_allowances(allow), strict, note)
    path = Path(target)
    opened = open_model(words, options)
    writer = writer_of(path.name, weights_alone=opened.weights_alone)
    if writer.weights_alone:
        tolerance = 0.0
    finals = tuple(writer.files(path))
    _refuse_overwriting(words, finals)
    _refuse_folders(finals)
    _keep_weights(opened, path)
    notes = _notes(opened, writer)
    with _built_aside(finals) as building:
        writer.write(opened, building, options)
        if check:
            result = _prove(opened, writer, building, Result(finals, (), tolerance, notes))
        else:
            result = Result(finals, (), tolerance, (*notes, NOT_CHECKED))
        if not result.holds:
            return replace(result, files=tuple(building))
        _publish(building, finals)
    return result


def _prove(opened: Opened, writer: Writer, paths: Sequence[Path], result: Result) -> Result:
    """Run both sides and compare them; the source's net is dropped before the other side needs memory."""
    options = opened.options
    if writer.weights_alone:
        written = writer.side(paths, options)
        assert isinstance(written, WeightsSide)
        return replace(result, differences=tuple(compare_arrays(weights_side(opened), written)))
    net = opened.net
    names = {value: opened.name_of(value) for row in value_names(net) for value in row}
    inputs = fitting_inputs(net, options.seed)
    fed = {opened.name_of(name) or name: value for name, value in inputs.items()}
    side = opened.side()
    trained = _trained(opened, writer, paths)
    scores: Scores | None = None
    notes: tuple[str, ...] = ()
    outputs = [mine for its in side.outputs for mine in names if names[mine] == its]
    if trained is not None:
        scores, notes = _find_scores(net, outputs)
    if inner := [name for name in outputs if name not in net.outputs]:
        notes = (*notes, f"{_INNER}: {_listed(inner)}")
    del net
    opened.close()
    ours = side.run(fed)
    del side
    gc.collect()  # a net's parts point at each other
    theirs = writer.side(paths, options).run(inputs)
    found = compare(ours, theirs, {mine: name for name, mine in names.items() if mine is not None})
    notes = (*result.notes, *notes, *notes_on_values(ours, [each.name for each in found]))
    result = replace(result, differences=tuple(found), notes=notes)
    del ours, theirs
    gc.collect()
    if trained is None or scores is None or not result.values_hold:
        return result
    try:
        return replace(result, training=_train(opened, trained, inputs, scores))
    except CannotTrain as error:
        return replace(result, notes=(*result.notes, f"{_NOT_TRAINED}: {error}"))


def notes_on_values(values: Mapping[str, np.ndarray], names: Iterable[str]) -> tuple[str, ...]:
    """Return notes where values that were compared are not finite, or where there are none."""
    names = list(names)
    empty = [name for name in names if name in values and not values[name].size]
    said = {
        "values that are not finite, which proves little": not_finite(values, names),
        "blobs without values, which proves nothing": empty,
    }
    return tuple(f"{what}: {_listed(found)}" for what, found in said.items() if found)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _trained(opened: Opened, writer: Writer, paths: Sequence[Path]) -> TrainingSide | None:
    """Return what was written as something that trains; None where one of the formats says nothing of training.

    Nor is there any between Caffe's own forms: the same code would train both.
    """
    if writer.training is None or not opened.trains or (isinstance(opened, CaffeFiles) and writer.name == CAFFE):
        return None
    return writer.training(paths, opened.options)


def _find_scores(net: Net, outputs: Sequence[str]) -> tuple[Scores | None, tuple[str, ...]]:
    """Return the output that a training step's loss is of, or a note that says why there is none."""
    try:
        return scores_of(net, outputs), ()
    except CannotTrain as error:
        return None, (f"{_NOT_TRAINED}: {error}",)


def _train(opened: Opened, trained: TrainingSide, inputs: Mapping[str, np.ndarray], scores: Scores) -> TrainingStep:
    """Compare a training step of both sides; the source is dropped before the other side needs memory."""

    def theirs() -> TrainingSide:
        opened.forget()
        return trained

    return compare_steps(opened.training, theirs, inputs, scores, opened.options.seed)


def _words(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the words of one model."""
    words = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    models = split_models([os.fspath(word) for word in words])
    if len(models) != 1:
        found = f"{len(models)} models are" if models else "no model is"
        raise UsageError(f"{found} given to convert", hint="one model: a file, or a net and its weights")
    return models[0]


def _shapes(given: Mapping[str, tuple[int, ...]] | tuple[int, ...] | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if given is None:
        return ()
    return tuple(given.items()) if isinstance(given, Mapping) else (("", tuple(given)),)


def _notes(opened: Opened, writer: Writer) -> tuple[str, ...]:
    """Say where weights come from that the user did not give, and which ones were not needed."""
    if writer.weights_alone and opened.weights_alone:
        return ()
    if isinstance(opened, CaffeFiles) and (filled := opened.filled_layers):
        some = len(filled) < sum(bool(layer.parameters) for layer in opened.net.layers)
        which = f" for {', '.join(filled[:_SHOWN])}{' and others' * (len(filled) > _SHOWN)}" if some else ""
        return (f"no weights are given{which}: those of the fillers are used (seed {opened.options.seed})",)
    return (*opened.source.skipped, *opened.notes) if opened.net else ()


def _refuse_overwriting(words: Sequence[str], finals: Sequence[Path]) -> None:
    # Of a module that a function makes, also the file of the function.
    read = {Path(name).resolve() for word in words for name in (word, word.rpartition(":")[0]) if name}
    for path in finals:
        if path.resolve() in read:
            raise UsageError(f"{path} would be written, but it is what is read", hint="give the output another name")


def _refuse_folders(finals: Sequence[Path]) -> None:
    """Refuse to write where a folder is, before the first of several files has got its name."""
    for path in finals:
        if path.is_dir():
            raise EngineError(f"cannot write {path}: it is a folder", exit_code=EXIT_CANNOT_WRITE)


def _keep_weights(opened: Opened, target: Path) -> None:
    """Refuse to replace weights by those of fillers, as where a user forgets the last of net, weights and target."""
    if not (isinstance(opened, CaffeFiles) and names_weights(target.name) and target.exists()):
        return
    if filled := opened.filled_layers:
        net = opened.words[0]
        raise UsageError(
            f"{target} is there already, and {net} alone has only its fillers for layer '{filled[0]}'",
            hint=f"to convert both, name the file to write behind them: engine convert {net} {target} OUT",
        )


@contextmanager
def _built_aside(finals: Sequence[Path]) -> Iterator[list[Path]]:
    """Give the names to build files under; an error removes what has been built."""
    building = [unproven(path) for path in finals]
    try:
        yield building
    except BaseException:
        for path in building:
            with suppress(OSError):  # the error that is on its way says more
                path.unlink()
        raise


def _publish(building: Sequence[Path], finals: Sequence[Path]) -> None:
    """Give the files their names, the one that is opened first last."""
    try:
        for temporary, target in reversed(list(zip(building, finals, strict=True))):
            temporary.replace(target)
        flush_folder(finals[0].parent)
    except OSError as error:
        raise EngineError(f"cannot write {finals[0]}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
