"""Random nets against the steps of Caffe's Net::Init, done one by one: splits, loss weights, who runs backward.

The net's own code works with blobs and sets of nodes; what is expected here goes by names, as Caffe's does.
"""

from __future__ import annotations

import random

import pytest

from mgcaffe.errors import NetError
from tests.support.netkit import make_net

FIELDS = {
    "DummyData": "dummy_data_param { shape { dim: 2 dim: 3 } }",
    "InnerProduct": "inner_product_param { num_output: 3 }",
}
KINDS = ["ReLU", "Power", "Eltwise", "InnerProduct", "InnerProduct", "Split", "Silence", "EuclideanLoss"]


class Drawn:
    """A layer of a random net."""

    def __init__(self, name, kind, bottoms, tops):
        self.name, self.kind, self.bottoms, self.tops = name, kind, bottoms, tops
        self.rates, self.weights, self.flags = ([1, 1] if kind == "InnerProduct" else []), [], []
        self.fields = FIELDS.get(kind, "")

    def text(self):
        words = [f'bottom: "{name}"' for name in self.bottoms] + [f'top: "{name}"' for name in self.tops]
        words += [f"param {{ lr_mult: {rate} }}" for rate in self.rates]
        words += [f"loss_weight: {weight}" for weight in self.weights]
        words += [f"propagate_down: {str(flag).lower()}" for flag in self.flags]
        return f'layer {{ name: "{self.name}" type: "{self.kind}" {" ".join(words)} {self.fields} }}\n'


def draw(numbers):
    """Return the layers of a net, of which some names may be taken twice."""
    layers, names = [Drawn("data", "DummyData", [], ["x", "y"])], ["x", "y"]
    for number in range(numbers.randint(1, 9)):
        kind = numbers.choice(KINDS)
        count = 2 if kind in ("Eltwise", "EuclideanLoss") else 1
        bottoms = [names[-1] if numbers.random() < 0.5 else numbers.choice(names) for _ in range(count)]
        layer = Drawn(f"l{number}", kind, bottoms, [f"t{number}"])
        if kind == "Silence":
            layer.tops = []
        elif kind == "ReLU" and numbers.random() < 0.6:
            layer.tops = layer.bottoms[:1]
        elif kind == "Split":
            layer.tops.append(f"u{number}")
        layer.rates = [numbers.choice([0, 1, 1]) for _ in layer.rates]
        if kind == "EuclideanLoss" or (layer.tops and numbers.random() < 0.2):
            layer.weights = [numbers.choice([0, 0.5, 1]) for _ in layer.tops]
        if numbers.random() < 0.2:
            layer.flags = [numbers.random() < 0.5 for _ in layer.bottoms]
        layers.append(layer)
        if kind != "EuclideanLoss":
            names += [name for name in layer.tops if name not in names]
    return layers


def insert_splits(layers):
    """Return the layers and their Splits; bottoms, and weights that a Split takes over, are changed in place."""
    made_by, readers, source, used, result = {}, {}, {}, {}, []
    for index, layer in enumerate(layers):
        for place, name in enumerate(layer.bottoms):
            source[index, place] = made_by[name]
            readers[made_by[name]] += 1
        for place, name in enumerate(layer.tops):
            made_by[name] = (index, place)
            readers[index, place] = int(any(layer.weights[place : place + 1]))
    for index, layer in enumerate(layers):
        for place, name in enumerate(layer.bottoms):
            top = source[index, place]
            if readers[top] > 1:
                maker, behind = layers[top[0]], top[1]
                layer.bottoms[place] = f"{name}_{maker.name}_{behind}_split_{used[top]}"
                used[top] += 1
        result.append(layer)
        for place, name in enumerate(layer.tops):
            weight = sum(layer.weights[place : place + 1])
            used[index, place] = 1 if weight else 0
            if readers[index, place] > 1:
                split = f"{name}_{layer.name}_{place}_split"
                copies = [f"{split}_{copy}" for copy in range(readers[index, place])]
                result.append(Drawn(split, "Split", [name], copies))
                if weight:
                    result[-1].weights = [weight] + [0] * (len(copies) - 1)
                    layer.weights[place] = 0
    return result


def has_a_top_of_two_layers(layers):
    found = set()
    for layer in layers:
        new = [name for name in layer.tops if name not in layer.bottoms]
        if not found.isdisjoint(new):
            return True
        found.update(new)
    return False


def find_needs(layers):
    """Return for each layer whether backward visits it, and which bottoms' gradients it computes."""
    learns, visited, wanted = {}, [], []
    for layer in layers:
        visited.append(any(learns[name] for name in layer.bottoms) or any(layer.rates))
        wanted.append(list(layer.flags) or [learns[name] for name in layer.bottoms])
        for name in layer.tops:
            learns[name] = visited[-1] or (learns[name] if name in layer.bottoms else False)
    under_loss, skipped = set(), set()
    for index in reversed(range(len(layers))):
        layer = layers[index]
        counts = any(layer.weights) or not under_loss.isdisjoint(layer.tops)
        if not counts or skipped.issuperset(layer.tops):
            visited[index], wanted[index] = False, [False] * len(layer.bottoms)
        if counts:
            under_loss.update(layer.bottoms)
        skipped.update(name for name, flag in zip(layer.bottoms, wanted[index], strict=True) if not flag)
    return visited, wanted


@pytest.mark.parametrize("seed", range(8))
def test_a_net_is_built_as_caffe_builds_it(seed):
    numbers, refused = random.Random(seed), 0
    for _ in range(40):
        layers = draw(numbers)
        text = "".join(layer.text() for layer in layers)
        expected = insert_splits(layers)
        if has_a_top_of_two_layers(expected):
            refused += 1
            with pytest.raises(NetError, match="produced by multiple sources"):
                make_net(text)
            continue
        nodes = make_net(text).nodes
        assert [node.layer.name for node in nodes] == [layer.name for layer in expected], text
        assert [[blob.name for blob in node.bottoms] for node in nodes] == [layer.bottoms for layer in expected], text
        assert [[blob.name for blob in node.tops] for node in nodes] == [layer.tops for layer in expected], text
        weights = [layer.weights or [0] * len(layer.tops) for layer in expected]
        assert [node.loss_weights for node in nodes] == weights, text
        visited, wanted = find_needs(expected)
        assert [node.needs_backward for node in nodes] == visited, text
        assert [node.wants for node in nodes if node.needs_backward] == [
            flags for flags, visit in zip(wanted, visited, strict=True) if visit
        ], text
    assert refused < 20
