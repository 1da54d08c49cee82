"""What `engine simulate --sync` prints and writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.table import format_bytes, format_table

if TYPE_CHECKING:
    from mgcaffe.comm.replicas.prediction import Prediction
    from mgcaffe.comm.replicas.workload import Exchange, Training


def heading(training: Training, exchange: Exchange) -> str:
    """Return what was assumed, in two lines."""
    workers = f"{training.threads} workers, " if training.threads > 1 else ""
    uneven = f", spread {training.spread:g}" if training.spread else ""
    uneven += f", one trainer {1e3 * training.straggler_s:g} ms slower" if training.straggler_s else ""
    alone = training.batch / training.step_s
    link = f"{exchange.servers} synchronization servers, " if exchange.servers else ""
    link += f"links of {8e-9 * exchange.bandwidth:g} Gbit/s, " if exchange.bandwidth else ""
    return (
        f"a trainer: {workers}iteration {1e3 * training.iteration_s:.2f} ms{uneven}, batch {training.batch}: "
        f"{alone:,.0f} examples/s by itself\n"
        f"a synchronization: {format_bytes(exchange.parameter_bytes)} of parameters, {link}"
        f"all-reduce {exchange.network.name}, processor time {1e3 * exchange.processor_s:.3g} ms"
    )


def tables(predictions: Sequence[Prediction]) -> str:
    """Return a table each of examples per second, gap and bytes: a row a system, a column a number of trainers."""
    from mgcaffe.comm.replicas.scaling import by_system

    exchanging = [each for each in predictions if each.gap is not None]
    in_background = [each for each in exchanging if each.every is None]
    served = [each for each in predictions if each.server_bytes_per_s]
    blocks = [
        _table("examples/s", predictions, lambda each: f"{each.examples_per_s:,.0f}"),
        _table("gap (k in the foreground)", in_background, lambda each: f"{each.gap:.2f}"),
        _table("MB/s handed over by each", exchanging, lambda each: f"{each.bytes_per_s / 1e6:.2f}"),
        _table("MB/s of each server", served, lambda each: f"{each.server_bytes_per_s / 1e6:.2f}"),
    ]
    text = "\n\n".join(filter(None, blocks))
    by_chance = [each for each in predictions if each.is_simulated]
    if by_chance:
        text += f"\n\nSimulated event by event, the rest by formulas: {'; '.join(by_system(by_chance))}"
    return text


def _table(title: str, predictions: Sequence[Prediction], cell: Callable[[Prediction], str]) -> str:
    from mgcaffe.comm.replicas.scaling import by_system

    counts = sorted({each.trainers for each in predictions})
    rows = []
    for name, found in by_system(predictions).items():
        cells = {each.trainers: cell(each) for each in found}
        rows.append((name, *(cells.get(count, "-") for count in counts)))
    headers = [str(count) for count in counts]
    return format_table((f"trainers: {title}", *headers), rows, right=headers) if rows else ""


def write_csv(path: str, predictions: Sequence[Prediction]) -> None:
    """Write one row for each prediction; an empty field is none.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    from mgcaffe.comm.replicas.prediction import Prediction

    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Prediction)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(each) for each in predictions)
    write_output(path, text.getvalue())
