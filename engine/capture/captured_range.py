"""Neighbouring layers of a net whose passes are captured, and replayed once two captures in a row were the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.capture.program import Values, compile_calls
from mgcaffe.engine.capture.recorder import Call, Recorder
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.net import Net
from mgcaffe.engine.parameter import Parameter

_ATTEMPTS = 4
_VARIANTS = 4

OnLayerDone = Callable[[int], None]


@dataclass
class _Capture:
    """A pass both ways.

    Attributes:
        inputs: the slots of the values that the layers read.
        forward, backward: the calls of each layer, in the order in which they run.
        exposed: for each layer, the blobs that hold a value of its after the forward pass, with its slot.
        gradients: the blobs that hold a gradient when backward begins, with its slot, shape and strides.
        handed_on: the blobs that get one from backward, with its slot.
        written: each layer's parameters that are not `fresh` after its backward, layers in backward's order.
    """

    inputs: list[int]
    forward: list[list[Call]] = field(default_factory=list)
    backward: list[list[Call]] = field(default_factory=list)
    exposed: list[list[tuple[Blob, int]]] = field(default_factory=list)
    gradients: list[tuple[Blob, int, torch.Size, tuple[int, ...]]] = field(default_factory=list)
    handed_on: list[tuple[Blob, int]] = field(default_factory=list)
    written: list[list[Parameter]] = field(default_factory=list)


@dataclass
class _Program:
    """A capture made into functions, one for each layer and direction.

    Attributes:
        capture: what they were made of.
        count: how many slots there are.
        spent: those of exposed values that backward does not read.
    """

    capture: _Capture
    count: int
    spent: list[int]
    forward: list[Callable[[Values], None]]
    backward: list[Callable[[Values], None]]


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
    capture: _Capture | None = None
    program: _Program | None = None
    why_not: str = ""


class CapturedRange:
    """Steps that follow each other in a net.

    Each pass goes forward, then backward. What the calls depend on besides the values is the key of a `_Variant`: the
    form of the inputs, which parameters are fresh (the second micro-batch adds to their gradients), where these lie,
    how many ranks there are, and who chooses among candidates. For the rest the layers say that they are `capturable`.
    Hooks of the net are called for each step, but blobs between two steps of the range hold nothing while it is
    replayed.

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
        self._tops = [*dict.fromkeys(blob for node in steps for blob in node.tops)]
        self._parameters = [parameter for node in steps for parameter in node.owned]
        self._variants: dict[Hashable, _Variant] = {}
        self._variant: _Variant | None = None  # of the pass that has gone forward
        self._recorder: Recorder | None = None
        self._capture = _Capture([])
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

    def forward(self) -> float:
        """Run the steps forward, or replay that; return their part of the loss."""
        self._values = self._recorder = None
        self._variant = variant = self._find_variant()
        if variant is None or variant.why_not:
            return self._run_forward(self._net.compute_forward)
        if variant.program is not None:
            return self._replay_forward(variant.program)
        variant.attempts += 1
        return self._capture_forward()

    def _run_forward(self, compute: Callable[[Node], None]) -> float:
        loss = 0.0
        for node in self.steps:
            loss += self._net.run_forward(node, compute)
        return loss

    def _find_variant(self) -> _Variant | None:
        """Return what is known of passes like the one that begins; None if an input is missing."""
        form = []
        for blob in self._inputs:
            if blob.data is None:
                return None
            form.append((blob.data.shape, blob.data.stride(), blob.data.dtype))
        places = tuple((each.fresh, id(each.data), id(each.diff)) for each in self._parameters)
        context, shapes = self._net.context, tuple(id(node.shapes) for node in self.steps)
        key = (*form, places, context.choices, context.solver_ranks, shapes)
        if key not in self._variants:
            if len(self._variants) == _VARIANTS:
                self._variants.clear()
            self._variants[key] = _Variant([node.shapes for node in self.steps])
        return self._variants[key]

    def _replay_forward(self, program: _Program) -> float:
        values: Values = [None] * program.count
        self._values = values
        for blob, slot in zip(self._inputs, program.capture.inputs, strict=True):
            values[slot] = blob.data
        steps = zip(program.forward, program.capture.exposed, strict=True)

        def replay(_: Node) -> None:
            function, exposed = next(steps)
            function(values)
            for blob, slot in exposed:
                blob.data = values[slot]

        loss = self._run_forward(replay)
        for slot in program.spent:
            values[slot] = None
        return loss

    def _capture_forward(self) -> float:
        self._recorder = recorder = Recorder()
        inputs = [recorder.slot_for(blob.data) for blob in self._inputs if blob.data is not None]
        self._capture = capture = _Capture(inputs, exposed=[[] for _ in self.steps])

        def record(node: Node) -> None:
            with recorder.noting(capture.forward):
                self._net.compute_forward(node)

        loss = self._run_forward(record)
        maker = {blob: number for number, node in enumerate(self.steps) for blob in node.tops}
        for blob, number in maker.items():
            if blob.data is not None:
                capture.exposed[number].append((blob, recorder.slot_for(blob.data)))
        return loss

    # -- backward ----------------------------------------------------------------------------------------

    def backward(self, on_layer_done: OnLayerDone | None) -> None:
        """Run the steps backward as they ran forward; `on_layer_done` as for `Net.backward`."""
        variant = self._variant
        if self._recorder is not None:
            self._capture_backward(self._recorder, on_layer_done)
        elif variant is not None and variant.program is not None:
            self._replay_backward(variant.program, on_layer_done)
        else:
            self._run_backward(self._net.compute_backward, on_layer_done)

    def _run_backward(self, compute: Callable[[Node], None], on_layer_done: OnLayerDone | None) -> None:
        for node in reversed(self.steps):
            self._net.run_backward(node, compute, on_layer_done)

    def _replay_backward(self, program: _Program, on_layer_done: OnLayerDone | None) -> None:
        values, capture, gradients = self._values, program.capture, self._net.gradients
        assert values is not None
        for blob, slot, shape, strides in capture.gradients:
            is_alone = gradients.is_alone(blob)
            diff = gradients.take(blob)
            if not is_alone or diff.shape != shape or diff.stride() != strides:
                diff = torch.empty_strided(shape, strides, dtype=diff.dtype, device=diff.device).copy_(diff)
            values[slot] = diff
            del diff
        steps = zip(program.backward, capture.written, strict=True)

        def replay(_: Node) -> None:
            function, written = next(steps)
            function(values)
            for parameter in written:
                parameter.fresh = False

        self._run_backward(replay, on_layer_done)
        for blob, slot in capture.handed_on:
            handed_on = values[slot]
            assert handed_on is not None
            gradients.store(blob, handed_on)
        self._values = None

    def _capture_backward(self, recorder: Recorder, on_layer_done: OnLayerDone | None) -> None:
        capture, gradients = self._capture, self._net.gradients
        for blob in self._tops:
            if blob.diff is not None:
                if not gradients.is_alone(blob):
                    recorder.why_not = recorder.why_not or f"another gradient lies in the memory of '{blob.name}'"
                slot = recorder.slot_for(blob.diff)
                capture.gradients.append((blob, slot, blob.diff.shape, blob.diff.stride()))

        def record(node: Node) -> None:
            with recorder.noting(capture.backward):
                self._net.compute_backward(node)
            capture.written.append([parameter for parameter in node.owned if not parameter.fresh])

        self._run_backward(record, on_layer_done)
        capture.handed_on = [(blob, recorder.slot_for(blob.diff)) for blob in self._inputs if blob.diff is not None]
        self._recorder = None
        self._judge(capture, recorder)

    def _judge(self, capture: _Capture, recorder: Recorder) -> None:
        """Make a program of a capture that is the same as the one before it; give up after some that were not."""
        variant = self._variant
        assert variant is not None
        earlier, variant.capture = variant.capture, None
        if recorder.why_not:
            variant.why_not = recorder.why_not
        elif capture == earlier:
            variant.program = _compile(capture, recorder.count)
        elif variant.attempts == _ATTEMPTS:
            variant.why_not = f"the calls of {_ATTEMPTS} passes differ"
        else:
            variant.capture = capture


def _compile(capture: _Capture, count: int) -> _Program:
    exposed = {slot for blobs in capture.exposed for _, slot in blobs}
    kept = exposed | {slot for _, slot in capture.handed_on}
    functions = compile_calls([*capture.forward, *capture.backward], kept)
    read = {slot for calls in capture.backward for call in calls for slot in call.read}
    read |= {slot for _, slot in capture.handed_on}
    spent = [slot for slot in exposed if slot not in read]
    steps = len(capture.forward)
    return _Program(capture, count, spent, functions[:steps], functions[steps:])
