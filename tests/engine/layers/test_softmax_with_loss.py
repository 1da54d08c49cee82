"""SoftmaxWithLoss: normalisation, ignored labels, several ranks, labels that are no classes."""

import math

import pytest
import torch

from mgcaffe.engine.kernels import processor
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.errors import DataError, NetError
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (3, 5, 2, 4)
ONE = torch.ones((), dtype=torch.float64)


def loss_layer(fields: str = "", shape=SHAPE, tops='top: "loss"', labels=None, **options):
    text = f'name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" {tops} {fields}'
    return make_layer(text, [shape, labels or (shape[0], 1, *shape[2:])], **options)[0]


def labels_for(shape=SHAPE, seed=1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(shape[1], (shape[0], 1, *shape[2:]), generator=generator).double()


def expected_loss(x, labels, divisor, ignore=-100):
    total = torch.nn.functional.cross_entropy(x, labels[:, 0].long(), ignore_index=ignore, reduction="sum")
    return total / divisor


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "divisor", "ignore"),
    [
        ("", 24, -100),
        ("loss_param { normalization: FULL }", 24, -100),
        ("loss_param { normalization: BATCH_SIZE }", 3, -100),
        ("loss_param { normalization: NONE }", 1, -100),
        ("loss_param { normalize: false }", 3, -100),
        ("loss_param { normalize: true }", 24, -100),
        ("loss_param { normalize: false normalization: FULL }", 24, -100),
        ("loss_param { ignore_label: 2 }", None, 2),
        ("loss_param { ignore_label: 2 normalization: FULL }", 24, 2),
        ("loss_param { ignore_label: 2 normalization: BATCH_SIZE }", 3, 2),
        ("loss_param { ignore_label: 2 normalization: NONE }", 1, 2),
    ],
)
def test_loss_and_gradient_agree_with_cross_entropy(fields, divisor, ignore, layout):
    layer, labels = loss_layer(fields), labels_for()
    if divisor is None:
        divisor = int((labels != ignore).sum())
        assert 0 < divisor < 24
    x = random_input(SHAPE, layout)
    leaf = x.clone().requires_grad_()
    expected = expected_loss(leaf, labels, divisor, ignore)
    (2.5 * expected).backward()
    (loss,), (dx, dlabel) = forward_backward(layer, [x, labels], [2.5 * ONE])
    assert loss.shape == ()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dx, leaf.grad, rtol=1e-11, atol=1e-13)
    assert dlabel is None


@pytest.mark.parametrize(
    "fields", ["", "ignore_label: 2", "label_smoothing: 0.1", "ignore_label: 2 label_smoothing: 0.1"]
)
@pytest.mark.parametrize("tops", ['top: "loss"', 'top: "loss" top: "p"'])
def test_many_classes_that_lie_together_give_what_they_give_in_planes(fields, tops, monkeypatch):
    monkeypatch.setattr(processor, "is_intels", lambda: True)
    shape = (3, 17, 2, 4)
    labels, diffs = labels_for(shape), [2.5 * ONE, torch.zeros(shape)]
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        layer = loss_layer(f"loss_param {{ {fields} }}", shape, tops)
        x = random_input(shape, "contiguous").contiguous(memory_format=layout)
        made, (dx, _) = forward_backward(layer, [x, labels], diffs[: tops.count("top")])
        results.append([*made, dx])
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("fields", ["", "loss_param { ignore_label: 0 }", "loss_param { normalize: false }"])
def test_gradient_agrees_with_differences(fields):
    layer = loss_layer(fields, (4, 3))
    check_gradients(layer, [random_input((4, 3)), torch.tensor([[0.0], [2], [1], [0]], dtype=torch.float64)])


def test_a_second_backward_pass_gives_the_same():
    layer = loss_layer()
    bottoms = [random_input(SHAPE), labels_for()]
    _, (first, _) = forward_backward(layer, bottoms, [ONE])
    assert torch.equal(first, layer.backward([ONE], [True, False])[0])


@pytest.mark.parametrize(
    ("axis", "shape", "labels"), [(0, (5, 3), (3,)), (-1, (2, 3, 5), (2, 3)), (2, (2, 3, 5), (6,))]
)
def test_classes_lie_along_the_axis(axis, shape, labels):
    layer = loss_layer(f"softmax_param {{ axis: {axis} }}", shape, labels=labels)
    x = random_input(shape)
    given = torch.randint(5, labels, generator=torch.Generator().manual_seed(2)).double()
    rows = x.movedim(axis, -1).reshape(-1, 5)
    expected = torch.nn.functional.cross_entropy(rows, given.reshape(-1).long())
    torch.testing.assert_close(layer.forward([x, given])[0], expected)


def test_second_top_holds_the_probabilities():
    layer = loss_layer(tops='top: "loss" top: "p"')
    assert layer.reshape([SHAPE, (3, 1, 2, 4)]) == [(), SHAPE]
    x = random_input(SHAPE)
    (_, p), (dx, _) = forward_backward(layer, [x, labels_for()], [ONE, torch.ones(SHAPE)])
    torch.testing.assert_close(p, torch.softmax(x, 1))
    alone = forward_backward(loss_layer(), [x, labels_for()], [ONE])[1][0]
    assert torch.equal(dx, alone)
    assert layer.keeps_tops
    assert not loss_layer().keeps_tops


def test_without_a_named_top_there_is_still_a_loss():
    layer = loss_layer(tops="")
    assert layer.auto_tops
    assert len(layer.forward([random_input(SHAPE), labels_for()])) == 1


def test_all_labels_ignored_is_a_loss_of_zero():
    layer = loss_layer("loss_param { ignore_label: 255 }")
    bottoms = [random_input(SHAPE), torch.full((3, 1, 2, 4), 255.0, dtype=torch.float64)]
    (loss,), (dx, _) = forward_backward(layer, bottoms, [ONE])
    assert loss == 0
    assert not dx.any()


def test_a_diverged_net_shows_its_famous_loss():
    layer = loss_layer("", (1, 2), dtype=torch.float32)
    loss = layer.forward([torch.tensor([[1000.0, 0]]), torch.tensor([1.0])])[0]
    assert loss.item() == pytest.approx(87.3365, abs=1e-4)


@pytest.mark.parametrize(
    "fields",
    [
        "ignore_label: 2",
        "normalization: NONE",
        "normalization: BATCH_SIZE",
        "ignore_label: 2 normalization: FULL",
    ],
)
def test_two_ranks_equal_one_with_the_whole_batch(fields):
    x, labels = random_input((6, 5)), torch.tensor([2.0, 2, 2, 1, 0, 4], dtype=torch.float64)
    text, total = f"loss_param {{ {fields} }}", float((labels != 2).sum())
    whole_loss, whole = forward_backward(loss_layer(text, (6, 5), labels=(6,)), [x, labels], [ONE])
    context = LayerContext(dtype=torch.float64, solver_ranks=2, sum_over_ranks=lambda count: total)
    losses, diffs = [], []
    for part in (slice(0, 3), slice(3, 6)):
        layer = loss_layer(text, (3, 5), labels=(3,), context=context)
        (loss,), (dx, _) = forward_backward(layer, [x[part], labels[part]], [ONE])
        losses.append(loss)
        diffs.append(dx)
    torch.testing.assert_close(sum(losses) / 2, whole_loss[0])
    torch.testing.assert_close(torch.cat(diffs) / 2, whole[0])


def test_ranks_are_asked_only_where_the_divisor_depends_on_data():
    def count_calls(fields: str) -> int:
        calls = []
        context = LayerContext(dtype=torch.float64, solver_ranks=2)
        context.sum_over_ranks = lambda count: calls.append(count) or count
        loss_layer(fields, context=context).forward([random_input(SHAPE), labels_for()])
        return len(calls)

    assert count_calls("loss_param { ignore_label: 1 }") == 1
    assert count_calls("") == 0
    assert count_calls("loss_param { ignore_label: 1 normalization: FULL }") == 0


@pytest.mark.parametrize("value", [5, -1, 1e30, math.nan])
def test_label_that_is_no_class_is_named_with_its_place(value):
    labels = labels_for()
    labels[1, 0, 1, 3] = value
    with pytest.raises(DataError) as error:
        loss_layer().forward([random_input(SHAPE), labels])
    message = str(error.value)
    assert f"label {value:g} at [1, 0, 1, 3] of blob 'label' is no class" in message
    assert "blob 'x' has scores for 5 classes, 0 to 4" in message
    assert "layer 'l'" in message
    assert "more in this batch" not in message


def test_several_labels_that_are_no_class_are_counted():
    labels = labels_for().fill_(7)
    with pytest.raises(DataError, match=r"label 7 at \[0, 0, 0, 0\] of blob 'label' \(and 23 more in this batch\)"):
        loss_layer().forward([random_input(SHAPE), labels])


def test_ignored_label_needs_to_be_no_class():
    labels = labels_for()
    labels[0, 0, 0, 0] = 255
    loss_layer("loss_param { ignore_label: 255 }").forward([random_input(SHAPE), labels])


def test_number_of_labels_has_to_fit():
    with pytest.raises(NetError, match=r"shape \(3, 2\), that is 6 labels, but bottom 0.* has 24 positions"):
        loss_layer(labels=(3, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "ignore"), [("", -100), ("ignore_label: 2", 2), ("ignore_label: 2 normalization: BATCH_SIZE", 2)]
)
def test_label_smoothing_agrees_with_cross_entropy(fields, ignore, layout):
    layer, labels = loss_layer(f"loss_param {{ label_smoothing: 0.125 {fields} }}"), labels_for()
    divisor = 3 if "BATCH_SIZE" in fields else int((labels != ignore).sum())
    x = random_input(SHAPE, layout)
    leaf = x.clone().requires_grad_()
    target = labels[:, 0].long()
    expected = torch.nn.functional.cross_entropy(
        leaf, target, ignore_index=ignore, reduction="sum", label_smoothing=0.125
    )
    (2.5 * expected / divisor).backward()
    (loss,), (dx, _) = forward_backward(layer, [x, labels], [2.5 * ONE])
    torch.testing.assert_close(loss, expected.detach() / divisor, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dx, leaf.grad, rtol=1e-12, atol=1e-12)


def test_gradient_with_label_smoothing():
    layer = loss_layer("loss_param { label_smoothing: 0.25 }", shape=(3, 4))
    check_gradients(layer, [random_input((3, 4)), labels_for((3, 4))])


@pytest.mark.parametrize("value", ["-0.1", "1", "inf"])
def test_label_smoothing_out_of_range_is_refused(value):
    with pytest.raises(NetError, match="label_smoothing has to be at least 0 and below 1"):
        loss_layer(f"loss_param {{ label_smoothing: {value} }}")


def test_other_losses_refuse_label_smoothing():
    text = 'name: "l" type: "SigmoidCrossEntropyLoss" bottom: "x" bottom: "t" loss_param { label_smoothing: 0.1 }'
    with pytest.raises(NetError, match="label_smoothing is a field of another Caffe"):
        make_layer(text, [(3, 4), (3, 4)])


def test_segnets_weights_of_classes_are_refused_where_they_would_count(caplog):
    weights = "class_weighting: 0.5 class_weighting: 2"
    with pytest.raises(NetError, match="weight_by_label_freqs is a field of another Caffe"):
        loss_layer(f"loss_param {{ weight_by_label_freqs: true {weights} }}")
    loss_layer("loss_param { weight_by_label_freqs: false }")
    assert not caplog.text
    loss_layer(f"loss_param {{ {weights} }}")
    assert "class_weighting has no effect without weight_by_label_freqs: true" in caplog.text


def test_keeps_the_probabilities_only_and_nothing_without_backward():
    layer = loss_layer()
    assert not layer.keeps_bottoms
    layer.backward_follows = False
    layer.forward([random_input(SHAPE), labels_for()])
    assert layer.saved is None


@pytest.mark.parametrize(("tops", "overwrites"), [('top: "loss"', True), ('top: "loss" top: "p"', False)])
def test_the_gradient_takes_the_place_of_the_probabilities_where_nobody_reads_them_again(tops, overwrites):
    bottoms = [random_input(SHAPE), labels_for()]
    _, (expected, _) = forward_backward(loss_layer(tops=tops), bottoms, [ONE])
    layer = loss_layer(tops=tops, context=LayerContext(frees_blobs=True))
    layer.forward(bottoms)
    probabilities = layer.saved[0]
    dx, _ = layer.backward([ONE], [True, False])
    assert torch.equal(dx, expected)
    assert (dx.data_ptr() == probabilities.data_ptr()) == overwrites
    assert (layer.saved is None) == overwrites


def test_a_loss_of_nothing_is_shown_as_0_and_not_as_minus_0():
    layer = loss_layer(shape=(1, 2))
    (loss,) = layer.forward([torch.tensor([[0.0, 2000]]).double(), torch.ones(1, 1).double()])
    assert str(float(loss)) == "0.0"
