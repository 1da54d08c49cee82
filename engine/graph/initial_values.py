"""The values that a net's parameters begin with, and the numbers that its random streams begin from."""

from __future__ import annotations

import numpy as np
import torch

from mgcaffe.engine import fillers
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.errors import NetError


def fill(layer: Layer, parameter: Parameter, generator: torch.Generator) -> None:
    """Fill a parameter on the CPU, so that a seed gives the same values on every device.

    Args:
        layer: whose it is.
        parameter: with its filler, or with values that were given.
        generator: the random stream of all parameters' values, on the CPU; where a filler is used, it goes on.

    Raises:
        NetError: the filler cannot fill it, or the values that were given cannot be read, at the place.
    """
    if parameter.given is not None:
        parameter.given()
        parameter.given = parameter.initial = None
        return
    if parameter.initial is not None:
        parameter.data.copy_(parameter.initial)
        parameter.initial = None
        return
    values = parameter.data
    if values.device.type != "cpu" or not values.is_contiguous():
        values = torch.empty(parameter.shape_here, dtype=values.dtype)
    try:
        if isinstance(parameter, RowParameter) and parameter.placement is not None:
            fillers.fill_rows(values, parameter.placement.rows, parameter.shape, parameter.filler, generator)
        else:
            fillers.fill(values, parameter.filler, generator)
    except NetError as error:
        layer.fail(error.message, hint=error.hint)
    if values is not parameter.data:
        parameter.data.copy_(values)


def mix(*numbers: int) -> int:
    """Return one number that a random stream begins from, made of several."""
    return int(np.random.SeedSequence([number & 0xFFFFFFFF for number in numbers]).generate_state(1)[0])
