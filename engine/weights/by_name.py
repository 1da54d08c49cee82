"""Trained weights in and out of a net, by layer name (Caffe: Net::CopyTrainedLayersFrom, Net::ToProto).

Files are binary NetParameter messages (`.caffemodel`, every form since 2013) or HDF5 (`.caffemodel.h5`, see
`weights_hdf5`). Where several layers have one name, the first in the file goes to the first in the net, the
second to the second; Caffe copies them all to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mgcaffe.engine.graph import sharing
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter, WholeRows
from mgcaffe.engine.weights.saved_layers import SavedBlob, SavedLayer, saved_layers
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter, fill_blob

FROM_SCRATCH = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."


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


def copy_message(layers: Sequence[Layer], net: NetParameter, source: str) -> CopyReport:
    """Copy the blobs of a NetParameter message to the layers of the same names, as `copy_saved` does."""
    return copy_saved(layers, saved_layers(net, source=source), source)


def copy_saved(
    layers: Sequence[Layer], saved: Sequence[SavedLayer], source: str, *, tables_too: bool = True
) -> CopyReport:
    """Copy saved layers to the layers of the same names. Nothing is copied unless everything fits.

    Args:
        layers: the net's.
        saved: the file's.
        source: what to call the file.
        tables_too: whether to copy tables whose rows lie in several processes.

    Raises:
        NetError: a layer has another number of blobs, or a blob another shape, than in the file.
    """
    report = CopyReport(source)
    ours, theirs = sharing.by_name(layers, "parameters"), sharing.by_name(saved, "blobs")
    pairs: list[tuple[Layer, SavedLayer]] = []
    for name, found in theirs.items():
        targets = ours.get(name, [])
        pairs += zip(targets, found, strict=False)
        reason = f"the net has only {len(targets)} of this name" if targets else "the net has no layer of this name"
        report.skipped += [CopyRow(name, reason) for layer in found[len(targets) :] if layer.blobs]
    refused_at = None
    for target, layer in pairs:
        problem = _misfit(target, layer.blobs)
        if problem:
            report.refused.append(CopyRow(layer.name, problem))
            refused_at = refused_at or target
        elif layer.blobs:
            shapes = [layer.blobs[index].shape for index in sorted(layer.blobs)]
            report.copied.append(CopyRow(layer.name, ", ".join(map(_text, shapes))))
    for name, targets in ours.items():
        found = theirs.get(name, [])
        reason = f"the file has only {len(found)} of this name" if found else "the file has no layer of this name"
        missing = [CopyRow(name, f"{reason}; keeps its values") for layer in targets[len(found) :] if layer.parameters]
        report.skipped += missing
    if refused_at is not None:
        rows = "; ".join(f"layer '{row.layer}': {row.detail}" for row in report.refused)
        raise NetError(f"weights in {source} do not fit: {rows}", location=refused_at.location(), hint=FROM_SCRATCH)
    planned = [(target.parameters[index], blob) for target, layer in pairs for index, blob in layer.blobs.items()]
    if not tables_too:
        planned = [(each, blob) for each, blob in planned if not _is_divided(each)]
    # All are read before the first is copied, so that a damaged file leaves the net as it was; and then once more, one
    # at a time, which costs little, where keeping them would cost as much memory as all weights.
    for _, blob in planned:
        if blob.chunks is None:
            blob.load()
    for parameter, blob in planned:
        whole = parameter.whole_values if isinstance(parameter, RowParameter) else None
        if whole is not None:
            _store(whole, blob)
        else:
            copy_blob(parameter.data, blob)
    return report


def _is_divided(parameter: Parameter) -> bool:
    return isinstance(parameter, RowParameter) and parameter.placement is not None


def _store(target: WholeRows, blob: SavedBlob) -> None:
    """Write values into rows that lie in several processes."""
    if blob.rows is not None:
        target.load(blob.rows)
        return
    start = 0
    for values in (blob.load(),) if blob.chunks is None else blob.chunks():
        target.store(start, values.reshape(-1))
        start += values.size


def copy_blob(target: torch.Tensor, blob: SavedBlob) -> None:
    """Copy a saved blob into a tensor of as many values, of any type, device and order in memory."""
    if not target.is_contiguous():
        whole = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        copy_blob(whole, blob)
        target.copy_(whole)
        return
    flat, start = target.view(-1), 0
    for values in (blob.load(),) if blob.chunks is None else blob.chunks():
        part = flat[start : start + values.size]
        if target.device.type == "cpu":
            with np.errstate(all="ignore"):  # a double may be too large for a float: it becomes infinite
                np.copyto(part.numpy(), values.reshape(-1))
        else:
            part.copy_(torch.tensor(values).reshape(-1))
        start += values.size


def layers_to_proto(net: NetParameter, layers: Sequence[Layer], diff: bool) -> None:
    """Add every layer with its blobs to a NetParameter message.

    Args:
        net: the message.
        layers: the layers.
        diff: whether to write the gradients as well.
    """
    for layer in layers:
        message = net.layer.add()
        message.CopyFrom(layer.param)
        message.phase = layer.phase
        del message.blobs[:]
        for parameter in layer.parameters:
            blob = message.blobs.add()
            fill_blob(blob, parameter.data.cpu().numpy())
            if diff:
                fill_blob(blob, parameter.dense_diff().cpu().numpy(), diff=True)


def _misfit(target: Layer, blobs: Mapping[int, SavedBlob]) -> str:
    lacks = [
        index for index, parameter in enumerate(target.parameters) if index not in blobs and parameter.owner is None
    ]
    if lacks or any(index >= len(target.parameters) for index in blobs):
        return f"{len(blobs)} blob(s) in the file, {len(target.parameters)} in the net"
    for index, blob in blobs.items():
        wanted = target.parameters[index].shape
        if not blob.fits(wanted):
            return f"blob {index} has shape {_text(blob.shape)} in the file, {_text(wanted)} in the net"
    return ""


def _text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "()"
