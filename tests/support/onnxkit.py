"""Nets that are exported to ONNX, run by onnxruntime and compared with our own engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import NetParameter, parse_text, print_text
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.onnx_out.export import export_net
from mgcaffe.tools.convert.onnx_out.file import write_model
from mgcaffe.tools.convert.onnx_own import own_model
from mgcaffe.tools.convert.onnx_side import OnnxSide
from mgcaffe.tools.convert.proof import Difference, compare


def random_net(text: str) -> Net:
    """A net in its TEST phase whose parameters are all drawn at random, statistics such that they make sense."""
    net = Net(parse_text(text, NetParameter), phase=TEST, seed=1701)
    fill_at_random(net)
    return net


def fill_at_random(net: Net) -> None:
    """Fill all parameters of a net with seeded noise whose size lets values neither grow nor vanish."""
    generator = torch.Generator().manual_seed(5)
    for layer in net.layers:
        for number, parameter in enumerate(layer.parameters):
            values = parameter.data
            if parameter.owner is not None:
                continue
            if parameter.measured and number != 0:
                values.uniform_(1, 2, generator=generator)
            else:
                inputs = values[0].numel() if values.dim() > 1 and values.numel() else 4
                values.normal_(0, (2 / inputs) ** 0.5, generator=generator)


def write(net: Net, path: Path, *, allow: Collection[str] = ()) -> onnx.ModelProto:
    """Export a net, have onnx check every node and shape, and return the model."""
    write_model(export_net(net, allow=allow), path)
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(str(path))


def differences(
    net: Net,
    path: Path,
    *,
    allow: Collection[str] = (),
    inputs: Mapping[str, np.ndarray] | None = None,
    ours: Mapping[str, np.ndarray] | None = None,
) -> list[Difference]:
    """Export a net and compare all its values; every value but an alias of another has to be there.

    Args:
        net: the net.
        path: where the model is written.
        allow: see `export_net`.
        inputs: None: the net's fitting ones.
        ours: the net's values for them, if they are known already.
    """
    write(net, path, allow=allow)
    inputs = fitting_inputs(net) if inputs is None else inputs
    ours = CaffeSide(net).run(inputs) if ours is None else ours
    theirs = OnnxSide(path).run(inputs)
    aliases = {blob.name for node in net.nodes if node.layer.type == "Split" for blob in node.tops}
    assert set(ours) - aliases <= set(theirs)
    return compare(ours, theirs, {name: name for name in ours})


def assert_same_net(net: Net, path: Path) -> None:
    """What is read from the file again is the net that it was written from."""
    own = own_model(onnx.load(path), path)
    assert print_text(own.source.param) == print_text(net.param)
    again = own.build(seed=2)
    assert [(layer.name, layer.type) for layer in again.layers] == [(layer.name, layer.type) for layer in net.layers]
    absent = []
    for layer, other in zip(net.layers, again.layers, strict=True):
        ours, theirs = ([parameter.data for parameter in each.parameters] for each in (layer, other))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        if layer.type == "BatchNorm":
            if layer.use_global:
                factor = 0 if ours[2] == 0 else 1 / ours[2]
                ours[:3] = [ours[0] * factor, ours[1] * factor, torch.ones(1)]
            else:  # the model has no use for them
                absent += [
                    f"layer '{layer.name}': blob {number} is not in the file; keeps its values" for number in range(3)
                ]
                ours[:3] = theirs[:3]
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True)), layer.name
    assert own.skipped == absent
