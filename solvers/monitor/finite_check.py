"""Non-finite losses and gradients: found before any rank updates its weights, and traced to a blob.

The check costs next to nothing: the loss, which the ranks exchange anyway, and with it one sum over each rank's
own gradients, taken layer by layer as they become ready (by one rank, which exchanges nothing, at once). So the ranks
know before the first means come back, and each merged group can be updated as soon as it is there. Only when that is
not finite is the pass run again, from the same records and random numbers, with every blob looked at as it is made.

In fp16 gradients overflow now and then where their loss is multiplied by too large a factor: then the factor is halved
(`loss_scale.py`), and the rest happens only where it cannot be.

Caffe goes on with non-finite weights, and shows a loss of 87.3365, which is -log(FLT_MIN): the softmax gave
the label a probability of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.errors import NotFiniteError
from mgcaffe.prototxt import NanEffect, SolverParameter
from mgcaffe.solvers.events import Emit, LossScaleChanged, Warned
from mgcaffe.solvers.exchange.gradient_buffer import frozen_gradients
from mgcaffe.solvers.loss_scale import LossScale
from mgcaffe.solvers.monitor.forward_state import ForwardState, InputState
from mgcaffe.solvers.training_iteration import TrainingIteration

SKIPS_IN_A_ROW = 10
"""After so many iterations in a row without an update `nan_effect: SKIP` stops as well."""

_FEW_VALUES = 1 << 18

LOSS_OF_NO_PROBABILITY = -math.log(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class _Finding:
    """What one rank found when it ran the pass again: its loss, and the first blob that is not finite."""

    host: str
    loss: float
    blob: str


class FiniteCheck:
    """Refuses updates by non-finite losses or gradients.

    Args:
        net: the training net.
        communicator: the ranks that train in step.
        param: the SolverParameter message; reads nan_effect and iter_size.
        emit: takes the events.
        rank: this rank's number among all, from which its random numbers derive.
        loss_scale: the factor on the loss, which overflowing gradients lower.
        worker: the number of the Hogwild worker whose net it is.
        workers: how many each rank has.
    """

    def __init__(
        self,
        net: Net,
        communicator: Communicator,
        param: SolverParameter,
        emit: Emit,
        rank: int,
        loss_scale: LossScale,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        self._net = net
        self._communicator = communicator
        self._rank = rank
        self._loss_scale = loss_scale
        self._stream = rank * workers + worker
        self._worker = worker if workers > 1 else None
        self._iter_size: int = param.iter_size
        self._effect = NanEffect.Name(param.nan_effect)
        self._emit = emit
        self._skipped = 0
        self._is_explained = False
        self._before = ForwardState(net)
        self._sums: list[torch.Tensor] = []
        self._frozen = frozen_gradients(param, net)

    def begin(self) -> None:
        """Remember what the forward pass of the iteration that begins will change."""
        self._sums.clear()
        self._before.save()

    def gradients_ready(self, offset: int, count: int) -> None:
        """Add up gradients that are complete on this rank, before they are exchanged."""
        if self._communicator.size == 1:
            return
        self._sums.append(self._net.arena.diff[offset : offset + count].sum())

    def probe(self) -> float:
        """Return the sum of this rank's gradients: not finite if one of them is not."""
        rows = [each.values for table in self._tables() for each in table.gradients]
        sums = [*self._sums, *_sums([*rows, *self._on_their_way(), *self._frozen])]
        if self._communicator.size == 1:
            sums.append(self._net.arena.diff[: self._net.arena.trainable_diff].sum())
            for piece in self._net.arena.apart:
                product = piece.parameter.product
                if product is None or not product.is_surely_finite:
                    piece.parameter.complete()  # looked at, it need not be made again by the update
                    sums.append(piece.parameter.diff.sum())
        if not sums:
            return 0.0
        return float(sums[0] if len(sums) == 1 else torch.stack(sums).sum())

    def _tables(self) -> list[RowParameter]:
        return [table.parameter for table in self._net.arena.tables if table.parameter.wanted]

    def _on_their_way(self) -> Sequence[torch.Tensor]:
        """Return the gradients that wait to be taken to tables elsewhere."""
        look_ups = self._net.table_look_ups
        return () if look_ups is None else look_ups.gradients()

    def refuses(self, iteration: TrainingIteration, seed: int, snapshot: Callable[[], None]) -> bool:
        """Decide whether the update must not be made; collective where the numbers are not finite.

        Args:
            iteration: with the loss and the probe that all ranks agreed on. Where one is not finite, the exchange of
                gradients has ended already.
            seed: what the pass's random numbers came from, with the iteration.
            snapshot: writes one of the weights as they are; collective.

        Returns:
            True: go on with the next iteration, as `nan_effect: SKIP` says, or with a smaller factor on the loss.

        Raises:
            NotFiniteError: on all ranks, with the same message.
        """
        loss = iteration.loss
        if math.isfinite(loss) and math.isfinite(iteration.probe):
            self._accept(iteration)
            return False
        gradients = [self._net.arena.diff[: self._net.arena.trainable_diff]]
        if self._communicator.size == 1:
            gradients += [piece.parameter.dense_diff() for piece in self._net.arena.apart]
        gradients += [table.gradient_values() for table in self._tables()]
        gradients += [*self._on_their_way(), *self._frozen]
        is_finite = all(bool(torch.isfinite(each).all()) for each in gradients)
        # A sum of finite numbers can overflow.
        if math.isfinite(loss) and all(self._communicator.allgather(is_finite)):
            self._accept(iteration)
            return False
        if math.isfinite(loss) and self._loss_scale.overflowed():
            self.end()  # the batch is not seen again
            self.rewind()
            self._emit(LossScaleChanged(iteration.number, self._loss_scale.value, is_skipped=True))
            return True
        message = self._trace(iteration.own_loss, seed, iteration.number)
        if self._effect == "SKIP":
            self._skipped += 1
            if self._skipped < SKIPS_IN_A_ROW:
                self._emit(Warned(f"{message}\n  the batch is passed over (nan_effect: SKIP)"))
                return True
            message += f"\n  this was the {SKIPS_IN_A_ROW}th batch in a row, so the run ends"
        if self._effect == "SNAPSHOT":
            self.rewind()
            snapshot()
        raise NotFiniteError(
            message,
            hint="lower base_lr, set clip_gradients, or look at the data; nan_effect (--nan_effect) says what happens"
            + ("; in fp16 numbers above 65504 are infinite, bf16 has no such limit" if self._loss_scale.state else ""),
        )

    def _accept(self, iteration: TrainingIteration) -> None:
        """Take note that an update is made."""
        self._skipped = 0
        self._explain(iteration.loss)
        if self._loss_scale.updated():
            self._emit(LossScaleChanged(iteration.number, self._loss_scale.value, is_skipped=False))

    def _explain(self, loss: float) -> None:
        """Warn once of a loss of 87.3365, and say what it means."""
        weight = sum(self._net.loss_weights.values())
        if self._is_explained or weight <= 0 or abs(loss - LOSS_OF_NO_PROBABILITY * weight) > 1e-4 * weight:
            return
        self._is_explained = True
        self._emit(
            Warned(
                f"the loss is {loss:.4f}, the softmax's -log(FLT_MIN) for every item: it gives all labels a probability"
                " of 0. Training has diverged and seldom comes back: lower base_lr, check labels and the data's scale"
            )
        )

    def end(self) -> None:
        """Keep what the iteration, which is over, has changed."""
        self._before.keep_inputs()

    def rewind(self) -> None:
        """Put back what the forward pass of an unfinished iteration has changed."""
        self._before.restore()

    def _trace(self, own_loss: float, seed: int, iteration: int) -> str:
        """Run the pass again on all ranks and describe the first non-finite value; only the data positions change."""
        after = InputState(self._net)
        self.rewind()
        with _Tracer(self._net).watching() as tracer:
            self._net.clear_param_diffs()
            for micro_batch in range(self._iter_size):
                self._net.reseed(seed, self._stream, iteration, micro_batch)
                self._net.forward()
                self._net.backward(loss_scale=self._loss_scale.value)
        self.rewind()
        after.restore()
        findings = self._communicator.allgather(_Finding(self._communicator.host, own_loss, tracer.found))
        return _describe(findings, iteration, self._rank - self._communicator.rank, self._worker)


def _sums(values: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return numbers that are finite if all values are. Many small tensors are copied into one first, in less time."""
    if sum(each.numel() for each in values) > _FEW_VALUES:
        return torch._foreach_norm(values)
    return [torch.cat([each.flatten() for each in values]).sum()] if values else []


class _Tracer:
    """Checks every blob of a pass as it is made, and remembers the first one that is not finite."""

    def __init__(self, net: Net) -> None:
        self.found = ""
        self._net = net

    @contextmanager
    def watching(self) -> Iterator[_Tracer]:
        """Check every blob of the passes inside, by hooks on the net."""
        self._look_at_weights()
        self._net.after_forward.append(self._forward_done)
        self._net.after_backward.append(self._backward_done)
        try:
            yield self
        finally:
            self._net.after_forward.remove(self._forward_done)
            self._net.after_backward.remove(self._backward_done)

    def _look_at_weights(self) -> None:
        for layer in self._net.layers:
            for number, parameter in enumerate(layer.parameters):
                self._look(parameter.data, f"parameter {number} of layer '{layer.name}', before the pass")

    def _forward_done(self, index: int) -> None:
        for member in self._members(index):
            node = self._net.nodes[member]
            for blob in node.tops:
                if blob.data is not None:
                    self._look(blob.data, f"blob '{blob.name}', made by layer '{node.layer.name}' ({node.layer.type})")

    def _backward_done(self, index: int) -> None:
        for member in reversed(self._members(index)):
            node = self._net.nodes[member]
            place = f"layer '{node.layer.name}' ({node.layer.type})"
            for number, parameter in enumerate(node.layer.parameters):
                if parameter.wanted:
                    self._look(parameter.gradient_values(), f"the gradient of parameter {number}, made by {place}")
            if member != index:
                continue  # of blobs between the members there are no gradients
            for blob in node.bottoms:
                if blob.diff is not None:
                    self._look(blob.diff, f"the gradient of blob '{blob.name}', made by {place}")

    def _members(self, index: int) -> list[int]:
        return next((step.members for step in self._net.steps if step.index == index), [index])

    def _look(self, values: torch.Tensor, name: str) -> None:
        if self.found:
            return
        good = torch.isfinite(values)
        if not bool(good.all()):
            bad = values.numel() - int(good.sum())
            nans = int(torch.isnan(values).sum())
            self.found = f"{name}: {bad} of {values.numel()} values are not finite ({nans} nan, {bad - nans} infinite)"


def _describe(findings: list[_Finding], iteration: int, first_rank: int, worker: int | None) -> str:
    guilty = [rank for rank, each in enumerate(findings) if each.blob or not math.isfinite(each.loss)]
    # A rank that decides alone may be one of several trainers, who go on updating their replicas.
    whose, who = "", "no rank has updated its weights" if len(findings) > 1 else "the weights have not been updated"
    if worker is not None:
        whose, who = f" of worker {worker}", "it has not updated the weights"
    lines = [f"iteration {iteration}{whose}: a loss or gradient is not finite; {who}"]
    for rank in guilty:
        each = findings[rank]
        blob = each.blob or "run again, the pass was finite throughout"
        if worker is not None and not each.blob:
            blob += " (by the weights that other workers have made meanwhile)"
        lines.append(f"  rank {first_rank + rank} ({each.host}), loss {each.loss:g}: {blob}")
    if not guilty:
        lines.append("  every rank's own numbers are finite: their sum over the ranks or micro-batches overflows")
    return "\n".join(lines)
