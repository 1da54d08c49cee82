"""Gives a net that a subcommand runs on its own data its weights, and warns of values that nobody gave it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mgcaffe.engine.net import Net
from mgcaffe.tools.listeners.glog import log_line

_SHOWN = 10


def load(net: Net, paths: Sequence[str]) -> None:
    """Copy files of weights to the layers of the same names; warn of layers that none has, and of inputs.

    Raises:
        NetError, PrototxtError: as for `Net.copy_trained_layers`.
    """
    copied = {row.layer for path in paths for row in net.copy_trained_layers(path).copied}
    lacking = [
        layer.name
        for layer in net.layers
        if layer.name not in copied and not layer.param.blobs and any(each.owner is None for each in layer.parameters)
    ]
    if lacking:
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        _warn(
            f"no weights in {', '.join(paths)} for {len(lacking)} layer(s): {', '.join(lacking[:_SHOWN])}{more}; they"
            " compute with what their fillers gave"
        )
    if net.inputs:
        _warn(f"nothing fills the input(s) {', '.join(net.inputs)}: they hold zeros; give a net that reads data")


def _warn(text: str) -> None:
    log_line(text, level=logging.WARNING)
