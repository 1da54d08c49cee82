"""Class numbers, as the losses and Accuracy read them from a blob of floating-point numbers."""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.one_call import one_call
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError


class Labels(NamedTuple):
    """The classes of all positions.

    Attributes:
        classes: class numbers (int64), of the scores' shape with size 1 along the class axis; 0 where ignored.
        valid: False where the label is to be ignored; None if no label can be.
    """

    classes: torch.Tensor
    valid: torch.Tensor | None


def check_shapes(layer: Layer, scores: Shape, axis: int, labels: Shape) -> None:
    """Fail unless there is one label for every position, that is for every value but those along `axis`."""
    positions = math.prod(scores[:axis]) * math.prod(scores[axis + 1 :])
    if math.prod(labels) != positions:
        layer.fail(
            f"bottom 1 has shape {labels}, that is {math.prod(labels)} labels, but bottom 0, of shape {scores},"
            f" has {positions} positions with classes along axis {axis}",
            hint="with axis 1 and scores N x C x H x W, the labels are N x 1 x H x W",
        )


def check_one_each(layer: Layer, scores: Shape, labels: Shape) -> None:
    """Fail unless there is one label for every item of the batch, whose values are all scores of classes."""
    batch = scores[0] if scores else 1
    if math.prod(labels) != batch:
        layer.fail(
            f"bottom 1 has shape {labels}, that is {math.prod(labels)} labels, but bottom 0, of shape {scores}, has"
            f" {batch} items, of which all {math.prod(scores[1:])} values are scores of classes",
            hint="give one label for each item",
        )


def read_labels(layer: Layer, labels: torch.Tensor, scores: torch.Size, axis: int, ignore: int | None) -> Labels:
    """Return labels as class numbers; fractions are cut off, as in Caffe.

    Args:
        layer: the layer that reads them.
        labels: the blob, with one label a position of the scores.
        scores: the scores' shape.
        axis: the axis of the classes.
        ignore: the label that is no class but means "leave this position out".

    Raises:
        DataError: a label that is no class; names its value, its place and the number of classes.
    """
    index = labels.long().reshape(*scores[:axis], 1, *scores[axis + 1 :])
    valid = None
    if ignore is not None:
        valid = index != ignore
        index = index * valid
    _check(index, labels, scores[axis], layer)
    return Labels(index, valid)


@one_call
def _check(index: torch.Tensor, labels: torch.Tensor, classes: int, layer: Layer) -> None:
    """Fail unless the numbers are those of classes."""
    if index.numel():
        low, high = torch.aminmax(index)
        if int(low) < 0 or int(high) >= classes:
            _fail(layer, labels, index, classes)


def _fail(layer: Layer, labels: torch.Tensor, index: torch.Tensor, classes: int) -> NoReturn:
    wrong = ((index < 0) | (index >= classes)).reshape(-1)
    first = int(wrong.nonzero()[0])
    place = [int(at) for at in torch.unravel_index(torch.tensor(first), labels.shape)]
    value = float(labels.reshape(-1)[first])
    others = int(wrong.sum()) - 1
    more = f" (and {others} more in this batch)" if others else ""
    scores, blob = layer.bottom_names[:2]
    layer.fail(
        f"label {value:.10g} at {place} of blob '{blob}'{more} is no class:"
        f" blob '{scores}' has scores for {classes} classes, 0 to {classes - 1}",
        hint="number the classes from 0, make enough outputs for them, or set ignore_label",
        error=DataError,
    )
