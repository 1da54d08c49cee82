"""Compares two models, whatever their formats: what `engine compare` does."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.errors import DataError, UsageError
from mgcaffe.tools.convert.caffe_files import CaffeFiles
from mgcaffe.tools.convert.caffe_side import fitting_inputs
from mgcaffe.tools.convert.conversion import Result, notes_on_values
from mgcaffe.tools.convert.format_tables import open_model
from mgcaffe.tools.convert.formats import Options
from mgcaffe.tools.convert.proof import TOLERANCE, Side, compare, seeded_inputs
from mgcaffe.tools.convert.weights_files import compare_arrays, weights_side


def compare_models(
    first: Sequence[str],
    second: Sequence[str],
    *,
    input_shapes: Sequence[tuple[str, tuple[int, ...]]] = (),
    tolerance: float = TOLERANCE,
    seed: int = 0,
    strict: bool = False,
) -> Result:
    """Compare two models, each given by its files, on the same inputs.

    Values are compared by name, inputs by name or else in their order; outputs whose names the other model has not are
    compared in their order, or named in a note where each model has another number of them.
    """
    options = Options(tuple(input_shapes), seed, strict=strict)
    models = [open_model(words, options) for words in (first, second)]
    alone = [model.words[0] for model in models if model.weights_alone]
    if len(alone) == 1:
        raise UsageError(
            f"{alone[0]} holds weights alone, and the other is a model that runs",
            hint=f"give their net: NET.prototxt {alone[0]}",
        )
    if alone:
        return Result((), tuple(compare_arrays(*map(weights_side, models))), tolerance)
    sides = [model.side() for model in models]
    nets = [model.net for model in models if isinstance(model, CaffeFiles)]
    owner = next((number for number, model in enumerate(models) if isinstance(model, CaffeFiles)), 0)
    inputs = fitting_inputs(nets[0], seed) if nets else seeded_inputs(sides[0].inputs, seed)
    other = sides[1 - owner]
    paired = _paired_inputs(sides[owner], other)
    values = [sides[owner].run(inputs), other.run({paired[name]: value for name, value in inputs.items()})]
    ours, theirs = values if owner == 0 else reversed(values)
    names = {name: name for name in ours if name in theirs}
    left = [[name for name in side.outputs if name not in names and name not in side.inputs] for side in sides]
    notes: tuple[str, ...] = ()
    if len(left[0]) == len(left[1]):
        names.update(zip(*left, strict=True))
    elif names:
        notes = (f"not compared, because the other model has no such output: {', '.join(left[0] + left[1])}",)
    else:
        raise DataError(
            f"no value has one name in both models, and their outputs are {', '.join(sides[0].outputs)} and"
            f" {', '.join(sides[1].outputs)}"
        )
    return Result((), tuple(compare(ours, theirs, names)), tolerance, (*notes, *notes_on_values(ours, names)))


def _paired_inputs(one: Side, other: Side) -> dict[str, str]:
    if set(one.inputs) == set(other.inputs):
        return {name: name for name in one.inputs}
    if len(one.inputs) != len(other.inputs):
        raise DataError(f"one model has the inputs {', '.join(one.inputs)}, the other {', '.join(other.inputs)}")
    return dict(zip(one.inputs, other.inputs, strict=True))
