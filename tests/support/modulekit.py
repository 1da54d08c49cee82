"""Nets that are written as modules of PyTorch, run from memory and compared with our own engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mgcaffe.engine.net import Net
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.module_files import loaded
from mgcaffe.tools.convert.module_side import ModuleSide
from mgcaffe.tools.convert.proof import Difference, compare
from mgcaffe.tools.convert.torch_out.export import export_net
from mgcaffe.tools.convert.torch_out.text import module_text


def text_of(net: Net) -> str:
    """Return the Python file of a net."""
    return module_text(export_net(net), origin="net.prototxt", version="0")


def side_of(net: Net) -> ModuleSide:
    """Return the module of a net; the weights are the net's own, not copies."""
    module = export_net(net)
    return ModuleSide(loaded(module, module_text(module, origin="net.prototxt", version="0")), module.document())


def module_differences(
    net: Net, ours: Mapping[str, np.ndarray] | None = None, *, fused: int = 0
) -> tuple[list[Difference], Mapping[str, np.ndarray]]:
    """Compare all values of a net and of its module.

    Args:
        net: the net.
        ours: its values for its fitting inputs, if they are known already.
        fused: how many values of the net the module has not, because two layers became one.

    Returns:
        The differences, and the module's values.
    """
    inputs = fitting_inputs(net)
    ours = CaffeSide(net).run(inputs) if ours is None else ours
    side = side_of(net)
    theirs = side.run(inputs)
    aliases = {blob.name for node in net.nodes if node.layer.type == "Split" for blob in node.tops}
    assert len(set(ours) - aliases - set(theirs)) == fused
    return compare(ours, theirs, {name: name for name in ours}), theirs
