"""What a Recorder notes down, and what of it speaks against a replay."""

import weakref

import pytest
import torch

from mgcaffe.engine.capture.program import compile_calls
from mgcaffe.engine.capture.recorder import Constant, Recorder, Slot


def record(function, *tensors):
    """Run a function of tensors, noted down; return the recorder, the calls and what the function gave."""
    recorder, groups = Recorder(), []
    for tensor in tensors:
        recorder.slot_for(tensor)
    with recorder.noting(groups):
        result = function(*tensors)
    return recorder, groups[0], result


def replay(function, *tensors, others):
    """Note down a function of `tensors` and replay it with other ones; the function returns one tensor."""
    recorder, calls, result = record(function, *tensors)
    assert not recorder.why_not
    slot = recorder.slot_for(result)
    values = [None] * recorder.count
    values[: len(others)] = others
    compile_calls([calls], {slot})[0](values)
    return values[slot]


def test_a_call_is_noted_down_with_slots_for_what_changes_and_constants_for_the_rest():
    x, weight = torch.ones(2, 3), torch.ones(3)
    recorder, calls, y = record(lambda x: torch.add(x, weight, alpha=2), x)
    assert len(calls) == 1
    assert calls[0].function is torch.add
    assert calls[0].arguments == [Slot(0), Constant(weight)]
    assert calls[0].keywords == {"alpha": Constant(2)}
    assert calls[0].result == recorder.slot_for(y) == 1


def test_constants_are_equal_if_they_are_the_same_tensor_or_alike_numbers():
    x = torch.ones(2)
    assert Constant(x) == Constant(x)
    assert Constant(x) != Constant(x.clone())
    assert Constant([1, 2]) == Constant([1, 2])
    assert Constant(1) != Constant(1.0)
    assert Constant(1) != Slot(1)


def test_looking_at_shapes_is_not_noted_down_nor_what_gives_the_tensor_itself():
    def look(x):
        assert x.dim() == 2
        assert len(x) == 2
        assert x.shape == (2, 3)
        assert x.stride(1) == 1
        assert x.is_contiguous()
        assert x.numel() == 6
        assert x.device.type == "cpu"
        return x.to(x.dtype).contiguous()

    x = torch.ones(2, 3)
    recorder, calls, result = record(look, x)
    assert (calls, recorder.why_not) == ([], "")
    assert result is x


@pytest.mark.parametrize(
    "read", [lambda x: float(x.sum()), lambda x: x.max().item(), lambda x: bool((x > 0).all()), lambda x: x.tolist()]
)
def test_values_that_python_reads_speak_against_a_replay(read):
    recorder, _, _ = record(read, torch.ones(3))
    assert recorder.why_not.startswith("Python reads what ")


def test_random_numbers_speak_against_a_replay():
    recorder, _, _ = record(lambda x: x.bernoulli(0.5, generator=torch.Generator()), torch.ones(3))
    assert recorder.why_not == "random numbers are drawn"


def test_tensors_are_not_kept_alive_and_ids_that_are_used_again_are_not_confused():
    made = []

    def chain(x):
        for number in range(50):
            x = x + number
            made.append(weakref.ref(x))
            assert sum(each() is not None for each in made) == 1
        return x

    assert torch.equal(replay(chain, torch.zeros(4), others=[torch.ones(4)]), torch.full((4,), 1226.0))


def several(x):
    a, b = torch.split(x, [1, 2])
    return torch.cat([b * 2, a])


def in_place(x):
    y = x.clone()
    y[0] = 5
    y.mul_(x)
    total = torch.empty_like(y)
    torch.add(y, x, out=total)
    torch.sum(total.view(3, 1), 1, out=y)
    return y


def with_none(x):
    gradients = torch.ops.aten.native_batch_norm_backward(
        x.view(3, 1), x.view(3, 1), None, None, None, torch.ones(1), torch.ones(1), True, 0.0, [True, False, False]
    )
    assert gradients[1] is None or gradients[1].numel() == 0
    return gradients[0].reshape(3)


def one_of_a_tuple(x):
    (only,) = torch.split(x, 3)
    return only + 1


def by_attribute(x):
    return x.view(3, 1).T.reshape(3) @ torch.eye(3) + x[[2, 1, 0]]


@pytest.mark.parametrize("function", [several, in_place, with_none, one_of_a_tuple, by_attribute])
def test_a_replay_gives_what_the_code_gives(function):
    x, other = torch.tensor([1.0, 2, 4]), torch.tensor([3.0, -1, 7])
    assert torch.equal(replay(function, x, others=[other]), function(other))


def test_an_in_place_change_of_a_constant_is_made_again():
    total = torch.zeros(3)
    recorder, calls, _ = record(lambda x: total.add_(x), torch.ones(3))
    values = [torch.full((3,), 2.0), *[None] * (recorder.count - 1)]
    compile_calls([calls], ())[0](values)
    assert total.tolist() == [3, 3, 3]
    assert values == [None]  # dropped after the last call that reads it
