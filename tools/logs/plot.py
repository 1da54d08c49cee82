"""Draws what `engine log` read: losses, test scores and the learning rate over the iterations."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgcaffe.errors import UsageError
from mgcaffe.tools.logs.reader import Row, RunLog
from mgcaffe.tools.speedup_plot import literal, save_figure

_SUFFIXES = (".png", ".svg", ".pdf")
# Colours that people with colour blindness can tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#999999")
_TIMES = ("iterations_per_s", "images_per_s", "data_wait_ms", "comm_hidden_ms", "comm_exposed_ms")
_MARKERS_UP_TO = 60
_MAX_NAMES = 12
"""So many lines are named at most, for which a panel has space."""

Series = dict[str, list[tuple[float, float]]]


def check_plot(path: str, flag: str = "--plot") -> None:
    """Make sure, before any work, that a plot can be drawn; `flag` is what the message calls it.

    Raises:
        UsageError: matplotlib is not installed, or another suffix than .png, .svg and .pdf.
    """
    if Path(path).suffix not in _SUFFIXES:
        raise UsageError(f"{flag}={path}: the name should end in one of {', '.join(_SUFFIXES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"{flag} needs matplotlib, which is not installed", hint="pip install 'mgcaffe[plot]'")


def plot_log(path: str, log: RunLog) -> None:
    """Draw one panel for losses, one for scores that are no losses, and one for the learning rate.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    panels = [(title, series) for title, series in panels_of(log).items() if series]
    draw_panels(path, log.net, panels)


def draw_panels(
    path: str, title: str, panels: Sequence[tuple[str, Series]], *, across: str = "iteration", height: float = 2.8
) -> None:
    """Draw panels of lines below each other.

    Args:
        path: the file.
        title: what stands above them; may be empty.
        panels: the name of each, and its lines.
        across: what the horizontal axes show.
        height: of a panel, in inches.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height * max(1, len(panels))), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(literal(title), fontsize=10)
    for axes, (name, series) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        _draw(axes, name, series, across)
    save_figure(figure, path)


def panels_of(log: RunLog) -> dict[str, Series]:
    """Return what is drawn: the lines of each panel by their names."""
    losses: Series = {}
    scores: Series = {}
    for group, rows in [("train", log.train), *((f"test #{net}", log.tests[net]) for net in sorted(log.tests))]:
        for name, points in _series(rows).items():
            panel = losses if "loss" in name.lower() else scores
            panel[f"{group}: {name}"] = points
    rates = [(float(row.iteration), row.rate) for row in log.train if row.rate is not None]
    return {"loss": losses, "score": scores, "learning rate": {"learning rate": rates} if rates else {}}


def _series(rows: list[Row]) -> Series:
    series: Series = {}
    for row in rows:
        for name, value in row.values().items():
            if name not in _TIMES:
                series.setdefault(name, []).append((row.iteration, value))
    return series


def _draw(axes: Any, title: str, series: Series, across: str) -> None:
    for number, points in enumerate(series.values()):
        x, y = zip(*points, strict=True)
        marker = "o" if len(points) <= _MARKERS_UP_TO else ""
        axes.plot(x, y, color=_COLOURS[number % len(_COLOURS)], marker=marker, markersize=3, linewidth=1.2)
    axes.set_xlabel(across)
    axes.set_ylabel(title)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1 or title not in series:
        names = [literal(name) for name in series]
        if len(names) > _MAX_NAMES:
            names[_MAX_NAMES - 1 :] = [f"and {len(names) - _MAX_NAMES + 1} more"]
        axes.legend(axes.get_lines()[: len(names)], names, frameon=False, fontsize=8)
