"""Finds the fastest way to compute each convolution and inner product before training begins (`autotune`).

Rank 0 measures, or reads what an earlier run measured, and all ranks take its choices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.comm.supervision import status as statuses
from mgcaffe.engine import Net
from mgcaffe.engine.heap import blocks_mapped
from mgcaffe.engine.kernels.choice.choices import Measured, Recorded, Records
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.kernels.choice.record_file import Machine, read_records, write_records
from mgcaffe.engine.kernels.choice.survey import Asked, Survey
from mgcaffe.engine.kernels.measuring import MeasuringEnded, measure
from mgcaffe.engine.tuning import LayerOperations, let_cudnn_measure, tune
from mgcaffe.errors import DataError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Noted, Warned

Tell = Callable[[str], None]
StopIsRequested = Callable[[], bool]

OFF, ON = "off", "on"

BOUNDS = {"OFF": 0.0, "SAFE": 1e-5, "FAST": 1e-4}
"""By how much of the largest value Winograd's convolutions may differ from the others, by the field `winograd`."""


@dataclass(frozen=True)
class Tuning:
    """What is known about a net's operations.

    Attributes:
        records: what was measured, now or before.
        layers: those that there is a choice for; empty where nothing may be measured.
        summary: what was done, for the user.
    """

    records: Records
    layers: Sequence[LayerOperations]
    summary: str


def autotune(
    param: SolverParameter,
    nets: Sequence[Net],
    communicator: Communicator,
    emit: Emit,
    stop_is_requested: StopIsRequested,
) -> None:
    """Have all nets compute as is fastest for the first one; collective.

    Args:
        param: the SolverParameter; `autotune`, `winograd` and `comm_param.deterministic` count.
        nets: the training net, and those that compute on the same device.
        communicator: all ranks.
        emit: takes the events.
        stop_is_requested: asked on rank 0 before the first operation and after each that was measured, but not on a
            GPU; if so, it measures no more.

    Raises:
        DataError: on rank 0: a file given by name that cannot be used (65) or written (73).
    """
    if (setting := param.autotune) in ("", OFF):
        return
    measures = not param.comm_param.deterministic
    let_cudnn_measure(nets[0].device, measures)
    chosen: Records = {}
    bound = BOUNDS[SolverParameter.Winograd.Name(param.winograd)]
    if communicator.rank == 0:
        statuses.doing("setting up: measuring how layers are computed fastest (autotune)")
        tuning = tune_net(
            nets[0],
            setting,
            lambda text: emit(Warned(text)),
            bound,
            measures=measures,
            stop_is_requested=stop_is_requested,
        )
        emit(Noted(tuning.summary))
        chosen = tuning.records
    if communicator.size > 1:
        statuses.doing("setting up: receiving from rank 0 how layers are computed fastest (autotune)")
        rows = communicator.broadcast_object([[text, each.rule, each.chosen] for text, each in chosen.items()])
        chosen = {text: Measured(rule, name, {}) for text, rule, name in rows}
    for net in nets:
        net.context.choices = Recorded(chosen, bound)


def tune_net(
    net: Net,
    setting: str,
    warn: Tell,
    bound: float = 0.0,
    *,
    measures: bool = True,
    stop_is_requested: StopIsRequested = lambda: False,
) -> Tuning:
    """Find the fastest way to compute each operation of a net that is not recorded yet, and record it.

    Args:
        net: it stays as it is.
        setting: `on`, or the name of a file.
        warn: takes warnings.
        bound: of candidates that round more than the others (`BOUNDS`); with 0 there are none.
        measures: whether to measure what is not recorded; otherwise the rules hold for it.
        stop_is_requested: asked before the first operation and after each that was measured, but not on a GPU; if so,
            no more are measured.

    Raises:
        DataError: a file given by name cannot be used (exit code 65) or written (73).
    """
    machine = Machine.here(net.device)
    is_named = setting != ON
    file = Path(setting) if is_named else _cache_file(machine, warn)
    records = {} if file is None else _read(file, machine, warn, must_work=is_named)
    if not measures:
        none = f"no choice: {file} holds none" if file else "no choice"
        found = f"the {len(records)} choices recorded in {file}" if records else none
        return Tuning(records, [], f"autotune measures nothing (deterministic) and takes {found}")
    began = time.perf_counter()
    known = frozenset(records)

    def record() -> None:
        if file is not None:
            _record(file, machine, records, known, is_named=is_named)

    # A file given by name that cannot be written is said before anything is measured.
    begin = record if is_named else lambda: None
    layers, asked, measured = _tune(net, records, bound, warn, stop_is_requested, begin)
    seconds = time.perf_counter() - began
    mine = [records[text] for layer in layers for text in layer.operations]
    faster = [each for each in mine if each.chosen != each.rule]
    saved_ms = 1e3 * sum(each.saved_s for each in faster)
    summary = (
        f"autotune: measured {measured} operations in {seconds:.1f} s; {len(faster)} of {len(mine)} run "
        f"otherwise than by rule, which should save {saved_ms:.1f} ms an iteration"
    )
    if measured:
        try:
            record()
            summary += f" (recorded in {file})" if file else ""
        except DataError as error:
            if is_named:
                raise
            warn(f"autotune: {error.message}; what was measured holds for this run alone")
    elif not asked:
        summary += f" (all recorded in {file})"
    return Tuning(records, layers, summary)


def _tune(
    net: Net, records: Records, bound: float, warn: Tell, stop_is_requested: StopIsRequested, begin: Callable[[], None]
) -> tuple[Sequence[LayerOperations], int, int]:
    """Bring the records up to date with the net; those of operations that could not be measured are dropped.

    On a CPU `begin` is called, and then a process of its own measures. Where it ends, another one goes on with the next
    operation. Where a stop is requested, it is ended, and what it has measured is kept.

    Returns:
        The layers with the operations that there are records of, how many had to be measured, and how many were.
    """
    if net.device.type != "cpu":
        contest = Contest(records, bound)
        return tune(net, contest), contest.measured, contest.measured
    survey = Survey(records, bound)
    with blocks_mapped():
        layers = tune(net, survey)
    for text in survey.open:
        records.pop(text, None)
    if survey.open:
        begin()
    left, begins_again = [*survey.open], False
    while left and not stop_is_requested():
        try:
            _measure(records, {text: survey.open[text] for text in left}, bound, stop_is_requested)
            break
        except MeasuringEnded as failure:
            # One that is started again and ends at once would end at all others as well.
            if failure.text is None or (begins_again and failure.text == left[0]):
                warn(f"autotune: {failure}; the rules hold for all that is not recorded")
                break
            warn(f"autotune: {failure}; its rule holds")
            left, begins_again = left[left.index(failure.text) + 1 :], True
    missing = sum(text not in records for text in survey.open)
    if missing and stop_is_requested():
        warn(f"autotune: a stop was requested; the rules hold for {missing} operations that were not measured")
    known = [replace(each, operations=[text for text in each.operations if text in records]) for each in layers]
    return known, len(survey.open), len(survey.open) - missing


def _measure(records: Records, asked: Mapping[str, Asked], bound: float, stop_is_requested: StopIsRequested) -> None:
    """Add what is asked to the records, until all is measured or a stop is requested; raises `MeasuringEnded`."""
    with closing(measure(asked, bound)) as answers:
        for text, measured in answers:
            records[text] = measured
            if stop_is_requested():
                return


def _cache_file(machine: Machine, warn: Tell) -> Path | None:
    """Return the file in the user's cache folder; None, with a warning, where there is no such folder."""
    try:
        return machine.default_file()
    except DataError as error:
        warn(f"autotune: {error.message}; what is measured holds for this run alone")
        return None


def _read(file: Path, machine: Machine, warn: Tell, *, must_work: bool) -> Records:
    """Return what a file holds, nothing where it does not exist or, unless it must work, cannot be used."""
    if not file.exists():
        return {}
    try:
        return read_records(file, machine)
    except DataError as error:
        if must_work:
            raise
        where = f"{error.location}: " if error.location else ""
        warn(f"autotune: {where}{error.message}; all is measured anew")
        return {}


def _record(file: Path, machine: Machine, records: Records, known: Collection[str], *, is_named: bool) -> None:
    """Write records beside those that another run has added to what was `known` to be in the file."""
    found = _read(file, machine, lambda _: None, must_work=is_named)
    added = {text: measured for text, measured in found.items() if text not in known}
    write_records(file, machine, added | records)
