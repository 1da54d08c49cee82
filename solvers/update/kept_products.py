"""Which gradients may be kept as products until the update (`engine/product_gradient.py`)."""

from __future__ import annotations

from collections import Counter

from mgcaffe.engine import Net
from mgcaffe.engine.kernels.linear_ways import is_large
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.parameter import Parameter
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.update.updater import Updater


def parameters_that_keep_products(net: Net, param: SolverParameter, updater: Updater) -> list[Parameter]:
    """Return the weights whose gradients nothing but the update needs, so that they may be kept as products.

    They are those of large inner products that no other layer shares, on a CPU. Their values are needed where several
    micro-batches add up (`iter_size`), by the norm of clipping, in nets that keep their blobs, as pycaffe and
    debug_info have them, and by some updates (`Updater.takes_products`).

    Args:
        net: the training net.
        param: the SolverParameter message.
        updater: the net's.
    """
    is_summed = param.iter_size > 1 or param.clip_gradients >= 0
    if net.device.type != "cpu" or net.keep_blobs or is_summed or not updater.takes_products:
        return []
    uses = Counter(id(each.owner or each) for layer in net.layers for each in layer.parameters)
    weights = (layer.parameters[0] for layer in net.layers if isinstance(layer, InnerProduct))
    return [each for each in weights if uses[id(each)] == 1 and each.lr_mult != 0 and is_large(each.data)]
