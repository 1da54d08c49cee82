"""The DummyData layer."""

import pytest
import torch

from mgcaffe.errors import NetError
from tests.support.datakit import make


def dummy(tops, fields, **context):
    words = " ".join(f'top: "{top}"' for top in tops.split())
    return make(f'name: "d" type: "DummyData" {words} dummy_data_param {{ {fields} }}', **context)


def test_without_a_filler_all_tops_are_zero():
    layer = dummy("a b", "shape { dim: 2 dim: 3 }")
    tops = layer.forward([])
    assert [tuple(top.shape) for top in tops] == layer.reshape([]) == [(2, 3), (2, 3)]
    assert not any(top.any() for top in tops)


def test_old_sizes_and_one_filler_for_all():
    layer = dummy(
        "a b",
        "num: 5 num: 2 channels: 3 height: 2 width: 4 width: 1 data_filler { value: 7 }",
        dtype=torch.float64,
    )
    a, b = layer.forward([])
    assert (tuple(a.shape), tuple(b.shape)) == ((5, 3, 2, 4), (2, 3, 2, 1))
    assert (a == 7).all()
    assert (b == 7).all()
    assert a.dtype == torch.float64


def test_constants_are_filled_once_others_every_time():
    layer = dummy(
        "a b c",
        'shape { dim: 50 } data_filler { value: 7 } data_filler { type: "gaussian" std: 2 } data_filler { value: 9 }',
        stream=torch.Generator().manual_seed(1),
    )
    first, second = layer.forward([]), layer.forward([])
    assert first[0] is second[0]
    assert first[2] is second[2]
    assert (second[0] == 7).all()
    assert (second[2] == 9).all()
    assert not torch.equal(first[1], second[1])
    layer.context.generator.manual_seed(1)
    assert torch.equal(layer.forward([])[1], first[1])


def test_a_constant_that_was_overwritten_is_filled_again():
    layer = dummy("a", "shape { dim: 4 } data_filler { value: 7 }")
    layer.forward([])[0].mul_(2)
    assert (layer.forward([])[0] == 7).all()


def test_memory_format_is_the_contexts():
    layer = dummy("a", "shape { dim: 2 dim: 3 dim: 4 dim: 5 }", memory_format=torch.channels_last)
    assert layer.forward([])[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "num is given 0 times for 3"),
        ("shape { dim: 1 } num: 1", "exclude each other"),
        ("shape { dim: 1 } shape { dim: 1 }", r"2 shape\(s\) are given for 3"),
        ("num: 1 num: 2 channels: 1 height: 1 width: 1", "num is given 2 times for 3"),
        ("shape { dim: -1 }", "negative"),
        ("shape { dim: 1 } data_filler { } data_filler { }", "data_filler is given 2 times for 3"),
        ('shape { dim: 1 } data_filler { type: "gauss" }', "Did you mean 'gaussian'"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(NetError, match=message):
        dummy("a b c", fields)
