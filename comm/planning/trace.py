"""Traces: the layers of a net, how many gradients each has, and how long its backward pass took.

The form is that of the MG-WFBP authors' measurements, one row a layer in forward order:

    # googlenet, batch 64
    # forward_us: 102700
    layer,elements,backward_us
    conv1/7x7_s2,9472,15143.7

Lines that begin with `#` are remarks; `forward_us` among them says how long the forward pass took.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.comm.planning.csv_rows import csv_rows, read_text
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import shown_name
from mgcaffe.errors.whole_files import write_output

_COLUMNS = ("layer", "elements", "backward_us")
_MAX_ELEMENTS = 2**60
_MAX_SECONDS = 1e6
_FORWARD = re.compile(r"#\s*forward_us:\s*(\S+)")


@dataclass(frozen=True)
class TraceLayer:
    """A layer's name, its gradient in elements (0 without parameters), and its backward pass in seconds."""

    name: str
    elements: int
    backward_s: float


@dataclass(frozen=True)
class Trace:
    """One worker's iteration.

    Attributes:
        layers: in forward order.
        forward_s: how long the forward pass took, None where it was not measured.
    """

    layers: tuple[TraceLayer, ...]
    forward_s: float | None = None

    @property
    def backward_s(self) -> float:
        """How long the whole backward pass takes, in seconds."""
        return math.fsum(layer.backward_s for layer in self.layers)

    @property
    def elements(self) -> int:
        """How many gradients there are in all."""
        return sum(layer.elements for layer in self.layers)

    def scaled(self, factor: float) -> Trace:
        """Return the same net on a machine that takes `factor` times as long."""
        layers = (TraceLayer(layer.name, layer.elements, factor * layer.backward_s) for layer in self.layers)
        return Trace(tuple(layers), None if self.forward_s is None else factor * self.forward_s)

    def segments(self) -> tuple[list[Segment], list[float]]:
        """Return what a schedule decides on: the layers with gradients, and when each is ready, in seconds.

        The time of a layer without gradients delays those below it.
        """
        ready = ready_times([layer.backward_s for layer in self.layers])
        segments: list[Segment] = []
        offset = 0
        for layer in self.layers:
            if layer.elements:
                segments.append(Segment(layer.name, offset, layer.elements))
                offset += layer.elements
        return segments, [when for when, layer in zip(ready, self.layers, strict=True) if layer.elements]


def fold(layers: Iterable[TraceLayer]) -> tuple[TraceLayer, ...]:
    """Leave only layers with gradients, adding the time of others to the next below that has some.

    What is left over below the lowest one stays behind as a row without elements, since no gradient waits
    for it.
    """
    folded: list[TraceLayer] = []
    above = 0.0
    lowest = None
    for layer in reversed(list(layers)):
        above += layer.backward_s
        lowest = layer.name
        if layer.elements:
            folded.append(TraceLayer(layer.name, layer.elements, above))
            above = 0.0
    if above > 0 and lowest is not None:
        folded.append(TraceLayer(lowest, 0, above))
    return tuple(reversed(folded))


def read_trace(path: str | Path) -> Trace:
    """Read a trace.

    Raises:
        DataError: the file cannot be read, has other columns, a row that is no layer, or no layer with gradients or
            that takes time.
    """
    text = read_text(path, "a trace")
    layers: list[TraceLayer] = []
    for location, row in csv_rows(path, text, _COLUMNS):
        name, elements, micros = (row[column] for column in _COLUMNS)
        try:
            layer = TraceLayer(name, int(elements), float(micros) * 1e-6)
        except ValueError:
            what = f"'{shown_name(elements)}' and '{shown_name(micros)}' should be numbers"
            raise DataError(what, location=location) from None
        if not (0 <= layer.elements <= _MAX_ELEMENTS and 0 <= layer.backward_s <= _MAX_SECONDS):
            what = f"layer '{name}' has {shown_name(elements)} elements and takes {shown_name(micros)} us"
            raise DataError(what, location=location)
        layers.append(layer)
    if not any(layer.elements for layer in layers):
        raise DataError("the trace has no layer with gradients", location=Location(str(path)))
    if not any(layer.backward_s for layer in layers):
        raise DataError("no layer of the trace takes any time", location=Location(str(path)))
    return Trace(tuple(layers), _forward_seconds(text, str(path)))


def _forward_seconds(text: str, path: str) -> float | None:
    for number, line in enumerate(text.splitlines(), start=1):
        found = _FORWARD.match(line)
        if not found:
            continue
        try:
            seconds = float(found[1]) * 1e-6
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _MAX_SECONDS:
            what = f"forward_us is '{shown_name(found[1])}', not a number of microseconds"
            raise DataError(what, location=Location(path, number, 1))
        return seconds
    return None


def write_trace(path: str | Path, trace: Trace, remarks: Iterable[str] = ()) -> None:
    """Write a trace, with remarks at its head.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    text = io.StringIO()
    for remark in remarks:
        text.write(f"# {remark}\n")
    if trace.forward_s is not None:
        text.write(f"# forward_us: {trace.forward_s * 1e6:.6g}\n")
    is_remark = any(layer.name.startswith("#") for layer in trace.layers)  # so it would seem without quotation marks
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if is_remark else csv.QUOTE_MINIMAL)
    writer.writerow(_COLUMNS)
    writer.writerows((layer.name, layer.elements, f"{layer.backward_s * 1e6:.6g}") for layer in trace.layers)
    write_output(path, text.getvalue())
