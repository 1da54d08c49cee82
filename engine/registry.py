"""The layer types by name, and the one place where a layer is made from its message."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import TypeVar

from mgcaffe.engine.checks import unused_fields
from mgcaffe.engine.checks.fork_fields import LAYER_FORKS
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, Source

_LEAST_LIKE = 0.75
"""How alike an unknown type and a known one are for a guess, as difflib counts: TripletLoss and HingeLoss are not."""
_TYPES: dict[str, type[Layer]] = {}
_LayerClass = TypeVar("_LayerClass", bound=type[Layer])


def register(name: str) -> Callable[[_LayerClass], _LayerClass]:
    """Class decorator: makes the class answer to `type: "name"` in a prototxt."""

    def add(layer_class: _LayerClass) -> _LayerClass:
        if name in _TYPES and _TYPES[name] is not layer_class:
            raise ValueError(f"layer type {name!r} is registered twice")
        layer_class.type = name
        _TYPES[name] = layer_class
        return layer_class

    return add


def layer_types() -> dict[str, type[Layer]]:
    """Return all layer types by name, in alphabetical order."""
    _load_all()
    return dict(sorted(_TYPES.items()))


def create(param: LayerParameter, context: LayerContext, source: Source | None = None) -> Layer:
    """Make the layer that a LayerParameter message asks for.

    Raises:
        NetError: the type is unknown; names the layer, its place, the nearest known type and all of them, or the
            fork of Caffe that has it.
    """
    types = layer_types()
    if param.type in types:
        unused_fields.check_layer(param, source)
        return types[param.type](param, context, source)
    location = source.field("type") if source is not None else None
    if param.type in LAYER_FORKS:
        raise NetError(
            f"{param.type}: a layer of {LAYER_FORKS[param.type]}, not supported (layer '{param.name}')",
            location=location,
            hint="leave the layer out, or write it as a Python layer",
        )
    by_letters = {name.lower(): name for name in types}
    near = difflib.get_close_matches(param.type.lower().replace("_", ""), by_letters, n=1, cutoff=_LEAST_LIKE)
    guess = f" Did you mean '{by_letters[near[0]]}'?" if near else ""
    raise NetError(
        f"unknown layer type '{param.type}' (layer '{param.name}').{guess}",
        location=location,
        hint=f"what only a fork of Caffe has can be written as a Python layer; known types: {', '.join(types)}",
    )


@functools.cache
def _load_all() -> None:
    """Import every module of the packages that hold layers, so that their decorators run."""
    for package_name in ("mgcaffe.engine.layers", "mgcaffe.engine.data"):
        package = importlib.import_module(package_name)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package_name}.{module.name}")
