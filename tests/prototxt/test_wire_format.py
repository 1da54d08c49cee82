"""Messages that are walked through without a schema."""

from __future__ import annotations

import pytest

from mgcaffe.prototxt import BlobProto, LayerParameter, NetParameter
from mgcaffe.prototxt.wire_format import NotWalkable, field_head, fields_of, reader_of, without_payloads

LAYER, BLOBS, DATA = 100, 7, 5
TREE = {LAYER: {BLOBS: {DATA: "values", 8: "values"}}}


def test_the_fields_of_a_message_are_found_in_their_order():
    data = LayerParameter(name="a", type="B", loss_weight=[1], phase=1).SerializeToString()
    found = list(fields_of(reader_of(data), 0, len(data)))
    assert [(each.number, each.kind) for each in found] == [(1, 2), (2, 2), (5, 5), (10, 0)]
    assert data[found[1].content : found[1].end] == b"B" and found[-1].end == len(data)


@pytest.mark.parametrize("data", [b"\x0a\x05abc", b"\x0a", b"\x07", b"\x00", b"\xff" * 12, b"\x0d\0\0"])
def test_what_is_cut_short_or_no_message_cannot_be_walked_through(data):
    with pytest.raises(NotWalkable):
        list(fields_of(reader_of(data), 0, len(data)))


def test_large_values_are_left_where_they_are():
    net = NetParameter(name="n")
    for size in (3, 2000, 0):
        net.layer.add(name=str(size)).blobs.add(data=[1.5] * size).shape.dim.append(size)
    data = net.SerializeToString()
    head, found = without_payloads(reader_of(data), len(data), TREE)
    assert [set(each) for each in found] == [set(), {"values"}, set()]
    payload = found[1]["values"]
    assert (payload.number, payload.length) == (DATA, 8000)
    assert data[payload.offset :][:8000] == BlobProto(data=[1.5] * 2000).SerializeToString()[-8000:]
    net.layer[1].blobs[0].ClearField("data")
    assert NetParameter.FromString(head) == net


def test_values_in_several_parts_are_left_to_protobuf():
    part = BlobProto(data=[1.5] * 2000).SerializeToString()
    blob = field_head(BLOBS, 2 * len(part)) + part + part
    data = field_head(LAYER, len(blob)) + blob
    assert len(NetParameter.FromString(data).layer[0].blobs[0].data) == 4000
    with pytest.raises(NotWalkable):
        without_payloads(reader_of(data), len(data), TREE)
