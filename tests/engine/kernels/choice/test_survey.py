"""Surveys: what is computed by the rules, and what is noted of it."""

import pickle
from typing import NamedTuple

import pytest
import torch

from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation
from mgcaffe.engine.kernels.choice.survey import Layout, Survey


class Call(NamedTuple):
    x: torch.Tensor
    factor: float
    other: torch.Tensor | None = None


SCALING = Operation(
    "scaling",
    [
        Candidate("rule", lambda call: True, lambda call: call.x * call.factor),
        Candidate("other", lambda call: True, lambda call: call.x * call.factor + 1),
        Candidate("rough", lambda call: True, lambda call: call.x, rounds_more=True),
    ],
    lambda call: "rule",
    lambda call: (call.x.shape,),
    ("x",),
)
TEXT = "scaling: x 2x3"


@pytest.mark.parametrize(
    ("measured", "bound", "is_open"),
    [
        (None, 0.0, True),
        (Measured("rule", "other", {"rule": 2.0, "other": 1.0}), 0.0, False),
        (Measured("other", "other", {"rule": 2.0, "other": 1.0}), 0.0, True),
        (Measured("rule", "rule", {"rule": 2.0}), 0.0, True),
        (Measured("rule", "rule", {"rule": 2.0}, frozenset({"other"})), 0.0, False),
        (Measured("rule", "gone", {"rule": 2.0, "other": 1.0, "gone": 1.0}), 0.0, True),
        (Measured("rule", "other", {"rule": 2.0, "other": 1.0}), 1e-5, True),
    ],
    ids=["none", "whole", "another rule", "a new candidate", "unfit", "a candidate that is gone", "rounds more"],
)
def test_what_no_record_answers_is_noted_once_and_all_is_computed_by_the_rule(measured, bound, is_open):
    text = TEXT + (", rounding within 1e-05" if bound else "")
    survey = Survey({} if measured is None else {text: measured}, bound)
    survey.layer = "layer 'one'"
    for _ in range(2):
        assert torch.equal(survey.run(SCALING, Call(torch.ones(2, 3), 2.0)), torch.full((2, 3), 2.0))
    assert survey.met == [text]
    assert [*survey.open] == ([text] if is_open else [])


def test_what_is_noted_can_be_sent_and_has_random_tensors_of_the_same_layout():
    x = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    survey = Survey({})
    survey.layer = "layer 'one'"
    survey.run(SCALING, Call(x, 0.5, torch.ones(3, dtype=torch.float64)[::2].expand(4, 2)))
    (asked,) = pickle.loads(pickle.dumps(survey.open)).values()
    assert (asked.layer, asked.operation) == ("layer 'one'", "scaling")
    call, again = asked.filled(), asked.filled()
    assert (call.x.shape, call.x.stride(), call.x.dtype, call.factor) == (x.shape, x.stride(), x.dtype, 0.5)
    assert (call.other.shape, call.other.stride(), call.other.dtype) == ((4, 2), (0, 2), torch.float64)
    assert torch.equal(call.x, again.x) and call.x.unique().numel() == x.numel()
    assert Layout((2, 0), (0, 1), torch.bfloat16).filled(1).shape == (2, 0)
