"""When a value is dead, and when a layer may write over it.

A net that trains frees every blob after its last reader; what backward needs, the layers keep themselves. An
in-place layer really works in place only if no other layer still needs the value that it writes over: no layer
that keeps it for backward, no later reader of the same storage under another name (a Split's other output).
Where Caffe's in-place layers corrupt a neighbour's backward pass, these do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.node import Node


def find_dead(nodes: Sequence[Node], kept: Collection[str]) -> None:
    """Set `dead` of every node: the blobs that no later one reads and that are not in `kept`."""
    last: dict[Blob, Node] = {}
    for node in nodes:
        node.dead.clear()
        for blob in [*node.bottoms, *node.tops]:
            last[blob] = node
    for blob, node in last.items():
        if blob.name not in kept:
            node.dead.append(blob)


@dataclass(eq=False)
class _Value:
    """One value that a blob takes: who made it, who reads it, and whether it is read again in backward."""

    maker: Node
    readers: list[Node] = field(default_factory=list)
    storage: list[_Value] = field(default_factory=list)
    held: bool = False


def decide_overwrites(nodes: Sequence[Node], freeing: bool, held: Mapping[Node, Collection[int]] | None = None) -> None:
    """Set `may_overwrite_bottom` of every layer that is in place in the prototxt, and `spare_bottom` of the others.

    Args:
        nodes: what runs, in order. A fused layer writes into no bottom, even where its members are in place.
        freeing: nothing reads a blob after its last reader, so that its storage can be used again.
        held: the numbers of the bottoms, by node, that backward computes something from once more (`Segment`).
    """
    reads: list[list[_Value]] = []
    writes: list[list[_Value]] = []
    current: dict[Blob, _Value] = {}
    for node in nodes:
        reads.append([current[blob] for blob in node.bottoms])
        for value in reads[-1]:
            value.readers.append(node)
        for number in held.get(node, ()) if held else ():
            reads[-1][number].held = True
        writes.append([_Value(node) for _ in node.tops])
        current.update(zip(node.tops, writes[-1], strict=True))
    for node, read, written in zip(nodes, reads, writes, strict=True):
        node.layer.may_overwrite_bottom = node.in_place and node.layer.in_place and _safe(node, read[0])
        node.layer.spare_bottom = _spare(node, read) if freeing and not node.in_place else None
        joined = node.layer.spare_bottom
        if node.layer.may_overwrite_bottom or (read and node.layer.tops_share_bottoms):
            joined = 0
        for value in written:
            value.storage = [] if joined is None else read[joined].storage
            value.storage.append(value)


def _spare(node: Node, read: Sequence[_Value]) -> int | None:
    """Return the first bottom whose storage the layer can use and no other layer needs, not even as another bottom."""
    for index, value in enumerate(read):
        alone = all(other.storage is not value.storage for other in read if other is not value)
        if node.layer.can_reuse(index) and alone and _safe(node, value):
            return index
    return None


def _safe(node: Node, value: _Value) -> bool:
    for same in value.storage:
        # No layer may write over an input, or over an output of the net, which is what no layer reads.
        if not same.maker.bottoms or not same.readers or same.held:
            return False
        if same.maker.needs_backward and same.maker.layer.keeps_tops:
            return False
        for reader in same.readers:
            if reader is node:
                continue
            if reader.index > node.index or (reader.needs_backward and reader.layer.keeps_bottoms):
                return False
    return True
