"""What every way of keeping replicas together comes to on any number of trainers, for `engine simulate --sync`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mgcaffe.comm.replicas.event_simulation import simulate_events
from mgcaffe.comm.replicas.prediction import Prediction, has_formula, predict
from mgcaffe.comm.replicas.workload import FOREGROUND, Exchange, Training


def scale(
    syncs: Sequence[str],
    everies: Sequence[int],
    trainers: Iterable[int],
    training: Training,
    exchange: Exchange,
    *,
    interval_s: float = 0.0,
) -> list[Prediction]:
    """Return the predictions by number of trainers, then in the order given; by a formula wherever there is one.

    Args:
        syncs: names in `workload.SYNCS`.
        everies: k, iterations between two rounds; those in the foreground are predicted with each.
        trainers: how many, each at least 1.
        training: how a trainer trains by itself.
        exchange: what brings replicas together.
        interval_s: the least time from the start of one background round to the next.

    Raises:
        CommError: see `prediction.predict`.
    """
    found = []
    for count in trainers:
        for sync, every in _variants(syncs, everies):
            answer = predict if has_formula(sync, count, training, exchange) else simulate_events
            found.append(answer(sync, count, training, exchange, every=every, interval_s=interval_s))
    return found


def _variants(syncs: Sequence[str], everies: Sequence[int]) -> Iterator[tuple[str, int | None]]:
    for sync in syncs:
        if sync in FOREGROUND:
            yield from ((sync, every) for every in everies)
        else:
            yield sync, None


def system_name(prediction: Prediction) -> str:
    """`ma every 5`, `shadow_ma`."""
    return prediction.sync if prediction.every is None else f"{prediction.sync} every {prediction.every}"


def by_system(predictions: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """Return the predictions of each system by its name; systems of which all figures are equal share an entry."""
    systems: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        systems.setdefault(system_name(prediction), []).append(prediction)
    merged: dict[tuple[object, ...], list[str]] = {}
    for name, found in systems.items():
        figures = tuple((each.every, each.trainers, each.examples_per_s, each.gap, each.bytes_per_s) for each in found)
        merged.setdefault(figures, []).append(name)
    return {_shared_name(names): systems[names[0]] for names in merged.values()}


def _shared_name(names: Sequence[str]) -> str:
    """`ma, bmuf every 5`."""
    return ", ".join([*(name.partition(" every ")[0] for name in names[:-1]), names[-1]])
