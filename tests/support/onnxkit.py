"""Nets that are exported to ONNX, run by onnxruntime and compared with our own engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import NetParameter, parse_text
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.onnx_out.export import export_net
from mgcaffe.tools.convert.onnx_out.file import write_model
from mgcaffe.tools.convert.onnx_side import OnnxSide
from mgcaffe.tools.convert.proof import Difference, compare


def random_net(text: str) -> Net:
    """A net in its TEST phase whose parameters are all drawn at random, statistics such that they make sense."""
    net = Net(parse_text(text, NetParameter), phase=TEST, seed=1701)
    fill_at_random(net)
    return net


def fill_at_random(net: Net, seed: int = 5) -> None:
    """Fill all parameters of a net with seeded noise whose size lets values neither grow nor vanish."""
    generator = torch.Generator().manual_seed(seed)
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
