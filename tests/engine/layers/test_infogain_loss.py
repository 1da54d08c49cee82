"""InfogainLoss: against the formula, SoftmaxWithLoss as a special case, and where H comes from."""

import pytest
import torch

from mgcaffe.errors import DataError, NetError
from mgcaffe.prototxt import BlobProto, fill_blob, write_binary
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import LAYOUTS, random_input

SHAPE = (3, 5, 2, 4)
ONE = torch.ones((), dtype=torch.float64)


def infogain(fields: str = "", shape=SHAPE, tops='top: "loss"', matrix=(5, 5), labels=None):
    bottoms = 'bottom: "x" bottom: "l" bottom: "H"' if matrix else 'bottom: "x" bottom: "l"'
    shapes = [shape, labels or (shape[0], 1, *shape[2:]), *([matrix] if matrix else [])]
    return make_layer(f'name: "i" type: "InfogainLoss" {bottoms} {tops} {fields}', shapes)[0]


def labels_for(shape=SHAPE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(shape[1], (shape[0], 1, *shape[2:]), generator=generator).double()


def by_hand(x, labels, matrix, divisor, ignore=None):
    rows = x.movedim(1, -1).reshape(-1, x.shape[1])
    flat = labels.reshape(-1).long()
    kept = torch.ones_like(flat, dtype=torch.bool) if ignore is None else flat != ignore
    return -(matrix[flat[kept]] * torch.log_softmax(rows[kept], 1)).sum() / divisor


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fields", "divisor", "ignore"),
    [
        ("", 24, None),
        ("normalization: FULL", 24, None),
        ("normalization: BATCH_SIZE", 3, None),
        ("normalization: NONE", 1, None),
        ("ignore_label: 2", None, 2),
        ("ignore_label: 2 normalization: FULL", 24, 2),
    ],
)
def test_loss_and_gradient_agree_with_the_formula(fields, divisor, ignore, layout):
    x, labels, matrix = random_input(SHAPE, layout), labels_for(), random_input((5, 5), seed=9)
    divisor = divisor or int((labels != ignore).sum())
    leaf = x.clone().requires_grad_()
    expected = by_hand(leaf, labels, matrix, divisor, ignore)
    (0.4 * expected).backward()
    (loss,), (dx, *others) = forward_backward(infogain(f"loss_param {{ {fields} }}"), [x, labels, matrix], [0.4 * ONE])
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dx, leaf.grad, rtol=1e-11, atol=1e-13)
    assert others == [None, None]


def test_gradient_agrees_with_differences():
    bottoms = [random_input((4, 3)), torch.tensor([0.0, 2, 1, 0], dtype=torch.float64), random_input((3, 3), seed=2)]
    check_gradients(infogain("", (4, 3), matrix=(3, 3), labels=(4,)), bottoms)


def test_the_identity_makes_it_a_softmax_loss():
    text = 'name: "s" type: "SoftmaxWithLoss" bottom: "x" bottom: "l" top: "loss"'
    plain = make_layer(text, [SHAPE, (3, 1, 2, 4)])[0]
    x, labels = random_input(SHAPE), labels_for()
    (expected,), (right, _) = forward_backward(plain, [x, labels], [ONE])
    (loss,), (dx, *_) = forward_backward(infogain(), [x, labels, torch.eye(5, dtype=torch.float64)], [ONE])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(dx, right)


def test_classes_along_another_axis():
    x, matrix = random_input((2, 3, 5)), random_input((5, 5), seed=9)
    labels = labels_for((6, 5))
    layer = infogain("infogain_loss_param { axis: -1 }", (2, 3, 5), labels=(6, 1))
    (loss,), (dx, *_) = forward_backward(layer, [x, labels, matrix], [ONE])
    flat = infogain("", (6, 5))
    (expected,), (rows, *_) = forward_backward(flat, [x.view(6, 5), labels, matrix], [ONE])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(dx, rows.view(2, 3, 5))


def test_second_top_holds_the_probabilities():
    layer = infogain(tops='top: "loss" top: "p"')
    x = random_input(SHAPE)
    _, p = layer.forward([x, labels_for(), random_input((5, 5))])
    torch.testing.assert_close(p, torch.softmax(x, 1))
    assert layer.keeps_tops


def test_the_matrix_can_come_from_a_file(tmp_path):
    matrix = random_input((1, 1, 5, 5), seed=9).float().double()
    message = BlobProto()
    fill_blob(message, matrix.float().numpy())
    write_binary(message, tmp_path / "infogain.binaryproto")
    layer = infogain(f'infogain_loss_param {{ source: "{tmp_path}/infogain.binaryproto" }}', matrix=None)
    x, labels = random_input(SHAPE), labels_for()
    (loss,), diffs = forward_backward(layer, [x, labels], [ONE])
    (expected,), right = forward_backward(infogain(), [x, labels, matrix.view(5, 5)], [ONE])
    assert loss == expected
    assert torch.equal(diffs[0], right[0])


def test_backward_reads_no_bottom():
    layer, x, labels, matrix = infogain(), random_input(SHAPE), labels_for(), random_input((1, 1, 5, 5), seed=9)
    assert not layer.keeps_bottoms
    (expected,) = forward_backward(layer, [x, labels, matrix], [ONE])[1][:1]
    again = infogain()
    bottoms = [x.clone(), labels.clone(), matrix.clone()]
    again.forward(bottoms)
    for bottom in bottoms:
        bottom.fill_(float("nan"))
    assert torch.equal(again.backward([ONE], [True, False, False])[0], expected)


def test_a_file_that_is_missing_or_no_blob_is_named(tmp_path):
    with pytest.raises(DataError, match=r"the matrix file '.*nowhere' does not exist"):
        infogain(f'infogain_loss_param {{ source: "{tmp_path}/nowhere" }}', matrix=None)
    (tmp_path / "text").write_text("this is no blob")
    with pytest.raises(DataError, match=r"the matrix file '.*text' is no BlobProto"):
        infogain(f'infogain_loss_param {{ source: "{tmp_path}/text" }}', matrix=None)


def test_the_matrix_has_to_be_given():
    with pytest.raises(NetError, match="has to be bottom 2 or infogain_loss_param"):
        infogain(matrix=None)


def test_a_matrix_that_is_a_bottom_goes_before_a_file_which_is_not_read(caplog):
    x, labels, matrix = random_input(SHAPE), labels_for(), random_input((5, 5), seed=9)
    layer = infogain('infogain_loss_param { source: "there is no such file" }')
    assert [record.getMessage() for record in caplog.records] == [
        "source has no effect where the matrix H is bottom 2 (layer 'i')"
    ]
    (loss,), _ = forward_backward(layer, [x, labels, matrix], [ONE])
    torch.testing.assert_close(loss, by_hand(x, labels, matrix, 24))


def test_the_matrix_has_to_fit_the_classes():
    with pytest.raises(NetError, match=r"the matrix H has shape \(4, 5\); 5 classes need 5 x 5 values"):
        infogain(matrix=(4, 5))


def test_normalize_is_refused():
    with pytest.raises(NetError, match="this loss has no normalize"):
        infogain("loss_param { normalize: true }")


def test_a_loss_of_nothing_is_shown_as_0_and_not_as_minus_0():
    bottoms = [torch.tensor([[0.0, 2000]]), torch.ones(1, 1), torch.eye(2)]
    (loss,) = infogain(shape=(1, 2), matrix=(2, 2)).forward([bottom.double() for bottom in bottoms])
    assert str(float(loss)) == "0.0"
