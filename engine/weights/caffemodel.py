"""Weights as a binary caffemodel (Caffe: Net::ToProto), written from where they lie in memory.

protobuf would build a message with a second copy of the weights, and a third one for its bytes. Here it serializes
what stands around the values, and these are the net's own arrays; the bytes are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.row_parameter import TableInShards
from mgcaffe.errors import PrototxtError
from mgcaffe.errors.whole_files import size_of
from mgcaffe.prototxt import LayerParameter, NetParameter
from mgcaffe.prototxt.binary import write_bytes
from mgcaffe.prototxt.blobs import blob_pieces
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.wire_format import field_head, fields_of, reader_of

_MOST_BYTES = 2**31 - 1

Pieces = list[bytes | memoryview]


class HasWeights(Protocol):
    """What of a net is read here."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def layers(self) -> Sequence[Layer]:
        """Its layers in order."""


def save_caffemodel(net: HasWeights, path: str | os.PathLike[str], diff: bool = False) -> None:
    """Write a net with its weights as `Net.to_proto` gives it, so that the file is whole or not there.

    Args:
        net: the Net.
        path: the file.
        diff: whether to write the gradients as well.

    Raises:
        PrototxtError: it would be larger than protobuf's 2 GiB, or cannot be written (exit code 73).
    """
    write_bytes(encode_caffemodel(net.name, net.layers, diff), path)


def encode_caffemodel(name: str, layers: Sequence[Layer], diff: bool) -> Pieces:
    """Return the content of the file, whose weights are those of the layers: they may not change until it is written.

    Args:
        name: the net's.
        layers: the layers.
        diff: whether gradients are in it.

    Raises:
        PrototxtError: it would be larger than protobuf's 2 GiB.
    """
    number = message_facts(NetParameter()).fields["layer"].number
    pieces: Pieces = [NetParameter(name=name).SerializeToString()]
    for layer in layers:
        content = list(_layer_pieces(layer, diff))
        pieces += [field_head(number, size_of(content)), *content]
    size = size_of(pieces)
    if size > _MOST_BYTES:
        raise PrototxtError(f"a net of {size / 2**30:.2f} GiB does not fit into a binary file of at most 2 GiB")
    return pieces


def _layer_pieces(layer: Layer, diff: bool) -> Iterator[bytes | memoryview]:
    """Give a LayerParameter's fields in the order of their numbers, as protobuf does."""
    message = LayerParameter()
    message.CopyFrom(layer.param)
    message.phase = layer.phase
    del message.blobs[:]
    rest: bytes = message.SerializeToString()
    number = message_facts(message).fields["blobs"].number
    fields = fields_of(reader_of(rest), 0, len(rest))
    place = next((field.start for field in fields if field.number > number), len(rest))
    yield rest[:place]
    for parameter in layer.parameters:
        if isinstance(parameter, TableInShards):
            reference = parameter.reference.SerializeToString()
            yield field_head(number, len(reference))
            yield reference
            continue
        content = blob_pieces(parameter.data.cpu().numpy(), parameter.dense_diff().cpu().numpy() if diff else None)
        yield field_head(number, size_of(content))
        yield from content
    yield rest[place:]
