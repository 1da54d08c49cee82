"""Copies weights that a run begins with into its nets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgcaffe.engine import Net
from mgcaffe.errors import PrototxtError
from mgcaffe.errors.file_names import found_name, is_there
from mgcaffe.prototxt import SolverSource
from mgcaffe.solvers.events import Emit
from mgcaffe.solvers.events.snapshots import WeightsCopied
from mgcaffe.solvers.source import locate


def copy_weights(
    paths: Sequence[str], train_net: Net, test_nets: Sequence[Net], emit: Emit, source: SolverSource | None = None
) -> None:
    """Copy weights by layer name into all nets; later files win.

    Args:
        paths: caffemodels; each entry may be a comma-separated list, with blanks around the names.
        train_net, test_nets: the nets.
        emit: takes the events.
        source: of the solver whose field `weights` these are, if it is that.

    Raises:
        NetError, PrototxtError: a file cannot be used; one that is not there, at the place of the field.
    """
    # A test net may have layers that the training net lacks.
    tests = [
        (f"test #{index}", net)
        for index, net in enumerate(test_nets)
        if any(tensor.numel() for tensor in net.arena.tensors())
    ]
    for index, entry in enumerate(paths):
        for file in filter(None, map(str.strip, entry.split(","))):
            found = found_name(file)
            if not is_there(found):
                raise PrototxtError(
                    f"weights '{file}' do not exist",
                    location=locate(source, "weights", index),
                    hint=f"paths are relative to the folder where the command runs, now {Path.cwd()}",
                )
            for name, net in [("train", train_net), *tests]:
                emit(WeightsCopied(file, name, net.copy_trained_layers(found)))
