"""Recurrent layers step by step under automatic differentiation, and data for them."""

from __future__ import annotations

import torch

from tests.support.layerkit import make_layer

FILLERS = 'weight_filler { type: "uniform" min: -0.8 max: 0.8 } bias_filler { type: "uniform" min: -0.5 max: 0.5 }'
HIDDEN = {"LSTM": 2, "RNN": 1}


def recurrent(kind, x=(4, 3, 2), *, static=None, exposed=False, hidden=3, fields="", layer_fields="", **options):
    """The layer, and its tops' shapes."""
    states = HIDDEN[kind] if exposed else 0
    bottoms = ["x", "cont", *(["static"] if static else []), *(f"s{index}" for index in range(states))]
    tops = ["y", *(f"t{index}" for index in range(states))]
    shapes = [x, x[:2], *([static] if static else []), *[(1, x[1], hidden)] * states]
    text = f'name: "r" type: "{kind}" ' + " ".join(f'bottom: "{name}"' for name in bottoms)
    text += " ".join(f' top: "{name}"' for name in tops) + layer_fields
    text += f" recurrent_param {{ num_output: {hidden} {FILLERS} expose_hidden: {str(exposed).lower()} {fields} }}"
    return make_layer(text, shapes, **options)


def data(x=(4, 3, 2), *, static=None, exposed=0, hidden=3, cont="mixed", seed=5):
    """Bottoms: values, and indicators of ones, zeros or both; in the first step of `mixed` some streams go on.

    `fractions` are indicators that Caffe's documentation does not know, above 1 as well.
    """
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    indicators = {
        "ones": torch.ones(x[:2]),
        "zeros": torch.zeros(x[:2]),
        "mixed": torch.rand(x[:2], generator=generator) > 0.4,
        "fractions": torch.rand(x[:2], generator=generator) * 1.5,
    }[cont].double()
    bottoms = [random(*x), indicators]
    if static:
        bottoms.append(random(*static))
    return bottoms + [random(1, x[1], hidden) for _ in range(exposed)]


def plain(kind, *, static=False, state=None):
    """The layer as a function of bottoms and parameters; `state` is what it begins with, zeros if None."""

    def step_by_step(*values):
        count = 6 if kind == "RNN" else 4
        count -= not static
        bottoms, weights = list(values[:-count]), list(values[-count:])
        x, cont = bottoms[:2]
        inner = x.reshape(*x.shape[:2], -1) @ weights[0].t() + weights[1]
        if static:
            inner = inner + bottoms[2].flatten(1) @ weights.pop(2).t()
        hidden = weights[2].shape[1]
        exposed = [part.detach()[0] for part in bottoms[2 + static :]]
        begin = state or exposed or [torch.zeros(x.shape[1], hidden, dtype=x.dtype)] * HIDDEN[kind]
        loop = lstm if kind == "LSTM" else rnn
        y, end = loop(inner, cont, weights[2:], begin)
        # The tops for the state have a gradient of zero, whatever is asked of them.
        return (y, *(part.detach()[None] + 0 * y.sum() for part in end)) if exposed else y

    return step_by_step


def forget_gate(keep, f):
    """keep sigmoid(f), whose slope is to Caffe on a CPU that of a sigmoid with this value."""
    value = (keep * torch.sigmoid(f)).detach()
    return value + value * (1 - value) * (f - f.detach())


def lstm(inner, cont, weights, state):
    """As Caffe's documentation writes it, with its gates' order i, f, o, g."""
    (recurrent_weight,) = weights
    h, c = state
    outputs = []
    for gates, keep in zip(inner, cont.unsqueeze(2), strict=True):
        i, f, o, g = (gates + (keep * h) @ recurrent_weight.t()).chunk(4, 1)
        c = forget_gate(keep, f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), [h, c]


def rnn(inner, cont, weights, state):
    """The tops are a second layer's outputs, not the hidden values."""
    recurrent_weight, outward, bias = weights
    (h,) = state
    outputs = []
    for values, keep in zip(inner, cont.unsqueeze(2), strict=True):
        h = torch.tanh(values + (keep * h) @ recurrent_weight.t())
        outputs.append(torch.tanh(h @ outward.t() + bias))
    return torch.stack(outputs), [h]
