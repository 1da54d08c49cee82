"""Whatever is done to a valid file, it is read or refused with a PrototxtError, and fast."""

from __future__ import annotations

import logging
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import NetParameter, parse_binary, parse_text, print_text
from mgcaffe.prototxt.files import _solver_source, net_source_of
from tests.support.strategies import messages

pytestmark = pytest.mark.slow

NET = b"""
name: "net" # a comment
input: 'data' input_shape { dim: [1, 3, 0x20, 32] }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 } param < lr_mult: 2 >
  convolution_param { num_output: 20 kernel_size: 5 stride: 1 weight_filler { type: "xavier" std: 1e-2f } } }
layer { name: "pool" type: "Pooling" pooling_param: { pool: MAX, kernel_size: 2; } include { phase: TRAIN } }
layer { type: "BatchNorm" param { lr_mult: 0 } param { } param { } unheard_of { a: [1, 2] b: -inf }}
layer { name: "loss" type: "SoftmaxWithLoss" loss_weight: .5 loss_param { ignore_label: -1 normalize: true } }
"""
FRAGMENTS = [
    b"{",
    b"}",
    b"<",
    b">",
    b"[",
    b"]",
    b":",
    b'"',
    b"'",
    b"\\",
    b"#",
    b"\0",
    b"\xff",
    b"-",
    b"layer",
    b"1e999",
]


@pytest.fixture(autouse=True)
def quiet():
    logger = logging.getLogger("mgcaffe.prototxt")
    logger.disabled = True
    yield
    logger.disabled = False


def mutate(data: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(mutated) + 1)
        end = min(len(mutated), start + rng.choice([0, 1, 1, 5, 40]))
        piece = rng.choice([b"", rng.choice(FRAGMENTS), bytes(mutated[start:end]) * 2, bytes([rng.randrange(256)])])
        mutated[start:end] = piece
    return bytes(mutated)


def read_or_refuse(read, data: bytes) -> None:
    start = time.perf_counter()
    try:
        read(data, "file", False)
    except PrototxtError as error:
        assert str(error)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("read", [_solver_source, net_source_of])
def test_mutated_text_is_read_or_refused(read, seed):
    rng = random.Random(seed)
    for _ in range(400):
        read_or_refuse(read, mutate(NET, rng))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_binary_is_read_or_refused(seed):
    rng = random.Random(seed)
    data = parse_text(NET.decode(), NetParameter).SerializeToString()
    for _ in range(400):
        read_or_refuse(net_source_of, mutate(data, rng))


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_arbitrary_bytes_are_read_or_refused(data):
    read_or_refuse(net_source_of, data)
    read_or_refuse(_solver_source, data)


@settings(max_examples=60)
@given(messages("NetParameter", depth=2))
def test_nets_of_any_content_are_upgraded_or_refused(net):
    read_or_refuse(net_source_of, net.SerializeToString())
    read_or_refuse(net_source_of, print_text(net).encode())


@settings(max_examples=60)
@given(messages("SolverState"))
def test_binary_messages_come_back(message):
    back, problems = parse_binary(message.SerializeToString(), type(message))
    assert back == message
    assert not problems.found
