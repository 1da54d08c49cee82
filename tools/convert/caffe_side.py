"""Our own engine as one side of a proof: every layer's tops, also those that a layer in place writes over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch

from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.net import Net


def value_names(net: Net) -> list[list[str]]:
    """Return a name for each top of each node: the blob's, but for values that a later layer writes over in place.

    Those are called `blob@layer`, after the layer that makes them, so that no two values share a name.
    """
    left = Counter(blob.name for node in net.nodes for blob in node.tops)
    names = []
    for node in net.nodes:
        row = []
        for blob in node.tops:
            left[blob.name] -= 1
            row.append(f"{blob.name}@{node.layer.name}" if left[blob.name] else blob.name)
        names.append(row)
    return names


class CaffeSide:
    """A net of ours; see `proof.Side`. Values are named as `value_names` does.

    Args:
        net: in its TEST phase, made to keep its blobs.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._names = value_names(net)

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """The blobs of the Input layers."""
        return {name: tuple(self._net.blobs[name].shape) for name in self._net.inputs}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run layer by layer."""
        net = self._net
        values: dict[str, np.ndarray] = {}
        for node in net.nodes:
            if isinstance(node.layer, Input):
                node.layer.values = [torch.from_numpy(inputs[blob.name]).to(net.dtype) for blob in node.tops]
        for node, names in zip(net.nodes, self._names, strict=True):
            net.forward(node.index, node.index + 1)
            for blob, name in zip(node.tops, names, strict=True):
                if blob.data is not None and name not in inputs:
                    values[name] = blob.data.detach().cpu().numpy().copy()
        return values
