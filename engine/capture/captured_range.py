"""Neighbouring layers of a net whose passes are captured, and replayed once two captures in a row were the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.capture.captured_pass import CapturedPass, PassProgram, compile_pass
from mgcaffe.engine.capture.program import Values
from mgcaffe.engine.capture.recorder import Recorder
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.net import Net

_ATTEMPTS = 4
_VARIANTS = 4
_MOST_IN_VAIN = 8

OnLayerDone = Callable[[int], None]


@dataclass
class _Variant:
    """What is known of passes with inputs of one form.

    Attributes:
        shapes: the shapes that the layers were reshaped for; the key has the ids of these lists.
        attempts: how many captures were made.
        capture: the last one.
        program: what is replayed; None: nothing yet.
        why_not: why nothing ever is.
    """

    shapes: list[object]
    attempts: int = 0
    capture: CapturedPass | None = None
    program: PassProgram | None = None
    why_not: str = ""


class CapturedRange:
    """Steps that follow each other in a net.

    Each pass goes forward, then backward. What the calls depend on besides the values is the key of a `_Variant`: the
    form of the inputs, which parameters are fresh (the second micro-batch adds to their gradients) or wanted, where
    these lie, in how many bits products are made, how many ranks there are, and who chooses among candidates. For the
    rest the layers say that they are `capturable`. Hooks of the net are called for each step, but blobs between two
    steps of the range hold nothing while it is replayed. Where no form has come back after some passes, the layers run
    by themselves until one does.

    Args:
        net: a training net that frees its blobs.
        steps: some of its steps.
    """

    def __init__(self, net: Net, steps: Sequence[Node]) -> None:
        self.steps = steps
        self._net = net
        self._inputs: list[Blob] = []
        seen: set[Blob] = set()
        for node in steps:
            self._inputs += [blob for blob in node.bottoms if blob not in seen]
            seen.update(node.bottoms, node.tops)
        self._makers = {blob: number for number, node in enumerate(steps) for blob in node.tops}
        # What others put there stays: with `propagate_down: true` also where an in-place layer makes none of it.
        wanted = {
            blob
            for node in steps
            if node.needs_backward
            for blob, wants in zip(node.bottoms, node.wants, strict=True)
            if wants
        }
        self._wanted_inputs = [blob for blob in self._inputs if blob in wanted]
        behind = net.steps[net.steps.index(steps[-1]) + 1 :]
        elsewhere = {blob for node in behind for blob in node.bottoms}
        self._read_elsewhere = [
            blob for blob, number in self._makers.items() if blob in elsewhere and steps[number].needs_backward
        ]
        self._parameters = [parameter for node in steps for parameter in node.owned]
        self._variants: dict[Hashable, _Variant] = {}
        self._variant: _Variant | None = None  # of the pass that has gone forward
        self._recorder: Recorder | None = None
        self._capture = CapturedPass([])
        self._captures_in_vain = 0  # since the last replay, less the passes that were like the one before
        self._last_key: Hashable = None
        self._values: Values | None = None

    @property
    def is_replayed(self) -> bool:
        """Whether the last pass was, or is being, replayed."""
        return self._variant is not None and self._variant.program is not None

    @property
    def captured(self) -> int:
        """For how many forms of passes there is a capture to replay."""
        return sum(variant.program is not None for variant in self._variants.values())

    # -- forward -----------------------------------------------------------------------------------------

    def forward(self, loss: float) -> float:
        """Run the steps forward, or replay that; return their part of the loss added to `loss`."""
        self._values = self._recorder = None
        self._variant = variant = self._find_variant()
        if variant is not None and variant.program is not None:
            self._captures_in_vain = 0
            return self._replay_forward(variant.program, loss)
        if variant is None or variant.why_not:
            return self._run_forward(self._net.compute_forward, loss)
        if self._captures_in_vain >= _MOST_IN_VAIN:
            self._drop_captures()
            return self._run_forward(self._net.compute_forward, loss)
        variant.attempts += 1
        self._captures_in_vain += 1
        return self._capture_forward(loss)

    def _drop_captures(self) -> None:
        self._capture = CapturedPass([])
        for variant in self._variants.values():
            variant.capture = None

    def _run_forward(self, compute: Callable[[Node], None], loss: float) -> float:
        for node in self.steps:
            loss += self._net.run_forward(node, compute)
        return loss

    def _find_variant(self) -> _Variant | None:
        """Return what is known of passes like the one that begins; None if an input is missing."""
        values = [blob.data for blob in self._inputs if blob.data is not None]
        if len(values) < len(self._inputs):
            return None
        form = [(each.shape, each.stride(), each.dtype) for each in values]
        alike = [next(place for place, other in enumerate(values) if other is each) for each in values]
        places = [(each.fresh, each.wanted, id(each.data), id(each.diff)) for each in self._parameters]
        context, shapes = self._net.context, [id(node.shapes) for node in self.steps]
        key = (*form, *alike, *places, context.choices, context.precision, context.solver_ranks, *shapes)
        if key == self._last_key:
            self._captures_in_vain = max(0, self._captures_in_vain - 1)
        self._last_key = key
        if key not in self._variants:
            if len(self._variants) == _VARIANTS:
                self._variants.clear()
            self._variants[key] = _Variant([node.shapes for node in self.steps])
        return self._variants[key]

    def _replay_forward(self, program: PassProgram, loss: float) -> float:
        values: Values = [None] * program.count
        self._values = values
        for blob, slot in zip(self._inputs, program.captured.inputs, strict=True):
            if slot in program.needed:
                values[slot] = blob.data
        steps = zip(program.forward, program.captured.exposed, strict=True)

        def replay(_: Node) -> None:
            function, exposed = next(steps)
            function(values)
            for blob, slot in exposed.items():
                blob.data = values[slot]

        loss = self._run_forward(replay, loss)
        for slot in program.spent:
            values[slot] = None
        return loss

    def _capture_forward(self, loss: float) -> float:
        self._recorder = recorder = Recorder()
        inputs = [recorder.slot_for(blob.data) for blob in self._inputs if blob.data is not None]
        self._capture = capture = CapturedPass(inputs)

        def record(node: Node) -> None:
            with recorder.noting(capture.forward):
                self._net.compute_forward(node)
            losses = [blob for blob, weight in zip(node.tops, node.loss_weights, strict=True) if weight]
            capture.exposed.append({blob: recorder.slot_for(blob.data) for blob in losses if blob.data is not None})

        loss = self._run_forward(record, loss)
        for blob, number in self._makers.items():
            if blob.data is not None:
                capture.exposed[number][blob] = recorder.slot_for(blob.data)
        return loss

    # -- backward ----------------------------------------------------------------------------------------

    def backward(self, on_layer_done: OnLayerDone | None) -> None:
        """Run the steps backward as they ran forward; `on_layer_done` as for `Net.backward`."""
        if self._recorder is not None:
            self._capture_backward(self._recorder, on_layer_done)
        elif self._variant is not None and self._variant.program is not None:
            self._replay_backward(self._variant.program, on_layer_done)
        else:
            self._run_backward(self._net.compute_backward, on_layer_done)

    def _run_backward(self, compute: Callable[[Node], None], on_layer_done: OnLayerDone | None) -> None:
        for node in reversed(self.steps):
            self._net.run_backward(node, compute, on_layer_done)

    def _replay_backward(self, program: PassProgram, on_layer_done: OnLayerDone | None) -> None:
        values, captured, gradients = self._values, program.captured, self._net.gradients
        assert values is not None
        for blob, slot, shape, strides, dtype in captured.gradients:
            is_alone = gradients.is_alone(blob)
            diff = gradients.take(blob)
            if not is_alone or diff.shape != shape or diff.stride() != strides or diff.dtype != dtype:
                diff = torch.empty_strided(shape, strides, dtype=dtype, device=diff.device).copy_(diff)
            values[slot] = diff if slot in program.needed else None
            del diff
        steps = zip(program.backward, captured.written, strict=True)

        def replay(_: Node) -> None:
            function, written = next(steps)
            function(values)
            for parameter in written:
                parameter.fresh = False

        self._run_backward(replay, on_layer_done)
        for blob, slot in captured.handed_on:
            handed_on = values[slot]
            assert handed_on is not None
            gradients.store(blob, handed_on)
        self._values = None

    def _capture_backward(self, recorder: Recorder, on_layer_done: OnLayerDone | None) -> None:
        capture, gradients = self._capture, self._net.gradients
        for blob in self._read_elsewhere:
            if blob.diff is None:
                gradients.store(blob, gradients.take(blob))  # zeros: in another pass there may be more
            assert blob.diff is not None
            if not gradients.is_alone(blob) or not _is_spread(blob.diff):
                recorder.why_not = recorder.why_not or f"another gradient lies in the memory of '{blob.name}'"
            slot = recorder.slot_for(blob.diff)
            capture.gradients.append((blob, slot, blob.diff.shape, blob.diff.stride(), blob.diff.dtype))

        def record(node: Node) -> None:
            with recorder.noting(capture.backward):
                self._net.compute_backward(node)
            capture.written.append([parameter for parameter in node.owned if not parameter.fresh])

        self._run_backward(record, on_layer_done)
        capture.handed_on = [
            (blob, recorder.slot_for(blob.diff)) for blob in self._wanted_inputs if blob.diff is not None
        ]
        self._recorder = None
        self._judge(capture, recorder)

    def _judge(self, capture: CapturedPass, recorder: Recorder) -> None:
        """Make a program of a capture that is the same as the one before it; give up after some that were not."""
        variant = self._variant
        assert variant is not None
        earlier, variant.capture = variant.capture, None
        self._capture = CapturedPass([])
        if recorder.why_not:
            variant.why_not = recorder.why_not
        elif capture == earlier:
            variant.program = compile_pass(capture, recorder.count)
        elif variant.attempts >= _ATTEMPTS:
            variant.why_not = f"the calls of {_ATTEMPTS} passes differ"
        else:
            variant.capture = capture


def _is_spread(x: torch.Tensor) -> bool:
    """Return whether no two values of x lie in one place by a stride of 0."""
    return all(stride or size <= 1 for size, stride in zip(x.shape, x.stride(), strict=True))
