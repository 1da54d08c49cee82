"""Draws what `engine simulate --sync` found: examples per second, gap and bytes over the number of trainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mgcaffe.tools.speedup_plot import label_counts, new_figure, save_figure

if TYPE_CHECKING:
    from mgcaffe.comm.replicas.prediction import Prediction

# Colours of Okabe and Ito; the foreground has markers, the background thick lines.
_COLOURS = {
    "ma": "#0072B2",
    "bmuf": "#56B4E9",
    "easgd": "#D55E00",
    "ds_sync": "#CC79A7",
    "shadow_ma": "#009E73",
    "shadow_bmuf": "#999999",
    "shadow_easgd": "#E69F00",
}
_MARKERS = "ovs^Dxp*"


def plot_scaling(path: str, predictions: Sequence[Prediction], title: str) -> None:
    """Draw the predictions into a file; its suffix says in which form.

    Raises:
        UsageError: another suffix than .png, .svg and .pdf.
        EngineError: with exit code 73, when the file cannot be written.
    """
    from mgcaffe.comm.replicas.scaling import by_system

    figure, (speed, gap, sent) = new_figure(path, title, panels=3)
    panels: list[tuple[Any, str, Callable[[Prediction], float | None]]] = [
        (speed, "examples/s", lambda each: each.examples_per_s),
        (gap, "gap: iterations for each synchronization", lambda each: each.gap),
        (sent, "MB/s that each trainer hands over", lambda each: each.bytes_per_s / 1e6 or None),
    ]
    everies = sorted({each.every for each in predictions if each.every is not None})
    counts = sorted({each.trainers for each in predictions})
    for axes, name, value in panels:
        for label, found in by_system(predictions).items():
            points = [(each.trainers, value(each)) for each in found]
            x, y = zip(*points, strict=True)
            axes.plot(x, [float("nan") if number is None else number for number in y], label=label,
                      **_style(found[0], everies))  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylabel(name)
        label_counts(axes, counts, "trainers")
    figure.legend(*speed.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    save_figure(figure, path)


def _style(prediction: Prediction, everies: Sequence[int]) -> dict[str, Any]:
    if prediction.sync == "none":
        return {"color": "black", "linestyle": ":", "linewidth": 1.2, "zorder": 5}
    colour = _COLOURS[prediction.sync]
    if prediction.every is None:
        return {"color": colour, "linewidth": 3, "zorder": 2}
    marker = _MARKERS[everies.index(prediction.every) % len(_MARKERS)]
    return {"color": colour, "linewidth": 1.2, "marker": marker, "markersize": 4.5, "zorder": 3}
