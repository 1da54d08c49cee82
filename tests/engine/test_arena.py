import pytest
import torch

from mgcaffe.engine import arena as arena_module
from mgcaffe.engine.arena import ParameterArena, Run
from mgcaffe.engine.parameter import Parameter
from mgcaffe.errors import NetError
from tests.support.netkit import inputs, make_net

CPU = torch.device("cpu")


def parameter(*shape: int, lr: float = 1.0, decay: float = 1.0) -> Parameter:
    return Parameter(shape, lr_mult=lr, decay_mult=decay)


def arena(*entries: tuple[int, str, Parameter], dtype: torch.dtype = torch.float32) -> ParameterArena:
    return ParameterArena(entries, dtype, CPU)


def test_parameters_lie_in_layer_order_without_gaps():
    weight, bias, last = parameter(2, 3), parameter(2), parameter(4)
    flat = arena((0, "a", weight), (0, "a", bias), (3, "b", last))
    assert [(piece.offset, piece.count) for piece in flat.slices] == [(0, 6), (6, 2), (8, 4)]
    assert [(piece.layer, piece.layer_name, piece.parameter) for piece in flat.slices] == [
        (0, "a", weight),
        (0, "a", bias),
        (3, "b", last),
    ]
    assert flat.data.shape == flat.diff.shape == (12,)
    assert flat.trainable == 12


def test_a_parameter_is_a_view_of_the_flat_tensors():
    weight, bias = parameter(2, 3), parameter(2)
    flat = arena((0, "a", weight), (0, "a", bias))
    weight.data[1, 2] = 5
    bias.diff[0] = 7
    assert flat.data.tolist() == [0, 0, 0, 0, 0, 5, 0, 0]
    assert flat.diff.tolist() == [0, 0, 0, 0, 0, 0, 7, 0]
    assert weight.data.is_contiguous()


def test_frozen_parameters_lie_behind_those_that_train():
    first, frozen, last = parameter(3), parameter(5, lr=0), parameter(2)
    flat = arena((0, "a", first), (1, "norm", frozen), (2, "b", last))
    assert [piece.parameter for piece in flat.slices] == [first, last, frozen]
    assert flat.trainable == 5
    assert flat.data.numel() == 10
    assert flat.slices[2].offset == 5


def test_a_history_is_laid_out_as_the_values_are():
    weight, bias = parameter(2, 3), parameter(2)
    flat = arena((0, "a", weight), (0, "a", bias), dtype=torch.float64)
    history = flat.like()
    assert history.dtype == torch.float64
    assert not history.any()
    flat.view(history, bias).fill_(4)
    assert history.tolist() == [0, 0, 0, 0, 0, 0, 4, 4]
    assert flat.view(history, weight).shape == (2, 3)
    assert not flat.data.any()


def test_runs_are_as_long_as_the_multipliers_stay_the_same():
    flat = arena(
        (0, "a", parameter(2, 3)),
        (0, "a", parameter(2, lr=2, decay=0)),
        (1, "b", parameter(4, lr=2, decay=0)),
        (2, "c", parameter(1)),
        (3, "d", parameter(9, lr=0)),
    )
    assert flat.runs() == [Run(0, 6, 1, 1, 0), Run(6, 6, 2, 0, 6), Run(12, 1, 1, 1, 12)]


def test_runs_join_over_frozen_layers():
    flat = arena((0, "a", parameter(2)), (1, "norm", parameter(5, lr=0)), (2, "b", parameter(3)))
    assert flat.runs() == [Run(0, 5, 1, 1, 0)]


def test_multipliers_are_read_when_they_are_needed():
    weight = parameter(2)
    flat = arena((0, "a", weight))
    weight.lr_mult = 3
    assert flat.runs() == [Run(0, 2, 3, 1, 0)]
    assert (flat.slices[0].lr_mult, flat.slices[0].decay_mult) == (3, 1)


def test_segments_are_the_layers_that_train():
    flat = arena(
        (0, "a", parameter(2, 3)),
        (0, "a", parameter(2, lr=2)),
        (1, "norm", parameter(5, lr=0)),
        (4, "b", parameter(4)),
    )
    assert flat.segments() == [("a", 0, 0, 8), ("b", 4, 8, 4)]


def test_layers_of_one_name_are_segments_of_their_own():
    flat = arena((0, "a", parameter(2)), (1, "a", parameter(3)))
    assert flat.segments() == [("a", 0, 0, 2), ("a", 1, 2, 3)]


def test_empty_parameters_take_no_room():
    empty = parameter(0, 3)
    flat = arena((0, "a", empty), (1, "b", parameter(2)))
    assert empty.data.shape == (0, 3)
    assert flat.runs() == [Run(0, 2, 1, 1, 0)]
    assert flat.segments() == [("b", 1, 0, 2)]


def test_a_net_without_parameters_has_an_empty_arena():
    flat = arena()
    assert flat.data.numel() == flat.trainable == 0
    assert flat.runs() == flat.segments() == []


LAYER = (
    'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" param {{ {first} }}'
    ' inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}\n'
)


@pytest.mark.parametrize("sharing", [False, True])
def test_a_net_lays_out_each_owned_parameter_once(sharing):
    first = 'name: "w"' if sharing else ""
    layers = LAYER.format(name="a", bottom="x", first=first) + LAYER.format(name="b", bottom="a", first=first)
    net = make_net(inputs(x=(2, 3)) + layers)
    expected = [("a", 0, 0, 12), ("b", 1, 12, 3 if sharing else 12)]
    assert [(name, offset, count) for name, _, offset, count in net.arena.segments()] == [
        (name, offset, count) for name, _, offset, count in expected
    ]
    storages = {parameter.data.untyped_storage().data_ptr() for parameter in net.parameters}
    assert storages == {net.arena.data.untyped_storage().data_ptr()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("many", [1, 1 << 20])
def test_gradients_are_zeros_that_can_be_written(monkeypatch, dtype, many):
    monkeypatch.setattr(arena_module, "_MANY", many)
    weight = parameter(2, 3)
    flat = ParameterArena([(0, "a", weight)], dtype, CPU)
    assert flat.diff.dtype == weight.diff.dtype == dtype and not flat.diff.any()
    weight.diff[1, 2] = 7
    assert flat.diff.tolist() == [0, 0, 0, 0, 0, 7]


def beside(arena: ParameterArena, *entries: tuple[int, str, Parameter]) -> ParameterArena:
    return ParameterArena(entries, torch.float32, CPU, beside=arena)


def test_beside_another_arena_values_are_shared_but_for_what_is_measured():
    def entries() -> list[tuple[int, str, Parameter]]:
        frozen, measured = parameter(2, lr=0), parameter(2, lr=0)
        measured.measured = True
        return [(0, "a", parameter(3)), (1, "b", frozen), (1, "b", measured)]

    mine, theirs = entries(), entries()
    first = arena(*mine)
    first.data.copy_(torch.arange(7.0))
    other = beside(first, *theirs)
    assert [each.data.tolist() for _, _, each in theirs] == [[0, 1, 2], [5, 6], [3, 4]]
    first.data.add_(10)
    assert [each.data.tolist() for _, _, each in theirs] == [[10, 11, 12], [15, 16], [3, 4]]
    theirs[0][2].data[1] = 7
    assert mine[0][2].data.tolist() == [10, 7, 12]
    assert mine[2][2].data.tolist() == [13, 14]
    other.diff.fill_(1)
    assert not first.diff.any()


@pytest.mark.parametrize("other", [parameter(2), parameter(3, lr=2), parameter(3, decay=0)])
def test_an_arena_of_other_parameters_does_not_fit_beside(other):
    first = arena((0, "a", parameter(3)))
    with pytest.raises(NetError, match="cannot train one replica"):
        beside(first, (0, "a", other))
    with pytest.raises(NetError, match="cannot train one replica"):
        beside(first, (0, "b", parameter(3)))


def test_gradients_that_lie_apart_leave_room_in_the_buffer():
    first, weight, bias = parameter(2, 2), parameter(4, 3), parameter(3, decay=0)
    last, frozen = parameter(5), parameter(2, lr=0)
    flat = arena((0, "a", first), (1, "b", weight), (1, "b", bias), (2, "c", last), (3, "d", frozen))
    flat.data.copy_(torch.arange(26.0))
    flat.diff.fill_(9)
    flat.keep_apart({weight: 6})
    assert flat.diff.shape == (20,) and not flat.diff.any()
    assert (flat.trainable, flat.trainable_diff) == (24, 18)
    assert [(piece.offset, piece.diff_offset, piece.diff_count) for piece in flat.slices] == [
        (0, 0, 4), (4, 4, 6), (16, 10, 3), (19, 13, 5), (24, 18, 2),
    ]  # fmt: skip
    assert flat.segments() == [("a", 0, 0, 4), ("b", 1, 4, 9), ("c", 2, 13, 5)]
    assert flat.segments(of_data=True) == [("a", 0, 0, 4), ("b", 1, 4, 15), ("c", 2, 19, 5)]
    assert flat.runs() == [Run(0, 4, 1, 1, 0), Run(16, 3, 1, 0, 10), Run(19, 5, 1, 1, 13)]
    assert [piece.parameter for piece in flat.apart] == [weight]
    assert weight.diff.shape == (4, 3) and weight.data[0].tolist() == [4, 5, 6]
    for number, each in enumerate((first, weight, bias, last, frozen)):
        each.diff.fill_(number + 1)
    assert flat.diff.tolist() == [1] * 4 + [0] * 6 + [3] * 3 + [4] * 5 + [5] * 2
    flat.exchanged(flat.apart[0]).fill_(7)
    assert (flat.diff == 7).sum() == 6 and (weight.diff == 2).all()


def test_runs_do_not_join_over_a_gradient_that_lies_apart():
    weight = parameter(4)
    flat = arena((0, "a", parameter(2)), (1, "b", weight), (2, "c", parameter(3)))
    flat.keep_apart({weight: 0})
    assert flat.runs() == [Run(0, 2, 1, 1, 0), Run(6, 3, 1, 1, 2)]
