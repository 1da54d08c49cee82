"""Trained weights in and out of a net, by layer name (Caffe: Net::CopyTrainedLayersFrom, Net::ToProto)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter, Shape
from mgcaffe.errors import NetError

FROM_SCRATCH = (
    "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."
)


@dataclass(frozen=True)
class CopyRow:
    """What became of one layer of a weights file, or of one layer of the net that the file lacks."""

    layer: str
    detail: str


@dataclass
class CopyReport:
    """Which layers' weights were copied, which were skipped, and which did not fit.

    `str(report)` is a table.
    """

    source: str
    copied: list[CopyRow] = field(default_factory=list)
    skipped: list[CopyRow] = field(default_factory=list)
    refused: list[CopyRow] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [
            (verdict, row.layer, row.detail)
            for verdict, part in (
                ("copied", self.copied),
                ("skipped", self.skipped),
                ("refused", self.refused),
            )
            for row in part
        ]
        width = max((len(layer) for _, layer, _ in rows), default=0)
        lines = [f"  {verdict:8} {layer:{width}}  {detail}" for verdict, layer, detail in rows]
        return "\n".join([f"weights from {self.source}:", *lines])


def copy_trained_layers(layers: Sequence[Layer], weights: Any, source: str) -> CopyReport:
    """Copies the blobs of every layer in a NetParameter message to the layer of the same name.

    Nothing is copied unless everything fits.

    Raises:
        NetError: a layer has another number of blobs, or a blob another shape, than in the file.
    """
    from mgcaffe.prototxt import blob_array, blob_shape

    by_name: dict[str, Layer] = {}
    for layer in layers:
        by_name.setdefault(layer.name, layer)
    report = CopyReport(source)
    planned: list[tuple[Parameter, Any]] = []
    found: set[str] = set()
    for saved in weights.layer:
        target = by_name.get(saved.name)
        if target is None:
            if len(saved.blobs):
                report.skipped.append(CopyRow(saved.name, "the net has no layer of this name"))
            continue
        found.add(saved.name)
        shapes = [blob_shape(blob) for blob in saved.blobs]
        problem = _misfit(target, saved.blobs, shapes)
        if problem:
            report.refused.append(CopyRow(saved.name, problem))
        elif shapes:
            report.copied.append(CopyRow(saved.name, ", ".join(map(_text, shapes))))
            planned += zip(target.parameters, saved.blobs, strict=True)
    for layer in layers:
        if layer.parameters and layer.name not in found:
            report.skipped.append(CopyRow(layer.name, "the file has no layer of this name; keeps its values"))
    if report.refused:
        first = by_name[report.refused[0].layer]
        rows = "; ".join(f"layer '{row.layer}': {row.detail}" for row in report.refused)
        raise NetError(
            f"weights in {source} do not fit: {rows}", location=first.location(), hint=FROM_SCRATCH
        )
    for parameter, blob in planned:
        values = torch.from_numpy(blob_array(blob).reshape(parameter.shape))
        parameter.data.copy_(values)
    return report


def read_weights(path: str | Path) -> Any:
    """The NetParameter message of a weights file.

    Raises:
        NetError: the file cannot be read, or is no net with weights.
    """
    from mgcaffe.prototxt import read_net

    return read_net(Path(path))


def layers_to_proto(net: Any, layers: Sequence[Layer], diff: bool) -> None:
    """Adds every layer with its blobs to a NetParameter message.

    Args:
        net: the message.
        layers: the layers.
        diff: whether to write the gradients as well.
    """
    from mgcaffe.prototxt import fill_blob

    for layer in layers:
        message = net.layer.add()
        message.CopyFrom(layer.param)
        message.phase = layer.phase
        del message.blobs[:]
        for parameter in layer.parameters:
            blob = message.blobs.add()
            fill_blob(
                blob,
                parameter.data.detach().cpu().numpy(),
                parameter.diff.detach().cpu().numpy() if diff else None,
            )


def _misfit(target: Layer, blobs: Sequence[Any], shapes: Sequence[Shape]) -> str:
    if len(blobs) != len(target.parameters):
        return f"{len(blobs)} blob(s) in the file, {len(target.parameters)} in the net"
    for index, (blob, shape, parameter) in enumerate(zip(blobs, shapes, target.parameters, strict=True)):
        if shape != parameter.shape and not _legacy_fit(blob, shape, parameter.shape):
            return f"blob {index} has shape {_text(shape)} in the file, {_text(parameter.shape)} in the net"
    return ""


def _legacy_fit(blob: Any, saved: Shape, wanted: Shape) -> bool:
    """Whether a num x channels x height x width blob is `wanted` behind ones (Blob::ShapeEquals)."""
    if not any(blob.HasField(name) for name in ("num", "channels", "height", "width")):
        return False
    return len(wanted) <= 4 and saved == (1,) * (4 - len(wanted)) + wanted


def _text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "()"
