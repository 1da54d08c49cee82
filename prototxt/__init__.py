"""The language: Caffe's schema, its text and binary forms, located errors, and the upgrade of old files.

    solver = read_solver_source("solver.prototxt")       # .param, .field("base_lr") -> file:line:column
    net = read_net_source("train_val.prototxt")          # .param, .layers[3].field("bottom", 1)
    weights = read_binary("lenet.caffemodel", NetParameter)

Every message of the schema can be imported from here (`from mgcaffe.prototxt import NetParameter`), and so
can the values of the top-level enums (`TRAIN`, `TEST`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mgcaffe.prototxt import messages
from mgcaffe.prototxt.binary import parse_binary, read_binary, write_binary
from mgcaffe.prototxt.blobs import blob_array, blob_shape, fill_blob
from mgcaffe.prototxt.files import (
    net_source,
    parse_net,
    parse_solver,
    read_net,
    read_net_source,
    read_solver,
    read_solver_source,
)
from mgcaffe.prototxt.messages import has_field, message_class
from mgcaffe.prototxt.names import check_names
from mgcaffe.prototxt.problems import nearest
from mgcaffe.prototxt.source import LayerSource, NetSource, SolverSource, Source
from mgcaffe.prototxt.text_reader import parse_text
from mgcaffe.prototxt.text_writer import print_float, print_text, write_text
from mgcaffe.prototxt.upgrade import upgrade_net, upgrade_solver

if TYPE_CHECKING:
    from mgcaffe.prototxt.messages import *  # noqa: F403

__all__ = [
    "LayerSource",
    "NetSource",
    "SolverSource",
    "Source",
    "blob_array",
    "blob_shape",
    "check_names",
    "fill_blob",
    "has_field",
    "message_class",
    "nearest",
    "net_source",
    "parse_binary",
    "parse_net",
    "parse_solver",
    "parse_text",
    "print_float",
    "print_text",
    "read_binary",
    "read_net",
    "read_net_source",
    "read_solver",
    "read_solver_source",
    "upgrade_net",
    "upgrade_solver",
    "write_binary",
    "write_text",
]


if not TYPE_CHECKING:  # a type checker knows the names from messages.pyi, and would take any other for one of them

    def __getattr__(name: str) -> Any:
        """Return a message class, an enum, or a value of a top-level enum, by its name in the schema."""
        try:
            return getattr(messages, name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> Iterable[str]:
    """List the functions and every name of the schema."""
    return sorted({*__all__, *dir(messages)})
