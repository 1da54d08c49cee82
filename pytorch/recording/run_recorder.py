"""Writes the JSON log and the timeline of a training loop, which `engine report` makes a page of."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm import CommReport, Communicator
from mgcaffe.comm.transport.process_group import ProcessGroupCommunicator
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.merged_gradient_parallel import MergedGradientParallel
from mgcaffe.pytorch.recording.bucket_recorder import BucketRecorder
from mgcaffe.pytorch.recording.communication import Communication, MergedCommunication
from mgcaffe.pytorch.recording.module_spans import ModuleSpans
from mgcaffe.pytorch.recording.run_timeline import RunTimeline
from mgcaffe.solvers.events import Event, Finished, IterationDone, PlanChosen, Started
from mgcaffe.solvers.monitor.smoothing import SmoothedLoss
from mgcaffe.tools.listeners.json_log import JsonLog
from mgcaffe.tools.timeline.device_clock import DeviceClock
from mgcaffe.tools.timeline.file import check_writable

_SMOOTHED = 20


class RunRecorder:
    """Records a training loop; a collective call of all ranks.

        with RunRecorder(model, "run.json", timeline="run.timeline.json", optimizer=updates) as run:
            for inputs, labels in batches:
                ...
                run.iteration_done(loss)

    Args:
        model: a `MergedGradientParallel`, or a DistributedDataParallel, whose buckets are then recorded by a
            communication hook (`record_buckets`).
        path: the JSON log; rank 0 appends to it.
        timeline: the file of the timeline of some iterations, written by rank 0; None: there is none.
        timeline_iterations: (first, end): which; None: eight, from some iterations after the plan is found on.
        optimizer: whose learning rate and steps are recorded.
        name: of the run; None: the module's class.
        first_iteration, iterations: where the loop begins, and where it is to end, if that is known.

    Raises:
        UsageError: another kind of module, or iterations that are none.
        EngineError: with exit code 73, on rank 0: a file cannot be written.
        CommError: the ranks cannot reach each other.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        *,
        timeline: str | os.PathLike[str] | None = None,
        timeline_iterations: tuple[int, int] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        name: str | None = None,
        first_iteration: int = 0,
        iterations: int = 0,
    ) -> None:
        if not isinstance(model, MergedGradientParallel | DistributedDataParallel):
            raise UsageError(
                "RunRecorder needs a MergedGradientParallel or a DistributedDataParallel, and this is of type"
                f" {type(model).__name__}"
            )
        if timeline_iterations is not None and not 0 <= timeline_iterations[0] < timeline_iterations[1]:
            raise UsageError(
                f"timeline_iterations={timeline_iterations} are none", hint="give (first, end), such as (20, 28)"
            )
        self._model: MergedGradientParallel | DistributedDataParallel = model
        self._optimizer = optimizer
        self._ranks: Communicator
        if isinstance(model, DistributedDataParallel):
            self._ranks = ProcessGroupCommunicator(model.process_group)
        else:
            self._ranks = model.duplicate_ranks()
        self._iteration = first_iteration
        module = model.module
        shown = name if name is not None else type(module).__name__
        if timeline is not None and self._ranks.rank == 0:
            check_writable(os.fspath(timeline))
        self._log = JsonLog(os.fspath(path)) if self._ranks.rank == 0 else None
        self._communication: Communication
        if isinstance(model, DistributedDataParallel):
            self._communication = BucketRecorder(model)
        else:
            self._communication = MergedCommunication(model, self._ranks.size)
        self._timeline: RunTimeline | None = None
        if timeline is not None:
            clock = DeviceClock(next(module.parameters()).device)
            spans = ModuleSpans(model, module, optimizer, clock)
            self._timeline = RunTimeline(
                os.fspath(timeline), shown, self._ranks, spans, self._communication, timeline_iterations
            )
        self._smoothed = SmoothedLoss(_SMOOTHED)
        self._samples = self._images = 0
        self._reports: list[CommReport] = []
        self._forward_began: float | None = None
        self._hidden = self._exposed = 0.0
        self._plan_hash = ""
        self._is_closed = False
        parameters = sum(each.numel() for each in module.parameters() if each.requires_grad)
        solver = type(optimizer).__name__ if optimizer is not None else ""
        ranks = self._ranks.size
        self._emit(Started(shown, solver, "", first_iteration, iterations, 0, parameters, ranks, 0, precision=""))
        self._follow_plans()
        self._handle = model.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        self._started = self._began = time.perf_counter()
        if self._timeline is not None:
            self._timeline.begin(self._iteration, self._began)

    def iteration_done(self, loss: torch.Tensor | float | None = None, *, samples: int | None = None) -> None:
        """Take note that an iteration has ended, after the optimizer's step; called on every rank.

        Args:
            loss: of this rank; rank 0's is written, for which a GPU is waited for.
            samples: how many samples this rank has computed; None: the first dimension of the first tensor that the
                module was called with, in every forward pass.
        """
        now = time.perf_counter()
        reports = [*self._reports, *self._communication.take_reports()]
        self._reports = []
        hidden, exposed = sum(each.hidden_s for each in reports), sum(each.exposed_s for each in reports)
        self._hidden, self._exposed = self._hidden + hidden, self._exposed + exposed
        images = (self._samples if samples is None else samples) * self._ranks.size
        self._images += images
        if self._log is not None:
            if isinstance(self._communication, BucketRecorder) and reports:
                self._note_buckets(reports[-1].plan)
            value = math.nan if loss is None else float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
            waited = (self._forward_began or self._began) - self._began
            self._emit(
                IterationDone(
                    self._iteration, value, self._smoothed.add(value), self._rate(), images, now - self._began, waited,
                    hidden, exposed,
                )
            )  # fmt: skip
        if self._timeline is not None:
            if self._forward_began is not None:
                self._timeline.waited(self._began, self._forward_began)
            self._timeline.end(self._iteration, now, reports)
            if self._timeline.is_over and not self._is_joined():
                self._timeline.write()
        self._iteration += 1
        self._samples, self._forward_began = 0, None
        self._began = time.perf_counter()
        if self._timeline is not None:
            self._timeline.begin(self._iteration, self._began)

    def close(self) -> None:
        """End the recording; called on every rank. The context manager does, unless an exception has ended the loop."""
        if self._is_closed:
            return
        if self._timeline is not None and not self._timeline.is_written:
            self._timeline.stop()
            self._timeline.write()
        seconds = time.perf_counter() - self._started
        done = (self._iteration,) * self._ranks.size
        self._emit(
            Finished(
                self._iteration, False, seconds, self._images, self._hidden, self._exposed, None, training_s=seconds,
                iterations=done,
            )
        )  # fmt: skip
        self._end()

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._end()  # without the other ranks, which may wait elsewhere

    # -- the rest --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._handle.remove()
        if isinstance(self._model, MergedGradientParallel):
            self._model.remove_listener(self._take_event)
        if self._timeline is not None:
            self._timeline.stop()
        if self._log is not None:
            self._log.close()
        self._ranks.close()

    def _follow_plans(self) -> None:
        """Write the plans that are found, and the one that was found before."""
        if self._log is None or not isinstance(self._model, MergedGradientParallel):
            return
        plan = self._model.plan
        if plan is not None:
            self._emit(PlanChosen(self._iteration, plan.schedule, plan, None))
        self._model.add_listener(self._take_event)

    def _take_event(self, event: Event) -> None:
        if isinstance(event, PlanChosen):
            first = self._iteration + 1 if event.iteration else self._iteration
            event = replace(event, iteration=first)
        self._emit(event)

    def _note_buckets(self, plan: Any) -> None:
        """Write the buckets as a plan, when others were made."""
        if plan is not None and plan.hash != self._plan_hash:
            self._plan_hash = plan.hash
            self._emit(PlanChosen(self._iteration, plan.schedule, plan, None))

    def _emit(self, event: Event) -> None:
        if self._log is not None and not self._is_closed:
            self._log.on_event(event)

    def _before_forward(self, _module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            return  # a test between two iterations
        if self._forward_began is None:
            self._forward_began = time.perf_counter()
        self._reports += self._communication.take_reports()  # of an earlier pass of this iteration
        for value in (*arguments, *keywords.values()):
            if isinstance(value, torch.Tensor) and value.dim():
                self._samples += len(value)
                return

    def _rate(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"]) if self._optimizer is not None else math.nan

    def _is_joined(self) -> bool:
        """Whether ranks may have different numbers of iterations, and meet at the end alone."""
        return bool(self._model._join_config.enable)
