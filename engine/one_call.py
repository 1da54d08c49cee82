"""Functions that a Recorder (`engine/capture`) notes down as one call, although Python reads values in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch.overrides import handle_torch_function, has_torch_function

_Parameters = ParamSpec("_Parameters")

_ONE_CALL = "is_one_call"


def one_call(function: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """Have a function of tensors be one call to a `TorchFunctionMode`. It gives nothing, and changes no tensor."""

    @functools.wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if has_torch_function(tensors):
            handle_torch_function(called, tensors, *args, **kwargs)
        else:
            function(*args, **kwargs)

    setattr(called, _ONE_CALL, True)
    return called


def is_one_call(function: Callable[..., object]) -> bool:
    """Return whether `one_call` made a function."""
    return getattr(function, _ONE_CALL, False)
