"""Accuracy: against a count by hand; top k, axes, ignored labels, per class, ties."""

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (20, 5, 2, 3)


def accuracy(fields: str = "", shape=SHAPE, tops='top: "y"', labels=None):
    text = f'name: "a" type: "Accuracy" bottom: "x" bottom: "l" {tops} accuracy_param {{ {fields} }}'
    return make_layer(text, [shape, labels or (shape[0], 1, *shape[2:])])


def labels_for(shape=SHAPE) -> torch.Tensor:
    labels = torch.randint(shape[1], (shape[0], 1, *shape[2:]), generator=torch.Generator().manual_seed(3))
    return labels.double()


def by_hand(x, labels, top_k=1, ignore=None, of_class=None) -> float:
    rows, flat = x.movedim(1, -1).reshape(-1, x.shape[1]).tolist(), labels.reshape(-1).int().tolist()
    right = counted = 0
    for scores, label in zip(rows, flat, strict=True):
        if label != ignore and of_class in (None, label):
            counted += 1
            right += sum(score >= scores[label] for score in scores) - 1 < top_k
    return right / counted if counted else 0.0


def test_setup():
    assert accuracy()[1] == [()]
    assert accuracy("top_k: 3")[1] == [()]
    assert accuracy(tops='top: "y" top: "each"')[1] == [(), (5,)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ("", {}),
        ("top_k: 3", {"top_k": 3}),
        ("ignore_label: 2", {"ignore": 2}),
        ("ignore_label: 2 top_k: 2", {"ignore": 2, "top_k": 2}),
    ],
)
def test_agrees_with_a_count_by_hand(fields, options, layout):
    x, labels = random_input(SHAPE, layout), labels_for()
    assert accuracy(fields)[0].forward([x, labels])[0].item() == pytest.approx(by_hand(x, labels, **options))


@pytest.mark.parametrize(("fields", "ignore"), [("", None), ("ignore_label: 2", 2)])
def test_every_class_by_itself(fields, ignore):
    layer, _ = accuracy(fields, tops='top: "y" top: "each"')
    x, labels = random_input(SHAPE), labels_for()
    labels[labels == 4] = 3
    _, each = layer.forward([x, labels])
    assert each.tolist() == pytest.approx([by_hand(x, labels, ignore=ignore, of_class=c) for c in range(5)])
    assert each[4] == 0


def test_classes_along_another_axis():
    x, labels = random_input((4, 3, 5)), torch.tensor([[0.0, 1, 2]] * 4)
    layer, _ = accuracy("axis: -1", (4, 3, 5), labels=(4, 3))
    expected = by_hand(x.reshape(12, 5), labels)
    assert layer.forward([x, labels])[0].item() == pytest.approx(expected)


def test_equal_scores_count_against_the_label():
    x, labels = torch.zeros(6, 5), torch.arange(6.0) % 5
    assert accuracy("", (6, 5), labels=(6,))[0].forward([x, labels])[0] == 0
    assert accuracy("top_k: 4", (6, 5), labels=(6,))[0].forward([x, labels])[0] == 0
    assert accuracy("top_k: 5", (6, 5), labels=(6,))[0].forward([x, labels])[0] == 1


def test_nan_is_wrong():
    x = torch.full((2, 3), float("nan"))
    assert accuracy("", (2, 3), labels=(2,))[0].forward([x, torch.tensor([0.0, 1])])[0] == 0


def test_nothing_counted_is_zero():
    layer, _ = accuracy("ignore_label: 1", (2, 3), tops='top: "y" top: "each"', labels=(2,))
    total, each = layer.forward([random_input((2, 3)), torch.ones(2)])
    assert total == 0
    assert not each.any()


def test_has_no_gradient():
    layer, _ = accuracy()
    assert not layer.differentiable(0)
    assert layer.backward([torch.ones(())], [False, False]) == [None, None]


def test_label_that_is_no_class_is_named():
    with pytest.raises(DataError, match=r"label 9 at \[1\] of blob 'l' is no class: blob 'x' has scores for 3 classes"):
        accuracy("", (2, 3), labels=(2,))[0].forward([random_input((2, 3)), torch.tensor([0.0, 9])])


def test_top_k_beyond_the_classes_is_refused():
    with pytest.raises(NetError, match="top_k has to be from 1 to 5, the number of classes, not 6"):
        accuracy("top_k: 6")
    with pytest.raises(NetError, match="not 0"):
        accuracy("top_k: 0")
