"""All learnable parameters of a net in one flat buffer, and all their gradients in another.

The parameters that train come first, layer by layer, so that neighbouring layers' gradients are one
contiguous slice: merging them for an all-reduce, or updating them, copies nothing. Behind them lie those that forward
itself changes (BatchNorm's statistics), and then the frozen ones (lr_mult 0, as in a fine-tuned net's fixed layers),
which take no part in the exchange of gradients.

A gradient that is kept as a product (`ProductGradient`) has its place apart, and in the flat buffer only one for what
is exchanged of it (`keep_apart`); otherwise both buffers are laid out alike.

Tables with row gradients (`RowParameter`) lie apart, those of one row length side by side: flat gradients and histories
have no place for them, so nothing that is done to those costs anything for a table's rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from mgcaffe.engine.heap import zeros_on_demand
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.types import Shape
from mgcaffe.errors import NetError

_MANY = 1 << 20
"""From how many values on it matters that a net to test, or one whose gradients lie apart, needs no memory for them."""


@dataclass(frozen=True)
class ArenaSlice:
    """Where one parameter lies: `count` elements from `offset` on.

    Attributes:
        diff_offset, diff_count: where its gradient lies in the buffer of gradients, or what is exchanged of it.
        is_apart: whether the gradient itself has a place outside that buffer.
    """

    layer: int
    layer_name: str
    parameter: Parameter
    offset: int
    count: int
    diff_offset: int
    diff_count: int
    is_apart: bool = False

    @property
    def lr_mult(self) -> float:
        """Factor on the learning rate."""
        return self.parameter.lr_mult

    @property
    def decay_mult(self) -> float:
        """Factor on the weight decay."""
        return self.parameter.decay_mult


@dataclass(frozen=True)
class Table:
    """A parameter with a row gradient, and whose it is."""

    layer: int
    layer_name: str
    parameter: RowParameter


@dataclass(frozen=True)
class Run:
    """Neighbouring trainable elements that the solver treats alike, and where their gradients begin."""

    offset: int
    count: int
    lr_mult: float
    decay_mult: float
    diff_offset: int


class ParameterArena:
    """The flat storage of a net's parameters.

    Args:
        owned: (layer index, layer name, parameter) of every parameter that owns its values, in layer order.
        dtype: of data and gradients.
        device: where they live.
        beside: the arena of a net with the same layers, whose values are these parameters' too, but for those that the
            forward pass changes (`measured`): each net has its own, which begin with that one's.

    Attributes:
        data, diff: flat tensors of all values and all gradients.
        trainable: how many elements of `data` at the front have a learning rate.
        trainable_diff: how many of `diff` belong to these.
        kept_together: how many at the front change in training: those, and the statistics that forward changes.
        slices: one a parameter, ascending by offset.
        apart: those of parameters whose gradients have places of their own (`keep_apart`).
        tables: the parameters that lie apart, in layer order; no other attribute or method counts them.

    Raises:
        NetError: the arena beside it holds other parameters.
    """

    def __init__(
        self,
        owned: Sequence[tuple[int, str, Parameter]],
        dtype: torch.dtype,
        device: torch.device,
        *,
        beside: ParameterArena | None = None,
    ) -> None:
        self.tables = [Table(index, name, each) for index, name, each in owned if isinstance(each, RowParameter)]
        dense = [entry for entry in owned if not isinstance(entry[2], RowParameter)]
        training = [entry for entry in dense if entry[2].lr_mult != 0]
        frozen = [entry for entry in dense if entry[2].lr_mult == 0]
        frozen.sort(key=lambda entry: not entry[2].measured)
        self.slices: list[ArenaSlice] = []
        self.apart: list[ArenaSlice] = []
        offset = 0
        for layer, layer_name, parameter in training + frozen:
            count = parameter.count
            self.slices.append(ArenaSlice(layer, layer_name, parameter, offset, count, offset, count))
            offset += count
        self.trainable = self.trainable_diff = sum(parameter.count for _, _, parameter in training)
        self.kept_together = self.trainable + sum(each.count for _, _, each in frozen if each.measured)
        if beside is not None and self._layout() != beside._layout():
            raise NetError("two nets made of one prototxt have different parameters, so they cannot train one replica")
        self.data: torch.Tensor = torch.zeros(offset, dtype=dtype, device=device) if beside is None else beside.data
        self.diff: torch.Tensor = _zeros((offset,), self.data)
        self._offsets = {id(piece.parameter): piece.offset for piece in self.slices}
        for piece in self.slices:
            piece.parameter.data = self.view(self.data, piece.parameter)
            piece.parameter.diff = self.view(self.diff, piece.parameter)
            if beside is not None and piece.parameter.measured:
                piece.parameter.data = piece.parameter.data.clone()
        if beside is None:
            self._allocate_tables(dtype, device)
        else:
            for mine, theirs in zip(self.tables, beside.tables, strict=True):
                mine.parameter.data = theirs.parameter.data

    def _layout(self) -> list[tuple[str, Shape, float, float]]:
        """Return what arenas that share their values have in common: whose parameters they hold, and in which order."""
        pieces: list[ArenaSlice | Table] = [*self.slices, *self.tables]
        return [
            (each.layer_name, each.parameter.shape, each.parameter.lr_mult, each.parameter.decay_mult)
            for each in pieces
        ]

    def _allocate_tables(self, dtype: torch.dtype, device: torch.device) -> None:
        """Lay tables of one row length and learning rate side by side, so that one call reads or updates all."""
        alike: dict[tuple[int, float], list[RowParameter]] = {}
        for table in self.tables:
            parameter = table.parameter
            alike.setdefault((parameter.shape[1], parameter.lr_mult), []).append(parameter)
        for (length, _), parameters in alike.items():
            rows = [parameter.shape_here[0] for parameter in parameters]
            together = torch.empty((sum(rows), length), dtype=dtype, device=device)
            for parameter, part in zip(parameters, together.split(rows), strict=True):
                parameter.data = part

    def keep_apart(self, sizes: Mapping[Parameter, int]) -> None:
        """Give some gradients places of their own, which take no memory before they are used, and `diff` less.

        What `diff` held is lost.

        Args:
            sizes: trainable parameters, and how many elements each has in `diff` instead.

        Raises:
            MemoryError: there is no room; nothing has changed.
        """
        slices, offset = [], 0
        for piece in self.slices:
            parameter = piece.parameter
            count = sizes.get(parameter, piece.count)
            slices.append(replace(piece, diff_offset=offset, diff_count=count, is_apart=parameter in sizes))
            offset += count
        diff, apart = _zeros((offset,), self.data), {each: _zeros(each.shape, self.data) for each in sizes}
        self.slices, self.diff = slices, diff
        self.apart = [piece for piece in slices if piece.is_apart]
        self.trainable_diff += sum(size - parameter.count for parameter, size in sizes.items())
        for piece in slices:
            if piece.is_apart:
                piece.parameter.diff = apart[piece.parameter]
            else:
                piece.parameter.diff = _in_shape(self.exchanged(piece), piece.parameter)

    def exchanged(self, piece: ArenaSlice) -> torch.Tensor:
        """Return the part of `diff` for a parameter's gradient, or for what is exchanged of it; flat."""
        return self.diff[piece.diff_offset : piece.diff_offset + piece.diff_count]

    def tensors(self) -> list[torch.Tensor]:
        """Return all values: the flat ones, then each table's but those that are divided among processes."""
        return [self.data, *(table.parameter.data for table in self.tables if table.parameter.placement is None)]

    def like(self) -> torch.Tensor:
        """Return a new flat tensor of zeros, laid out as `data` is (a solver's history)."""
        return torch.zeros_like(self.data)

    def view(self, flat: torch.Tensor, parameter: Parameter) -> torch.Tensor:
        """Return the part of a flat tensor laid out as `data` that belongs to an owned parameter, in its shape."""
        offset = self._offsets[id(parameter)]
        return _in_shape(flat[offset : offset + parameter.count], parameter)

    def runs(self) -> list[Run]:
        """Return the trainable part cut into as few pieces of equal multipliers as possible, ascending.

        Parameters whose gradients lie apart are left out; no piece reaches from one side of them to the other.
        """
        runs: list[Run] = []
        for piece in self.slices:
            if piece.offset >= self.trainable or not piece.count or piece.is_apart:
                continue
            last = runs[-1] if runs else None
            is_next = last is not None and last.offset + last.count == piece.offset
            if last is not None and is_next and (last.lr_mult, last.decay_mult) == (piece.lr_mult, piece.decay_mult):
                runs[-1] = replace(last, count=last.count + piece.count)
            else:
                runs.append(Run(piece.offset, piece.count, piece.lr_mult, piece.decay_mult, piece.diff_offset))
        return runs

    def segments(self, *, of_data: bool = False) -> list[tuple[str, int, int, int]]:
        """(layer name, index, offset, count) of every layer that owns trainable parameters, ascending.

        Args:
            of_data: whether the places are those in `data`, instead of `diff`.
        """
        segments: list[tuple[str, int, int, int]] = []
        for piece in self.slices:
            if piece.offset >= self.trainable or not piece.count:
                continue
            start, size = (piece.offset, piece.count) if of_data else (piece.diff_offset, piece.diff_count)
            if segments and segments[-1][1] == piece.layer:
                name, layer, offset, count = segments.pop()
                segments.append((name, layer, offset, count + size))
            else:
                segments.append((piece.layer_name, piece.layer, start, size))
        return segments


def _zeros(shape: Shape, like: torch.Tensor) -> torch.Tensor:
    """Return zeros; many of them, on a CPU, take no memory before they are written."""
    if like.is_cpu and math.prod(shape) >= _MANY:
        return zeros_on_demand(shape, like.dtype)
    return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _in_shape(values: torch.Tensor, parameter: Parameter) -> torch.Tensor:
    """Return a parameter's flat values in its shape."""
    if parameter.memory_format == torch.channels_last:
        outputs, channels, height, width = parameter.shape
        return values.view(outputs, height, width, channels).permute(0, 3, 1, 2)
    return values.view(parameter.shape)
