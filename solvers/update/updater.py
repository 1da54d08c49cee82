"""The update of the weights: one pass over the arena's trainable part (Caffe: sgd_solver.cpp, ApplyUpdate).

The arena is cut into groups of equal multipliers (`groups.py`). A rule turns a slice's gradient into the step that is
subtracted from the weights; `apply` runs it over all groups, in pieces that stay in the cache. The order is Caffe's:
clip (the caller gives the factor), divide by iter_size, regularize, then the rule. Frozen parameters (lr_mult 0) never
change, so they are left out.

Tables with row gradients lie outside the arena's buffers, and are updated beside them (`row_updates.py`).

A part of the arena can be updated alone (`apply_part`), as soon as its gradients are there. Gradients that are kept as
products (`ProductGradient`) are made and used up piece by piece (`apply`).

Cost on one core, 61 M parameters, float32: SGD with L2 in PyTorch's fused kernel 27 ms, in cached pieces
35 ms, in whole-arena passes 50 ms; 161 alternating small slices (ResNet-50's number): grouped and fused 0.1
ms, one by one 0.4 ms.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from mgcaffe.engine.arena import ArenaSlice, ParameterArena, Table
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.product_gradient import row_pieces
from mgcaffe.engine.row_parameter import RowParameter, WholeRows
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source, nearest
from mgcaffe.solvers.rates.momentum_and_decay import MomentumAndDecay
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.update import rules
from mgcaffe.solvers.update.fused import fused_sgd, fused_sgd_works
from mgcaffe.solvers.update.groups import Group, make_groups
from mgcaffe.solvers.update.local_rates import LocalRates
from mgcaffe.solvers.update.norms import l2_norm
from mgcaffe.solvers.update.row_updates import RowUpdates
from mgcaffe.solvers.update.rules import Numbers

# Four pieces of this size (weights, gradient, history, scratch) still fit a last-level cache; smaller ones
# pay more for the calls than they save.
_PIECE = 1 << 19

_MAX_PARTS = 1 << 14


class Updater:
    """Updates the weights of one arena by the rule that the solver asks for.

    Args:
        param: the SolverParameter message.
        arena: the training net's.
        source: where the solver's fields stand, for errors.

    Attributes:
        name: the rule's name (`SGD`).
        warnings: what the user should know of the fields that the rule reads.
        update_elsewhere: updates tables of other processes; called with the rate and the factor on gradients.

    Raises:
        SolverError: an unknown type or regularization_type, a field outside the rule's range, or one that a table with
            row gradients cannot follow.
    """

    def __init__(self, param: SolverParameter, arena: ParameterArena, source: Source | None = None) -> None:
        self.name = solver_type(param, source)
        self.rule = rules.RULES[self.name]
        self.warnings = self.rule.check(param, source)
        if param.regularization_type not in ("L1", "L2"):
            raise SolverError(
                f"unknown regularization_type '{param.regularization_type}'",
                location=locate(source, "regularization_type"),
                hint="known types: L1, L2",
            )
        self._param = param
        self._arena = arena
        self._momentum_and_decay = MomentumAndDecay(param, self.name, source)
        self._local_rates = LocalRates(param, self.name, arena, source) if LocalRates.wanted(param) else None
        self.warnings += self._momentum_and_decay.warnings + (self._local_rates.warnings if self._local_rates else [])
        self.update_elsewhere: Callable[[float, float], None] = lambda rate, scale: None
        self._tables = RowUpdates(param, self.name, arena.tables, source)
        if param.row_wise_adagrad and self.name == "AdaGrad" and not arena.tables:
            self.warnings.append("row_wise_adagrad has no effect: the net has no layer of type EmbeddingBag")
        self._history_is_step = _history_is_step(param, self.name)
        if self._history_is_step:
            self.rule = replace(self.rule, step=rules.sgd_without_momentum)
        self._histories = [] if self._history_is_step else [arena.like() for _ in range(self.rule.histories)]
        self._step_version: int | None = None
        self._parts: dict[tuple[int, int], list[Group]] = {}
        plain = self.name == "SGD" and param.regularization_type == "L2"
        self._fused = plain and fused_sgd_works(arena.data)

    def beside(self, arena: ParameterArena) -> Updater:
        """Return an updater of the same weights by the gradients of another arena, with these histories (Hogwild).

        Args:
            arena: one made beside this updater's (`ParameterArena`).
        """
        other = copy.copy(self)
        other._arena = arena
        other._parts = {}
        other._tables = self.tables_beside(arena.tables)
        return other

    def tables_beside(self, tables: Sequence[Table]) -> RowUpdates:
        """Return the updates of the same tables by other gradients, with these histories.

        Args:
            tables: the arena's in their order, with the same values.
        """
        return self._tables.beside(tables)

    @property
    def histories(self) -> list[torch.Tensor]:
        """Flat tensors laid out as the arena, as many as the rule keeps; those of tables lie apart.

        Without momentum SGD's is the last step, which lies in the place of the gradients. It is zero before the first
        update, and where something else has been written there since, such as gradients that were refused.
        """
        is_lost = self._step_version not in (None, self._arena.diff._version)
        if is_lost or not self._histories:
            self.separate_histories()
        return self._histories

    def separate_histories(self) -> None:
        """Keep the histories apart from the gradients until the next update, so that they can be filled."""
        if self._history_is_step and (self._step_version is not None or not self._histories):
            self._histories, self._step_version = [self._arena.like()], None

    def apply(self, rate: float, iteration: int, scale: float = 1.0) -> None:
        """Make one update of all trainable weights, tables included.

        Args:
            rate: the learning rate.
            iteration: updates done before this one.
            scale: factor on every gradient: the clipping factor over iter_size.
        """
        self.apply_part(0, self._arena.trainable_diff, rate, iteration, scale)
        self.apply_to_tables(rate, iteration, scale)

    def apply_to_tables(self, rate: float, iteration: int, scale: float = 1.0) -> None:
        """Update the tables alone, by the gradients of the rows that lie in this process or were handed on."""
        if self._arena.tables:
            self._tables.apply(self._momentum_and_decay.numbers(rate, iteration), scale)
            self.update_elsewhere(rate, scale)

    def apply_part(self, offset: int, count: int, rate: float, iteration: int, scale: float = 1.0) -> None:
        """Update what belongs to elements `offset` to `offset + count` of the gradients, whole layers.

        All parts make one update.
        """
        if (offset, count) not in self._parts:
            if len(self._parts) >= _MAX_PARTS:
                self._parts.clear()  # of plans that are no longer in use
            self._parts[offset, count] = make_groups(
                self._arena,
                [] if self._history_is_step else self._histories,
                offset,
                offset + count,
                parameters_apart=self._local_rates is not None,
            )
        self._apply(self._parts[offset, count], rate, iteration, scale)
        for piece in self._arena.apart:
            if offset <= piece.diff_offset and piece.diff_offset + piece.diff_count <= offset + count:
                self._apply_apart(piece, rate, iteration, scale)

    @property
    def takes_products(self) -> bool:
        """Whether gradients may be kept as products until `apply`: nothing reads, or keeps, their values besides it."""
        return not (self._history_is_step or self._keeps_step or self._local_rates is not None)

    def _apply_apart(self, piece: ArenaSlice, rate: float, iteration: int, scale: float) -> None:
        """Update a parameter whose gradient lies apart, or is kept as a product, as its rows are made.

        Both in the same pieces, so that both ways give the same bits.
        """
        parameter = piece.parameter
        weights, *histories = (self._arena.view(flat, parameter) for flat in (self._arena.data, *self._histories))
        lying = ((rows, parameter.diff[rows]) for rows in row_pieces(parameter.diff))
        for rows, gradient in lying if parameter.product is None else parameter.product.pieces():
            groups = [
                Group(
                    piece.lr_mult,
                    piece.decay_mult,
                    [weights[rows].view(-1)],
                    [gradient.view(-1)],
                    [[history[rows].view(-1)] for history in histories],
                )
            ]
            self._apply(groups, rate, iteration, scale)
        parameter.product = None

    @property
    def _keeps_step(self) -> bool:
        """Whether the step stays in the place of the gradient: snapshot_diff writes it, as in Caffe."""
        return self._param.snapshot_diff

    def _apply(self, groups: Sequence[Group], rate: float, iteration: int, scale: float) -> None:
        numbers = self._momentum_and_decay.numbers(rate, iteration)
        for group, eta in zip(groups, self._rates(groups, numbers, scale), strict=True):
            decay = numbers.weight_decay * group.decay_mult
            before: list[torch.Tensor] = []
            if decay and self._param.decoupled_weight_decay:
                if self._keeps_step:
                    before = [weights.clone() for weights in group.weights]
                torch._foreach_mul_(group.weights, 1 - eta * decay)
                decay = 0.0
            self._step(group, numbers, eta, scale, decay)
            if before:
                for old, weights, gradient in zip(before, group.weights, group.gradients, strict=True):
                    torch.sub(old, weights, out=gradient)
        if self._history_is_step:
            self._histories, self._step_version = [self._arena.diff], self._arena.diff._version

    def _rates(self, groups: Sequence[Group], numbers: Numbers, scale: float) -> list[float]:
        """Compute the rate of each group."""
        if self._local_rates is None:
            return [numbers.rate * group.lr_mult for group in groups]
        weights, gradients = [group.weights[0] for group in groups], [group.gradients[0] for group in groups]
        histories = [group.histories[0][0] for group in groups]
        return self._local_rates.of(weights, gradients, histories, numbers, scale)

    @property
    def table_histories(self) -> dict[int, torch.Tensor]:
        """The histories of tables, by the parameter's id; of the rows that lie in this process."""
        return self._tables.histories

    def history_blobs(self, parameters: Sequence[Parameter]) -> list[torch.Tensor | WholeRows]:
        """Return the histories as Caffe stores them, as views: the first one of all parameters, then the second one.

        A table has one with AdaGrad if it trains, and else none.

        Args:
            parameters: in Caffe's learnable order.
        """
        blobs: list[torch.Tensor | WholeRows] = []
        for flat in self.histories:
            for parameter in parameters:
                if not isinstance(parameter, RowParameter):
                    blobs.append(self._arena.view(flat, parameter))
                elif (blob := self._tables.history_blob(parameter)) is not None:
                    blobs.append(blob)
        return blobs

    @property
    def correlations(self) -> list[float]:
        """With larc_turbo, what a snapshot has to hold of each parameter that trains (`LocalRates`); else nothing."""
        return list(self._local_rates.correlations.values()) if self._local_rates is not None else []

    def resume(self, correlations: Sequence[float]) -> str | None:
        """Go on with the `correlations` of a snapshot; return a warning where they are not of these parameters."""
        rates = self._local_rates
        if rates is None or not rates.correlations:
            return None
        if len(correlations) != len(rates.correlations):
            return "the snapshot doesn't say what larc_turbo has seen: it begins anew"
        rates.correlations = dict(zip(rates.correlations, correlations, strict=True))
        return None

    def _step(self, group: Group, numbers: Numbers, eta: float, scale: float, decay: float) -> None:
        """Update one group with the decay in its gradients."""
        # The kernel keeps no history without momentum.
        if self._fused and numbers.history_momentum:
            momentum = numbers.history_momentum
            fused_sgd(group.weights, group.gradients, group.histories[0], eta, scale, decay, momentum)
            if self._keeps_step:
                for gradient, step in zip(group.gradients, group.histories[0], strict=True):
                    gradient.copy_(step)
            return
        # A GPU has no such cache, and each piece would cost it a kernel for each operation.
        largest = _PIECE if self._arena.data.is_cpu else max(1, self._arena.trainable)
        for weights, gradient, histories in group.pieces(largest):
            self._regularize(weights, gradient, scale, decay)
            step = self.rule.step(numbers, eta, gradient, *histories)
            weights.sub_(step)
            if self._keeps_step and step is not gradient:
                gradient.copy_(step)

    def _regularize(self, weights: torch.Tensor, gradient: torch.Tensor, scale: float, decay: float) -> None:
        if scale != 1:
            gradient.mul_(scale)
        if decay and self._param.regularization_type == "L1":
            gradient.add_(torch.sign(weights), alpha=decay)
        elif decay:
            gradient.add_(weights, alpha=decay)


def solver_type(param: SolverParameter, source: Source | None = None) -> str:
    """Return the name of the rule that a solver asks for.

    Raises:
        SolverError: no such rule; names the nearest one and all of them.
    """
    if param.type in rules.RULES:
        return param.type
    near = nearest(param.type, rules.RULES)
    guess = f" Did you mean '{near}'?" if near else ""
    raise SolverError(
        f"unknown solver type '{param.type}'.{guess}",
        location=locate(source, "type"),
        hint=f"known types: {', '.join(rules.RULES)}",
    )


def _history_is_step(param: SolverParameter, name: str) -> bool:
    """Return whether the history is always the last step, left in the place of the gradient, and read by no update."""
    is_read = param.momentum or param.momentum_policy != "fixed" or LocalRates.wanted(param)
    # A decoupled decay is no part of the history, but of the step that snapshot_diff asks for; workers of one replica
    # have gradients of their own.
    is_another = param.decoupled_weight_decay or param.comm_param.hogwild_threads > 1
    return name == "SGD" and not is_read and not is_another


def clip_factor(arena: ParameterArena, threshold: float, others: Sequence[torch.Tensor] = ()) -> float:
    """Compute the factor on the gradients with which their L2 norm stays within `threshold`.

    The norm is that of all trainable gradients together, summed up over iter_size micro-batches and before
    any weight decay (Caffe: ClipGradients). A negative threshold, or a norm within it, gives 1.

    Args:
        arena: the gradients.
        threshold: the largest norm.
        others: flat tensors of further gradients that count (`frozen_gradients`).
    """
    if threshold < 0 or not arena.trainable:
        return 1.0
    norm = math.hypot(*(float(l2_norm(each)) for each in (arena.diff[: arena.trainable_diff], *others)))
    return threshold / norm if norm > threshold else 1.0
