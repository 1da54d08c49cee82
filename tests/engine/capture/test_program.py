"""When a program drops the values of a pass."""

import pytest
import torch

from mgcaffe.engine.capture.program import compile_calls
from mgcaffe.engine.capture.recorder import Call, Constant, Slot

ONE = torch.ones(1)


def call(result, *slots):
    return Call(torch.add, [Slot(slots[0]), Slot(slots[-1])], {"alpha": Constant(2)}, result)


def run(groups, kept=(), count=6):
    """Run the functions of groups of calls; return after each which values are there."""
    values = [torch.ones(1), *[None] * (count - 1)]
    alive = []
    for function in compile_calls(groups, kept):
        function(values)
        alive.append([number for number, value in enumerate(values) if value is not None])
    return alive, values


def test_values_are_dropped_after_the_last_call_that_reads_them_in_any_group():
    alive, values = run([[call(1, 0)], [call(2, 1), call(3, 2)], [call(4, 1, 3)]], kept={4})
    assert alive == [[1], [1, 3], [4]]
    assert values[4].item() == 3 + 2 * 27


def test_what_nothing_reads_is_dropped_where_it_is_made():
    alive, _ = run([[call(1, 0), call(2, 0)], [call(3, 1)]], kept={3})
    assert alive == [[1], [3]]


def test_kept_values_stay():
    alive, _ = run([[call(1, 0)], [call(2, 1)]], kept={0, 1})
    assert alive == [[0, 1], [0, 1]]


def test_one_of_several_results_may_be_no_new_tensor():
    split = Call(torch.split, [Slot(0), Constant(1)], {}, [1, None])
    values = [torch.tensor([1.0, 2]), None]
    compile_calls([[split]], {1})[0](values)
    assert values[0] is None
    assert values[1].item() == 1


@pytest.mark.parametrize("parts", [[Slot(0), Constant(ONE)], (Slot(0), Constant(ONE))])
def test_lists_and_tuples_of_tensors_are_put_together_anew(parts):
    values = [torch.zeros(1), None]
    compile_calls([[Call(torch.cat, [parts], {}, 1)]], {1})[0](values)
    assert values[1].tolist() == [0, 1]
