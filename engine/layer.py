"""The contract that every layer keeps (Caffe: layer.hpp).

A layer is given its bottoms' shapes, computes its tops from its bottoms, and later its bottoms' gradients
from its tops' gradients. What backward needs from forward the layer keeps in `self.saved`. The net owns
the blobs, their order and their lifetimes; a layer sees tensors only.

    setup(bottom_shapes)            once: checks the fields, declares parameters with `add_parameter`
    reshape(bottom_shapes)          whenever a bottom's shape changed: checks, returns the tops' shapes
    forward(bottoms) -> tops
    recall(bottoms, tops)           instead of forward, where backward is run first
    backward(top_diffs, wanted)     parameter gradients are *added* to `parameter.diff`,
                                    bottom gradients are returned, None where `wanted` is False

Tensors may have any memory format: an N x C x H x W blob can lie in memory as N x H x W x C
(`torch.channels_last`). Indices always mean N, C, H, W; use `reshape`, never `view`, across axes.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import torch

from mgcaffe.engine.checks.memory import blob_bytes, shape_text, why_too_large, why_too_many_axes
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.types import Shape
from mgcaffe.errors import EngineError, Location, NetError
from mgcaffe.prototxt import FillerParameter, LayerParameter, Phase, Source, has_field

TRAIN, TEST = Phase.TRAIN, Phase.TEST


@dataclass(frozen=True)
class Arity:
    """How many blobs a layer takes or gives; `most` None means any number."""

    least: int
    most: int | None

    def __contains__(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"


def exactly(count: int) -> Arity:
    """`count` blobs, no more and no fewer."""
    return Arity(count, count)


def at_least(count: int) -> Arity:
    """`count` blobs or more."""
    return Arity(count, None)


def between(least: int, most: int) -> Arity:
    """From `least` to `most` blobs."""
    return Arity(least, most)


class Layer:
    """Base of all layers. Subclasses state as class attributes what the net has to know.

    Attributes:
        type: the name that a prototxt calls it by (set by `register`).
        bottoms, tops: how many blobs it takes and gives.
        one_top_per_bottom: the two counts have to be equal.
        auto_tops: missing tops are made by the net (losses).
        loss_weight: weight of top 0 in the net's loss where the prototxt gives none.
        in_place: a prototxt may name the same blob as bottom and top.
        keeps_bottoms, keeps_tops: backward reads the values of the bottoms (of the tops), so no layer may
            overwrite them in the meantime.
        bottoms_made_again: the numbers of those bottoms that backward makes again, though `keeps_bottoms` is True.
        keeps_others: backward reads more large values than those (masks, indices); True where nothing is known.
        only_once: why forward cannot run a second time in a pass and give the same; empty: it can, since it depends on
            nothing but bottoms, parameters and the net's random stream.
        capturable: for bottoms of one form its passes call the same functions of tensors with the same numbers, read no
            values in Python, draw no random numbers, and remember nothing from pass to pass but in parameters
            (`engine/capture`). What is changed in the layer's attributes after the first passes has no effect then;
            what is changed of its parameters has.
        tops_share_bottoms: the tops are views of bottom 0's storage.
        shares_blobs: the tops are bottom 0 under another name or shape, so what a user writes into one blob shows in
            the other (Caffe: ShareData, ShareDiff). Where a net keeps its blobs, tops and gradients of other layers
            that lie in one memory are copied.
        drops_gradients: a bottom that is not `differentiable` may depend on what learns, and nothing flows back to it,
            as in Caffe. Where it is False, the net refuses that.
        differentiates_frozen: in Caffe backward computes the gradients of frozen parameters (`lr_mult: 0`) too, so that
            they count in the norm of clipping.
        may_ignore_top_diff: nothing is known of whether backward multiplies by its tops' gradients.
        diffs_share_tops: the bottoms' gradients lie in the storage of top 0's, as views or written over it.
        takes_narrow: values and gradients may come in 16 bits; other layers get them in float32.
        is_last_product: set by the net: no other layer that multiplies values by weights is computed from this one's
            tops, which therefore come out in float32, for losses and metrics.
        backward_follows: set by the net; if False, forward need not keep anything.
        may_overwrite_bottom: set by the net; forward may write its result into bottom 0's storage.
        spare_bottom: set by the net to the number of a bottom that `can_reuse` accepts and whose storage no layer
            else needs; forward may write its result there, or not.
        may_overwrite_top_diff: set by the net before each backward, one flag per top: no other layer reads that
            gradient, so backward may use its storage.
        wants_bottom: set by the net, one flag a bottom: backward will be asked for that gradient.
        bottom_names: the bottoms as the user named them, for messages; `param` names a Split's outputs.
        saved: what forward keeps for backward; dropped by `release`.
    """

    type: ClassVar[str] = ""
    bottoms: ClassVar[Arity] = exactly(1)
    tops: ClassVar[Arity] = exactly(1)
    one_top_per_bottom: ClassVar[bool] = False
    auto_tops: ClassVar[bool] = False
    loss_weight: ClassVar[float] = 0.0
    in_place: ClassVar[bool] = False
    keeps_bottoms: bool = True
    keeps_tops: bool = False
    bottoms_made_again: Sequence[int] = ()
    keeps_others: bool = True
    only_once: str = ""
    capturable: bool = False
    tops_share_bottoms: bool = False
    shares_blobs: bool = False
    drops_gradients: ClassVar[bool] = False
    differentiates_frozen: ClassVar[bool] = False
    may_ignore_top_diff: ClassVar[bool] = False
    diffs_share_tops: bool = False
    takes_narrow: bool = False

    def __init_subclass__(cls) -> None:
        """Have each class say by itself that it is `capturable`: nothing is known of what it changes in another one."""
        super().__init_subclass__()
        cls.capturable = cls.__dict__.get("capturable", False)

    def __init__(self, param: LayerParameter, context: LayerContext, source: Source | None = None) -> None:
        """Take the LayerParameter message, the net's context and, if known, the prototxt's LayerSource."""
        self.param = param
        self.name: str = param.name
        self.context = context
        self.source = source
        self.phase: Phase = param.phase if param.HasField("phase") else context.phase
        self.parameters: list[Parameter] = []
        self.backward_follows = self.phase == TRAIN
        self.is_last_product = False
        self.may_overwrite_bottom = False
        self.spare_bottom: int | None = None
        self.may_overwrite_top_diff: Sequence[bool] = ()
        self.wants_bottom: Sequence[bool] = (True,) * len(param.bottom)
        self.bottom_names: Sequence[str] = list(param.bottom)
        self.saved: Any = None

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the layer's fields and declare its parameters. Called once."""

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the tops' shapes for these bottoms. Called when a shape changed, and once after `setup`."""
        raise NotImplementedError

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Compute the tops."""
        raise NotImplementedError

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add to the parameters' gradients and return the bottoms'.

        Args:
            top_diffs: one gradient a top, zeros where nothing flows back.
            wanted: one flag a bottom: whether its gradient is needed.
        """
        raise NotImplementedError

    def first_values(self) -> Sequence[torch.Tensor | None]:
        """Return the values that lie in the tops before the first pass; None for those that each pass makes anew."""
        return ()

    def recall(self, bottoms: Sequence[torch.Tensor], tops: Sequence[torch.Tensor]) -> None:
        """Make what forward keeps out of what lies in the blobs, where backward runs without a forward pass.

        Caffe's layers read their blobs in backward, whoever wrote them. No value, statistic or random stream changes.

        Args:
            bottoms: copies of the values in the bottoms; they may be written over.
            tops: the values in the tops.
        """
        if not (self.parameters or any(self.wants_bottom)):
            return
        statistics = [(each.data, each.data.clone()) for each in self.parameters if each.measured]
        stream = self.context.generator.get_state()
        computed = self.forward(bottoms)
        self.context.generator.set_state(stream)
        for values, before in statistics:
            values.copy_(before)
        if self.keeps_tops:
            for top, values in zip(computed, tops, strict=True):
                top.copy_(values)

    def differentiable(self, bottom: int) -> bool:
        """Return whether a gradient can flow to this bottom (labels and the like: no)."""
        return True

    def forward_operand(self, x: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
        """Return x as the forward product takes it; `operand` is x as the products of backward do."""
        return widened(x) if self.is_last_product else operand

    def can_reuse(self, bottom: int) -> bool:
        """Return whether forward could write its top into this bottom's storage, though the top is another blob."""
        return False

    def others_bytes(self, top_shapes: Sequence[Shape]) -> int | None:
        """Return how many bytes forward keeps for backward besides bottoms and tops; None: not known."""
        return None if self.keeps_others else 0

    def release(self) -> None:
        """Drop what forward kept; backward cannot run again before the next forward."""
        self.saved = None

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Multiply-accumulate operations of one forward pass."""
        return 0

    def add_parameter(
        self, shape: Sequence[int], filler: FillerParameter | None = None, *, by_rows: bool = False
    ) -> Parameter:
        """Declare the next parameter; multiplier and name come from the layer's `param` messages.

        Args:
            shape: the blob's shape.
            filler: what initialises it; None: zeros.
            by_rows: whether it is a `RowParameter`, to whose gradient backward adds rows.

        Raises:
            NetError: the machine cannot hold it.
        """
        parameter = (RowParameter if by_rows else Parameter)(tuple(int(size) for size in shape), filler)
        index = len(self.parameters)
        self.check_parameter(index, parameter.shape, by_rows=by_rows)
        if index < len(self.param.param):
            spec = self.param.param[index]
            parameter.name, parameter.lr_mult, parameter.decay_mult = spec.name, spec.lr_mult, spec.decay_mult
            parameter.explicit_multipliers = {
                field: getattr(spec, field) for field in ("lr_mult", "decay_mult") if has_field(spec, field)
            }
        parameter.wanted = parameter.lr_mult != 0
        self.parameters.append(parameter)
        return parameter

    def check_parameter(self, index: int, shape: Shape, *, by_rows: bool = False) -> None:
        """Check that the machine can hold the parameter of this number if it has this shape.

        Raises:
            NetError: it has too many axes or values.
        """
        if axes_problem := why_too_many_axes(shape):
            self.fail(f"parameter {index} {axes_problem}")
        size = blob_bytes(shape, self.context.dtype.itemsize)
        is_divided = by_rows and self.context.divides_tables
        if not is_divided and (problem := why_too_large(size, self.context.device)):
            hint = "lower input_dim (ids modulo a smaller number) or num_output" if by_rows else problem[1]
            self.fail(f"parameter {index} of shape {shape_text(shape)} {problem[0]}", hint=hint)

    def canonical_axis(self, axis: int, rank: int, field: str = "axis") -> int:
        """`axis` with negative values counted from the end, checked against a blob of `rank` axes."""
        if not -rank <= axis < rank:
            self.fail(f"{field} {axis} does not exist in a blob with {rank} axes", field)
        return axis % rank

    def describe(self) -> str:
        """Return what a rank's record calls the layer: `layer 'conv1'`."""
        return f"layer '{self.name}'"

    def location(self, field: str | None = None, index: int = 0) -> Location | None:
        """Return where the layer (or one of its fields) stands in the prototxt, if that is known."""
        if self.source is None:
            return None
        return self.source.field(field, index) if field else self.source.location

    def fail(
        self,
        message: str,
        field: str | None = None,
        *,
        index: int = 0,
        hint: str | None = None,
        error: builtins.type[EngineError] = NetError,
    ) -> NoReturn:
        """Raise an error that names this layer and its place, or a field's (its `index`-th), in the prototxt."""
        location = self.location(field, index)
        raise error(f"{message} (layer '{self.name}', type {self.type})", location=location, hint=hint)
