"""Draws what `engine simulate` found: speedup and efficiency over the number of workers, a line a schedule."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import UsageError
from mgcaffe.errors.whole_files import write_output

if TYPE_CHECKING:
    from mgcaffe.comm.planning.simulator import Result

# Colours that people with colour blindness can tell apart (Okabe and Ito), and markers that also print.
_STYLES = {
    "wfbp": ("#D55E00", "v"),
    "single": ("#0072B2", "s"),
    "threshold": ("#999999", "D"),
    "mgwfbp": ("#E69F00", "^"),
    "optimal": ("#009E73", "o"),
}
_SUFFIXES = (".png", ".svg", ".pdf")


def require_matplotlib() -> None:
    """Make sure, before any work, that a plot can be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed", hint="pip install 'mgcaffe[plot]'")


def plot_speedups(path: str, results: Sequence[Result], title: str) -> None:
    """Draw the results into a file; its suffix says in which form.

    Raises:
        UsageError: another suffix than .png, .svg and .pdf.
        EngineError: with exit code 73, when the file cannot be written.
    """
    figure, (speedup, efficiency) = new_figure(path, title, panels=2)
    workers = sorted({result.workers for result in results})
    speedup.plot(workers, workers, color="black", linestyle=":", linewidth=1, label="ideal")
    for schedule in dict.fromkeys(result.schedule for result in results):
        rows = sorted((row for row in results if row.schedule == schedule), key=lambda row: row.workers)
        _line(speedup, schedule, [(row.workers, row.speedup) for row in rows])
        _line(efficiency, schedule, [(row.workers, 100 * row.speedup / row.workers) for row in rows])
    speedup.set_yscale("log", base=2)
    speedup.yaxis.set_major_formatter(_plain)
    speedup.set_ylabel("speedup over one worker")
    efficiency.set_ylim(0, 104)
    efficiency.set_ylabel("efficiency: speedup / workers (%)")
    for axes in (speedup, efficiency):
        label_counts(axes, workers, "workers")
    speedup.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def new_figure(path: str, title: str, panels: int) -> tuple[Any, Sequence[Any]]:
    """Return a figure, and its panels from left to right.

    Raises:
        UsageError: the file has another suffix than .png, .svg and .pdf.
    """
    if Path(path).suffix not in _SUFFIXES:
        raise UsageError(f"--plot={path}: the name should end in one of {', '.join(_SUFFIXES)}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * panels, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(literal(title), fontsize=10)
    return figure, figure.subplots(1, panels)


def save_figure(figure: Any, path: str) -> None:
    """Write a figure; the file's suffix says in which form.

    Raises:
        EngineError: with exit code 73, when the file cannot be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix.removeprefix("."), dpi=100)
    write_output(path, content.getvalue())


def _line(axes: Any, schedule: str, points: Sequence[tuple[int, float]]) -> None:
    colour, marker = _STYLES[schedule]
    x, y = zip(*points, strict=True)
    # The line that a reader looks for lies on top of those that coincide with it.
    order = 4 if schedule == "optimal" else 3
    size = 4 if schedule == "optimal" else 6
    axes.plot(x, y, color=colour, marker=marker, markersize=size, linewidth=1.6, label=schedule, zorder=order)


def label_counts(axes: Any, counts: Sequence[int], name: str) -> None:
    """Make the horizontal axis one of numbers of workers, logarithmic."""
    axes.set_xscale("log", base=2)
    axes.set_xlabel(name)
    axes.xaxis.set_major_formatter(_plain)
    axes.tick_params(labelsize=8.5)
    if len(counts) <= 12:
        axes.set_xticks(counts)
    axes.minorticks_off()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:g}"


def literal(text: str) -> str:
    """Return a text that matplotlib shows as it is: it reads formulas between dollar signs, and hides names like _a."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
