"""The keyword arguments of `MergedGradientParallel` as the fields that the exchange of gradients reads."""

from pathlib import Path

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.prototxt import CommParameter
from mgcaffe.pytorch.options import ExchangeOptions, checked_timeout


def test_every_option_reaches_the_exchange():
    options = {
        "plan_file": Path("plan.json"),
        "bucket_mb": 3.0,
        "allreduce_type": "bfloat16",
        "hierarchical": True,
        "cost_file": Path("costs.json"),
        "deterministic": True,
        "calibration_iterations": 7,
        "transport": "gloo",
        "emulate_link": "a=1e-3,b=0",
    }
    assert ExchangeOptions.of("threshold", options).solver_parameter().comm_param == CommParameter(
        schedule=CommParameter.THRESHOLD,
        plan_file="plan.json",
        bucket_mb=3.0,
        allreduce_type=CommParameter.BFLOAT16,
        hierarchical=True,
        cost_file="costs.json",
        deterministic=True,
        calibration_iterations=7,
        transport=CommParameter.GLOO,
        emulate_link="a=1e-3,b=0",
        overlap_forward=False,
    )


def test_what_is_not_given_stays_unset():
    comm = ExchangeOptions().solver_parameter().comm_param
    assert not any(map(comm.HasField, ("plan_file", "cost_file", "transport", "emulate_link")))


def test_a_timeout_is_never_or_long_enough_for_signs_of_life():
    assert [checked_timeout(seconds) for seconds in (0, 2, 30.0)] == [0, 2, 30.0]
    for seconds in (1.9, -1, float("nan")):
        with pytest.raises(UsageError, match="too short"):
            checked_timeout(seconds)
