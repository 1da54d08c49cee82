"""Records when the parts of a module, and an optimizer, compute: by hooks that are there while it records.

What has no parts of its own is a span of the forward pass. A span of the backward pass ends when a parameter's gradient
is ready, and began when the one before it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mgcaffe.pytorch.autograd_graph import find_tensors
from mgcaffe.tools.timeline.device_clock import DeviceClock
from mgcaffe.tools.timeline.file import Span


class ModuleSpans:
    """The spans of the passes of a module.

    Args:
        model: the module that is called in training.
        module: what computes inside it.
        optimizer: whose steps are recorded; None: none are.
        clock: by which time is taken.
    """

    def __init__(
        self, model: nn.Module, module: nn.Module, optimizer: torch.optim.Optimizer | None, clock: DeviceClock
    ) -> None:
        self._model = model
        self._module = module
        self._optimizer = optimizer
        self._clock = clock
        self._handles: list[Any] = []
        self._marks: list[tuple[str, str, Any, Any]] = []
        self._open: list[Any] = []
        self._last: Any = None
        self._awaits_backward = False

    def start(self) -> None:
        """Begin to record."""
        self._clock.start()
        keep = self._handles.append
        keep(self._model.register_forward_pre_hook(self._begin))
        for name, part in self._parts():
            keep(part.register_forward_pre_hook(self._begin))
            keep(part.register_forward_hook(self._forward_ender(name)))
        keep(self._model.register_forward_hook(self._forward_ender(type(self._module).__name__)))
        keep(self._model.register_forward_hook(self._watch_output))
        for name, parameter in self._module.named_parameters():
            if parameter.requires_grad:
                keep(parameter.register_post_accumulate_grad_hook(self._gradient_ender(name)))
        if self._optimizer is not None:
            keep(self._optimizer.register_step_pre_hook(self._begin))
            keep(self._optimizer.register_step_post_hook(self._end_update))

    def stop(self) -> None:
        """End that."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._open = [], []

    def take(self) -> list[Span]:
        """Return what was recorded since this was called before; on a GPU, wait for it."""
        self._clock.synchronize()
        marks, self._marks = self._marks, []
        seconds = self._clock.seconds
        return [Span(name, category, seconds(begin), seconds(end)) for name, category, begin, end in marks]

    def _parts(self) -> list[tuple[str, nn.Module]]:
        """Return what has no parts of its own; none inside what was compiled or scripted, which hooks would change."""
        found: list[tuple[str, nn.Module]] = []

        def visit(name: str, part: nn.Module) -> None:
            if isinstance(part, torch.jit.ScriptModule) or hasattr(part, "_orig_mod"):
                return
            inside = list(part.named_children())
            if not inside and name:
                found.append((name, part))
            for own, child in inside:
                visit(f"{name}.{own}" if name else own, child)

        visit("", self._module)
        return found

    def _begin(self, *_: Any) -> None:
        self._open.append(self._clock.mark())

    def _forward_ender(self, name: str) -> Callable[..., None]:
        def end(*_: Any) -> None:
            self._end(name, "forward")

        return end

    def _end_update(self, *_: Any) -> None:
        self._end("update", "update")

    def _end(self, name: str, category: str) -> None:
        if self._open:  # it is empty if what ends began before the recording
            self._marks.append((name, category, self._open.pop(), self._clock.mark()))

    def _watch_output(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._awaits_backward = True
        if torch.is_grad_enabled():
            for tensor in find_tensors(output):
                tensor.register_hook(self._reach_output)

    def _reach_output(self, _gradient: torch.Tensor) -> None:
        if self._awaits_backward:
            self._awaits_backward = False
            self._last = self._clock.mark()

    def _gradient_ender(self, name: str) -> Callable[[torch.Tensor], None]:
        def end(_: torch.Tensor) -> None:
            now = self._clock.mark()
            self._marks.append((name, "backward", self._last if self._last is not None else now, now))
            self._last = now

        return end
