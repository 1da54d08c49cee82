"""One training step of a converted net, to be compared with that of the model that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError
from mgcaffe.prototxt import NetParameter
from mgcaffe.prototxt.files import net_source
from mgcaffe.tools.convert.model import Model


def caffe_training_step(
    model: Model, inputs: Mapping[str, np.ndarray], labels: np.ndarray, *, output: str
) -> tuple[float, dict[tuple[str, int], np.ndarray]]:
    """Compute one training step in float64: BatchNorm by the batch, dropout off, softmax loss of an output.

    Args:
        model: a deploy net with weights in a NetParameter or a file.
        inputs: by blob.
        labels: one class an item.
        output: the blob of the scores.

    Returns:
        The loss, and the gradients of all parameters that are trained, by layer and number of the blob.
    """
    assert isinstance(model.weights, NetParameter | Path)
    source = net_source(_with_loss(model.source.param, len(labels), output), file=model.source.path)
    net = Net(source.param, sources=source, phase=TRAIN, dtype=torch.float64, seed=0)
    net.copy_trained_layers(model.weights)
    values = {**inputs, "label": labels}
    for node in net.nodes:
        if isinstance(node.layer, Input):
            node.layer.values = [torch.from_numpy(values[blob.name]).to(net.dtype) for blob in node.tops]
    net.clear_param_diffs()
    loss = net.forward_backward()
    gradients = {
        (layer.name, number): parameter.dense_diff().numpy().copy()
        for layer in net.layers
        for number, parameter in enumerate(layer.parameters)
        if parameter.wanted
    }
    net.close()
    return loss, gradients


def _with_loss(net: NetParameter, count: int, output: str) -> NetParameter:
    """Return the net with labels and a loss, and without dropout."""
    result = NetParameter()
    result.CopyFrom(net)
    for layer in result.layer:
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
    label = result.layer.add(name="label", type="Input", top=["label"])
    label.input_param.shape.add(dim=[count])
    result.layer.add(name="loss", type="SoftmaxWithLoss", bottom=[output, "label"], top=["loss"])
    return result


def largest_difference(
    ours: Mapping[tuple[str, int], np.ndarray],
    theirs: Mapping[str, np.ndarray],
    names: Mapping[tuple[str, int], str],
) -> float:
    """Return the largest difference of two gradients, over the largest value of all gradients of the same layer.

    (A bias that a later normalization takes out again has a gradient of 0 but for rounding, so its own largest value
    is no scale.)

    Args:
        ours: by layer and number of the blob; shapes may differ from those of `theirs`.
        theirs: by name.
        names: their name for each of ours.

    Raises:
        DataError: one side has a gradient that the other has not.
    """
    unmatched = theirs.keys() ^ {names.get(place, str(place)) for place in ours}
    if unmatched:
        raise DataError(f"only one side has gradients of {', '.join(sorted(unmatched))}")
    scales: dict[str, float] = {}
    apart: dict[str, float] = {}
    for place, values in ours.items():
        other, layer = theirs[names[place]].reshape(-1), place[0]
        one = values.reshape(-1)
        largest = max(float(np.abs(each).max(initial=0)) for each in (one, other))
        scales[layer] = max(scales.get(layer, 0), largest)
        apart[layer] = max(apart.get(layer, 0), float(np.abs(one - other).max(initial=0)))
    return max((apart[layer] / scale if scale else apart[layer] for layer, scale in scales.items()), default=0.0)
