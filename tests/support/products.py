"""Nets with an inner product that counts as large in tests, so that its gradient is kept as a product."""

from mgcaffe.engine import product_gradient
from mgcaffe.engine.arena import ParameterArena
from mgcaffe.solvers.update import kept_products

INPUTS, OUTPUTS = 24, 32
DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 3 dim: 24 } shape { dim: 3 dim: 5 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: -1 max: 1 } } }
"""
NET = (
    DATA
    + """
layer { name: "large" type: "InnerProduct" bottom: "data" top: "large" FIELDS
  inner_product_param { num_output: 32 weight_filler { type: "xavier" } TRANSPOSE } }
layer { name: "relu" type: "ReLU" bottom: "large" top: "large" }
layer { name: "last" type: "InnerProduct" bottom: "large" top: "last" param { lr_mult: 2 decay_mult: 0.5 }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "last" bottom: "label" top: "loss" }
"""
)


def net(fields="", transpose="", text=NET):
    return text.replace("FIELDS", fields).replace("TRANSPOSE", transpose)


def suit(monkeypatch, suits):
    for module in (product_gradient, kept_products):
        monkeypatch.setattr(module, "suits_product", suits)


def enlarge(solver, monkeypatch, of_x=1e30, of_dy=1e30):
    """Multiply the matrices whose product the gradient is in iteration 2."""
    layer = solver.net.layers[1]
    backward = layer.backward

    def enlarged(top_diffs, wanted):
        if solver.iteration == 2:
            layer.saved = (layer.saved[0] * of_x, *layer.saved[1:])
            top_diffs = [top_diffs[0] * of_dy]
        return backward(top_diffs, wanted)

    monkeypatch.setattr(layer, "backward", enlarged)


def without_room(monkeypatch):
    def refuse(arena, sizes):
        raise MemoryError("cannot map 1 bytes: Cannot allocate memory")

    monkeypatch.setattr(ParameterArena, "keep_apart", refuse)
