"""What a resume puts back beside weights and histories: where the data stood, and the random numbers' seed.

Caffe starts its data from the beginning, with new random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Warned

if TYPE_CHECKING:
    from mgcaffe.engine.data.data_layer import DataLayer


def data_positions(train_net: Net, test_nets: Sequence[Net]) -> dict[str, int]:
    """Global records that every data layer has given, by the name it has in a snapshot."""
    return {name: layer.position() for name, layer, _ in _named(train_net, test_nets)}


def seek_data(
    train_net: Net,
    test_nets: Sequence[Net],
    records: dict[str, int] | None,
    *,
    param: SolverParameter,
    iteration: int,
    world_size: int,
    emit: Emit,
) -> None:
    """Moves every data layer to where a run stood that has made `iteration` updates.

    A layer that the snapshot doesn't know (all of them, in one that Caffe wrote) is moved by computation.

    Args:
        train_net, test_nets: whose data layers are moved.
        records: what `data_positions` gave.
        param: the SolverParameter message.
        iteration: updates done.
        world_size: ranks that train in step.
        emit: takes the events.
    """
    computed = []
    for name, layer, test in _named(train_net, test_nets):
        if records is not None and name in records:
            layer.seek(records[name])
            continue
        if test is None:
            layer.seek(iteration * param.iter_size * world_size * layer.batch_size)
        else:
            layer.seek(_tests_done(param, iteration) * param.test_iter[test] * layer.batch_size)
        computed.append(f"'{layer.name}' at record {layer.position()}")
    if computed:
        emit(
            Warned(
                "the snapshot doesn't say where the data stood; going on as if this run's batch sizes, ranks"
                f" and tests had been in force from the start: {', '.join(computed)}"
            )
        )


def take_seed(nets: Sequence[Net], seed: int, param: SolverParameter, emit: Emit) -> None:
    """Goes on with the seed of the run that is resumed, which all random numbers derive from.

    Args:
        nets: all nets; their data layers have to be moved (`seek_data`) afterwards.
        seed: the snapshot's.
        param: the SolverParameter message.
        emit: takes the events.
    """
    if param.random_seed >= 0 and param.random_seed != seed:
        emit(Warned(f"going on with the snapshot's seed {seed}, not with random_seed {param.random_seed}"))
    for net in nets:
        net.seed = net.context.seed = seed


def warn_of_ranks(before: int | None, now: int, emit: Emit) -> None:
    """Says that another number of ranks makes another batch."""
    if before is not None and before != now:
        emit(
            Warned(
                f"the snapshot was taken with {before} rank(s) and training goes on with {now}:"
                " the batch over all ranks changes with them"
            )
        )


def _named(train_net: Net, test_nets: Sequence[Net]) -> Iterator[tuple[str, DataLayer, int | None]]:
    """(name in a snapshot, layer, number of the test net or None) of all data layers."""
    for layer in train_net.data_layers:
        yield layer.name, layer, None
    for index, net in enumerate(test_nets):
        for layer in net.data_layers:
            yield f"{index}:{layer.name}", layer, index


def _tests_done(param: SolverParameter, iteration: int) -> int:
    """How many tests come before the update number `iteration` (the test due at that number comes after)."""
    if param.test_interval <= 0 or iteration == 0:
        return 0
    due = (iteration - 1) // param.test_interval + 1
    return due if param.test_initialization else due - 1
