"""What a solver's parameters ask of the exchange, before anything is exchanged."""

import pytest
import torch
from google.protobuf import text_format

from mgcaffe.comm import Segment, SingleCommunicator, run_ranks
from mgcaffe.comm.planning.forward_overlap import Overlap, overlapping
from mgcaffe.errors import CommError, UsageError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.exchange.exchange_settings import ExchangeSettings

SEGMENTS = [Segment("ip1", 0, 30), Segment("ip2", 30, 21)]


def settings(text="", *, schedule=None, on_host=True):
    return ExchangeSettings(text_format.Parse(text, SolverParameter()), schedule, on_host)


@pytest.mark.parametrize(
    ("text", "schedule", "asked", "first"),
    [
        ("", None, "auto", "single"),
        ("layer_wise_reduce: false", None, "single", "single"),
        ("layer_wise_reduce: false comm_param { schedule: WFBP }", None, "wfbp", "wfbp"),
        ("comm_param { schedule: WFBP }", "mgwfbp", "mgwfbp", "single"),
    ],
)
def test_the_schedule_and_the_one_before_anything_is_measured(text, schedule, asked, first):
    found = settings(text, schedule=schedule)
    assert (found.schedule, found.first_schedule) == (asked, first)
    assert found.first_plan(SEGMENTS, 4).schedule == first


@pytest.mark.parametrize(
    ("text", "chosen", "said"),
    [
        ("", "threads", []),
        ("comm_param { transport: GLOO }", "gloo", ["Gradients travel over gloo, everything else over threads"]),
    ],
)
def test_the_transport_is_chosen_and_shown_where_it_is_not_the_ranks_own(text, chosen, said):
    def work(ranks):
        events = []
        found = settings(text)
        found.choose_transport(ranks, torch.device("cpu"), events.append)
        assert found.transfer.transport == chosen and [event.text for event in events] == said
        assert found.tuner_settings(4).steps.blocking_calls == (chosen == "threads")
        assert ("gloo" in found.transport("float32")) == (chosen == "gloo")

    run_ranks(2, work)


def test_nccl_without_gpus_is_refused():
    with pytest.raises(UsageError, match="transport nccl is not possible: ranks 0-1 compute on the CPU"):
        run_ranks(
            2,
            lambda ranks: settings("comm_param { transport: NCCL }").choose_transport(
                ranks, torch.device("cpu"), print
            ),
        )


def test_an_unknown_schedule_is_refused():
    with pytest.raises(CommError, match="unknown schedule 'wfpb'"):
        settings(schedule="wfpb")


@pytest.mark.parametrize(
    ("text", "on_host", "overlap"),
    [
        ("", True, Overlap.TRY),
        ("", False, Overlap.NEVER),
        ("comm_param { schedule: WFBP }", True, Overlap.NEVER),
        ("comm_param { schedule: WFBP overlap_forward: true }", True, Overlap.ALWAYS),
        ("comm_param { overlap_forward: false }", True, Overlap.NEVER),
        ("clip_gradients: 1 comm_param { overlap_forward: true }", True, Overlap.NEVER),
    ],
)
def test_whether_the_forward_pass_may_be_overlapped(text, on_host, overlap):
    found = settings(text, on_host=on_host)
    assert found.overlap is overlap
    plan = found.first_plan(SEGMENTS, 4)
    assert plan.overlaps_forward == (overlap is Overlap.ALWAYS)
    is_said = "overlap_forward" in text or "clip" in text
    assert found.allowed(overlapping(plan)).overlaps_forward == (overlap is Overlap.ALWAYS or not is_said)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("calibration_iterations: 0", "calibration_iterations is 0"),
        ("calibration_iterations: 0 deterministic: true", "deterministic is set"),
    ],
)
def test_why_nothing_is_measured_is_named_where_the_schedule_needs_it(text, reason):
    found, events = settings(f"comm_param {{ {text} }}"), []
    assert found.prevents_measuring == reason
    if reason:
        found.warn_of_schedule(events.append)
        assert reason in events[0].text and "'auto'" in events[0].text
        settings(f"comm_param {{ schedule: SINGLE {text} }}").warn_of_schedule(events.append)
        assert len(events) == 1


def test_how_gradients_travel_is_the_key_of_their_costs():
    assert settings().transport("float32") == "host memory, float32"
    text = 'comm_param { allreduce_type: BFLOAT16 hierarchical: true emulate_link: "a=1e-3,b=1e-9" }'
    expected = "staged from a GPU, float32 as bfloat16, hierarchical, emulated link a=1e-3,b=1e-9"
    assert settings(text, on_host=False).transport("float32") == expected


def test_no_plan_file_is_no_plan():
    assert settings().read_plan(SingleCommunicator(), SEGMENTS, 4) is None
