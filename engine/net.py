"""The net: an explicit list of layers, run forward and backward one by one (Caffe: net.cpp).

Running is two loops over what `built_net.py` has built. The net knows nothing of MPI: it is given its shard of the
data and how to add up a number over ranks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.built_net import BuiltNet
from mgcaffe.engine.checks import sizes
from mgcaffe.engine.graph import needs, sharing
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.host_blob import resized
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.weights import by_name, files
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter, read_net_source

if TYPE_CHECKING:
    from mgcaffe.engine.data.data_layer import DataLayer

__all__ = ["TEST", "TRAIN", "Net"]


class Net(BuiltNet):
    """A net that runs; `BuiltNet` says what it is built from, has and raises."""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Net:
        """Read a prototxt (text or binary, old forms upgraded) and build the net. Options as for Net."""
        source = read_net_source(Path(path))
        return cls(source.param, sources=source, **options)

    # -- running -----------------------------------------------------------------------------------------

    def forward(self, start: int = 0, end: int | None = None) -> float:
        """Run layers `start` to `end` (exclusive; None: to the last).

        Returns:
            The sum of their tops that have a loss weight, times it.
        """
        loss = 0.0
        for node in self._range(start, len(self.nodes) if end is None else end):
            loss += self.run_forward(node, self.compute_forward)
        return loss

    def run_forward(self, node: Node, compute: Callable[[Node], None]) -> float:
        """Run one of the `steps` forward by `compute`, with the hooks around it; return its part of the loss."""
        for hook in self.before_forward:
            hook(node.index)
        try:
            compute(node)
        except (RuntimeError, MemoryError) as error:
            sizes.explain(node.layer, "forward", error)
            raise
        loss = _loss_of(node)
        for blob in node.dead:
            blob.data = None
        for hook in self.after_forward:
            hook(node.index)
        return loss

    def compute_forward(self, node: Node) -> None:
        """Compute one of the `steps` by its layer."""
        bottoms = [self._value(node, blob) for blob in node.bottoms]
        shapes = [bottom.shape for bottom in bottoms]
        if shapes != node.shapes:
            self._reshape(node, [tuple(shape) for shape in shapes])
        segment = self._segments.get(node)
        if segment is not None:
            segment.before_forward(node, bottoms)
        tops = node.layer.forward(bottoms)
        if segment is not None:
            node.layer.release()
        node.has_run = True
        for blob, top in zip(node.tops, tops, strict=True):
            # Blobs that stay readable hold float32, and what is written into one must not show in another.
            blob.data = node.copy_if_shared(blob, widened(top), bottoms) if self.keep_blobs else top
            if top.shape != blob.shape:
                blob.shape = tuple(top.shape)

    @property
    def steps(self) -> list[Node]:
        """What a whole pass runs, in order: the nodes, or fused ones in the place of several."""
        return self._steps

    def _range(self, start: int, end: int) -> list[Node]:
        """Return the nodes that run for layers `start` to `end` (exclusive)."""
        if (start, end) == (0, len(self.nodes)):
            return self._steps
        steps = [node for node in self._steps if start <= node.members[0] < end]
        if sum(len(node.members) for node in steps) != end - start:
            raise NetError(f"layers {start} to {end - 1} of net '{self.name}' begin or end inside fused layers")
        return steps

    def _value(self, node: Node, blob: Blob) -> torch.Tensor:
        if blob.data is None:
            node.layer.fail(f"bottom blob '{blob.name}' has no value: run the layers before this one first")
        if not node.layer.takes_narrow:
            blob.data = widened(blob.data)
        return blob.data

    def backward(
        self,
        on_layer_done: Callable[[int], None] | None = None,
        *,
        start: int | None = None,
        end: int = 0,
        loss_scale: float = 1.0,
    ) -> None:
        """Run backward from layer `start` (None: the last) down to layer `end`, both included.

        Args:
            on_layer_done: called with every layer's index, descending, once the gradients of the parameters
                that the layer owns are complete.
            start, end: the range of layers.
            loss_scale: a factor on the losses whose gradients are computed, and so on all gradients.
        """
        if self.phase == TEST:
            needs.check(self.nodes)
        first = len(self.nodes) - 1 if start is None else start
        compute = functools.partial(self.compute_backward, loss_scale=loss_scale)
        for node in reversed(self._range(end, first + 1)):
            self.run_backward(node, compute, on_layer_done)

    def run_backward(
        self, node: Node, compute: Callable[[Node], None], on_layer_done: Callable[[int], None] | None
    ) -> None:
        """Run one of the `steps` backward by `compute`, with the hooks around it; `on_layer_done` as for `backward`."""
        for hook in self.before_backward:
            hook(node.index)
        try:
            compute(node)
        except (RuntimeError, MemoryError) as error:
            sizes.explain(node.layer, "backward", error)
            raise
        for hook in self.after_backward:
            hook(node.index)
        if on_layer_done is not None:
            for index in reversed(node.members):
                on_layer_done(index)

    def compute_backward(self, node: Node, loss_scale: float = 1.0) -> None:
        """Compute the gradients of one of the `steps` by its layer, if backward visits it; complete its parameters'.

        Args:
            node: the step.
            loss_scale: a factor on its tops' part of the loss.
        """
        if node.needs_backward:
            if (segment := self._segments.get(node)) is not None:
                segment.before_backward()
            if self.keep_blobs and not node.has_run:
                self._recall(node)
            self.gradients.backward(node, loss_scale)
            if not self.keep_blobs:
                node.layer.release()
        for parameter in node.owned:
            if parameter.fresh and parameter.wanted:
                parameter.clear_diff()

    def _recall(self, node: Node) -> None:
        """Let a layer that did not run forward see what lies in its blobs: zeros where nothing was written."""
        bottoms, tops = ([self._lying(blob) for blob in blobs] for blobs in (node.bottoms, node.tops))
        shapes = [blob.shape for blob in node.bottoms]
        if shapes != node.shapes:
            self._reshape(node, shapes)
        node.layer.recall(bottoms, tops)

    def _lying(self, blob: Blob) -> torch.Tensor:
        """Return a copy of a blob's values."""
        if blob.data is None:
            return torch.zeros(blob.shape, dtype=self.dtype, device=self.device)
        return resized(blob.data, blob.shape).clone()

    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs' shapes (Caffe: Net::Reshape)."""
        for node in self.nodes:
            self._reshape(node, [blob.shape for blob in node.bottoms])

    def forward_backward(self, on_layer_done: Callable[[int], None] | None = None) -> float:
        """Return one pass in each direction; returns the loss."""
        loss = self.forward()
        self.backward(on_layer_done)
        return loss

    def clear_param_diffs(self) -> None:
        """Forget all parameter gradients: the next one computed for a parameter replaces what is there."""
        for parameter in self.parameters:
            parameter.fresh = True
        if self.table_look_ups is not None:
            self.table_look_ups.forget_gradients()

    def keep_gradients_apart(self, sizes: Mapping[Parameter, int], borrowers: Sequence[Net] = ()) -> None:
        """Give some parameters' gradients places of their own (`ParameterArena.keep_apart`).

        Args:
            sizes: as for the arena.
            borrowers: the nets that were built with `share_with` this one.

        Raises:
            MemoryError: there is no room; nothing has changed.
        """
        self.arena.keep_apart(sizes)
        sharing.bind_shared(self.layers)
        for net in borrowers:
            sharing.bind_to_net(net.layers, self.layers)
            sharing.bind_shared(net.layers)

    # -- looking -----------------------------------------------------------------------------------------

    def output_values(self) -> list[tuple[str, torch.Tensor]]:
        """Name and value of every output of the last forward pass, in alphabetical order."""
        values = ((name, self.blobs[name].data) for name in self.outputs)
        return [(name, widened(data)) for name, data in values if data is not None]

    @functools.cached_property
    def data_layers(self) -> list[DataLayer]:
        """The layers that read records, in order."""
        from mgcaffe.engine.data.data_layer import DataLayer

        return [layer for layer in self.layers if isinstance(layer, DataLayer)]

    @functools.cached_property
    def recurrent_layers(self) -> list[tuple[int, RecurrentLayer]]:
        """The recurrent layers with their numbers, in order."""
        return [(number, layer) for number, layer in enumerate(self.layers) if isinstance(layer, RecurrentLayer)]

    @property
    def bottom_blobs(self) -> list[list[Blob]]:
        """The bottoms of every layer."""
        return [node.bottoms for node in self.nodes]

    @property
    def top_blobs(self) -> list[list[Blob]]:
        """The tops of every layer."""
        return [node.tops for node in self.nodes]

    @property
    def bottom_names(self) -> list[list[str]]:
        """The names of every layer's bottoms."""
        return [[blob.name for blob in node.bottoms] for node in self.nodes]

    @property
    def top_names(self) -> list[list[str]]:
        """The names of every layer's tops."""
        return [[blob.name for blob in node.tops] for node in self.nodes]

    # -- weights -----------------------------------------------------------------------------------------

    def copy_trained_layers(self, source: str | Path | NetParameter, *, tables_too: bool = True) -> by_name.CopyReport:
        """Copy weights from a file's path or a NetParameter message to the layers of the same names.

        A file is binary or HDF5 by its content. Of one, tables whose rows lie in several processes may be left out.

        Raises:
            NetError, PrototxtError: the file does not parse, or a layer does not fit.
        """
        if isinstance(source, (str, Path)):
            return files.copy_file(self.layers, source, tables_too=tables_too)
        return by_name.copy_message(self.layers, source, source.name or "the given net")

    def share_trained_layers_with(self, other: Net) -> None:
        """Make the layers named as in `other` use that net's parameters (Caffe: ShareTrainedLayersWith).

        Raises:
            NetError: a solver trains this net, or the layers' parameters differ.
        """
        if self.is_trained and other is not self:
            raise NetError(
                f"net '{self.name}' is trained by a solver, which would go on to update the weights that it has now, so"
                " it cannot use another net's",
                hint="let the other net use this one's weights, or copy its weights",
            )
        sharing.bind_to_net(self.layers, other.layers)
        sharing.bind_shared(self.layers)

    def to_proto(self, diff: bool = False) -> NetParameter:
        """Return the net as a NetParameter message with weights (and gradients), as Caffe snapshots it."""
        message = NetParameter(name=self.name)
        by_name.layers_to_proto(message, self.layers, diff)
        return message


def _loss_of(node: Node) -> float:
    """Return the part of the loss that lies in a step's tops."""
    loss = 0.0
    for blob, weight in zip(node.tops, node.loss_weights, strict=True):
        if weight:
            assert blob.data is not None
            loss += weight * float(blob.data if blob.data.dim() == 0 else widened(blob.data).sum())
    return loss
