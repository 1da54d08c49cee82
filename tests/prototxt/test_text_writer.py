"""Printing: what is printed reads back to the same message, and looks like Caffe's files."""

from __future__ import annotations

import math

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcaffe.prototxt import (
    BlobProto,
    Datum,
    NetParameter,
    SolverParameter,
    SolverState,
    parse_text,
    print_float,
    print_text,
)
from tests.support.strategies import messages


@settings(max_examples=150)
@given(st.sampled_from(["NetParameter", "SolverParameter", "SolverState", "LayerParameter"]).flatmap(messages))
def test_reading_a_printed_message_gives_it_back(message):
    text = print_text(message)
    assert parse_text(text, type(message), strict=True) == message
    assert text_format.Parse(text, type(message)()) == message


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_short_and_exact(value):
    text = print_float(value)
    blob = parse_text(f"data: {text}", BlobProto)
    assert blob.data[0] == value
    assert math.copysign(1, blob.data[0]) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (0.01, "0.01"), (1e-8, "1e-08"), (3.0, "3"), (1 / 3, "0.33333333"), (1e10, "1e+10")],
)
def test_floats_look_like_caffes(value, text):
    assert print_float(value) == text


def test_special_numbers_read_back():
    blob = BlobProto(data=[math.inf, -math.inf, math.nan], double_data=[0.1, -0.0, 1e300])
    back = parse_text(print_text(blob), BlobProto)
    assert list(back.data)[:2] == [math.inf, -math.inf]
    assert math.isnan(back.data[2])
    assert list(back.double_data) == [0.1, -0.0, 1e300]


def test_layout():
    net = NetParameter(name='a "b"\n')
    layer = net.layer.add(name="conv", type="Convolution", bottom=["x", "y"])
    layer.convolution_param.num_output = 3
    layer.include.add(phase=1)
    net.force_backward = True
    assert print_text(net) == (
        'name: "a \\"b\\"\\n"\nforce_backward: true\nlayer {\n  name: "conv"\n  type: "Convolution"\n'
        '  bottom: "x"\n  bottom: "y"\n  include {\n    phase: TEST\n  }\n'
        "  convolution_param {\n    num_output: 3\n  }\n}\n"
    )


def test_bytes_and_foreign_letters():
    assert print_text(Datum(data=b"\x00\xffa")) == 'data: "\\000\\377a"\n'
    assert print_text(NetParameter(name="größe")) == 'name: "größe"\n'


def test_our_own_state_reads_back():
    state = SolverState(iter=3)
    engine = state.engine_state
    engine.random_seed = 2**64 - 1
    engine.records.add(layer="data", phase=1, batches=2**40)
    engine.smoothed_losses.extend([0.1, 2.5])
    engine.extra.add(key="k", value=b"\xff")
    assert parse_text(print_text(state), SolverState, strict=True) == state


def test_an_empty_message_prints_nothing():
    assert print_text(SolverParameter()) == ""
