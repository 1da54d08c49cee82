"""What an advice says."""

from dataclasses import replace

import pytest

from mgcaffe.comm import AffineCost
from mgcaffe.pytorch import Advice
from mgcaffe.pytorch.advice.predictions import Prediction

MIB = 2**20


def prediction(name, seconds, measured=None):
    return Prediction(name, None, (MIB, MIB), seconds, 0.002, 0.02, measured)


@pytest.fixture
def advice():
    present, best = prediction("the default", 0.050), prediction("bucket_cap_mb=2.4", 0.040)
    return Advice(
        module="Net",
        ranks=4,
        transport="gloo",
        parameters=524288,
        bytes=2 * MIB,
        forward_s=0.01,
        backward_s=0.02,
        cost=AffineCost(1e-3, 1e-9),
        slowdown=0.25,
        present=present,
        default=present,
        caps=(prediction("bucket_cap_mb=1", 0.045), prediction("bucket_cap_mb=25", 0.060)),
        best=best,
        searched=17,
        mgwfbp=prediction("mgwfbp", 0.037),
        optimal=prediction("optimal", 0.0365),
        auto=prediction("auto (optimal)", 0.036),
    )


def test_the_report_has_the_figures_and_a_verdict(advice):
    text = str(advice)
    assert "Net in DistributedDataParallel on 4 ranks over gloo: 524,288 parameters, 2.00 MiB of gradients" in text
    assert "forward 10.00 ms, backward 20.00 ms alone; an all-reduce takes about 1.00 ms + 1.05 ms per MiB," in text
    assert "adds 0.25 s to the backward pass" in text
    assert "best of 17: bucket_cap_mb=2.4" in text and "MergedGradientParallel, mgwfbp" in text
    assert text.endswith(
        "bucket_cap_mb=2.4 would take 20 % less time per iteration than the default; merged groups that are planned"
        " (auto (optimal)) 10 % less than the best buckets."
    )
    assert "measured" not in text and advice.gain == pytest.approx(0.2)


def test_what_is_no_gain_is_not_called_one(advice):
    level = replace(advice, best=replace(advice.best, iteration_s=0.0498), auto=prediction("auto (wfbp)", 0.0497))
    assert str(level).endswith(
        "The present buckets (the default) are within 1 % of the best; merged groups that are planned would not take"
        " less."
    )


def test_what_was_tried_decides(advice):
    tried = replace(advice, present=prediction("the default", 0.05, 0.044), best=prediction("x", 0.04, 0.033))
    assert tried.gain == pytest.approx(0.25)
    assert "measured" in str(tried) and "33.00 ms" in str(tried)


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.040, "10 % less than the 40.00"), (0.033, "no gain over the 33.00")]
)
def test_what_is_predicted_of_ours_is_compared_with_what_was_measured_of_buckets(advice, measured, verdict):
    tried = replace(advice, present=prediction("the default", 0.05, 0.044), best=prediction("x", 0.03, measured))
    assert str(tried).endswith(
        "; merged groups that are planned (auto (optimal)) are predicted to take 36.00 ms,"
        f" {verdict} ms measured with the best buckets."
    )


def test_warnings_come_first(advice):
    assert str(replace(advice, warnings=("EMULATED LINK",))).startswith("EMULATED LINK\n")
