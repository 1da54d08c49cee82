"""`MergedGradientParallel`: data parallelism for any module, with merged groups of gradients that are planned.

It stands where `torch.nn.parallel.DistributedDataParallel` does, and behaves as that does: parameters and buffers come
from rank 0 at the start, and `backward()` returns with gradients averaged over the ranks. docs/pytorch.md lists what is
the same, what is not, and what is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch._compile import _disable_dynamo
from torch.distributed.algorithms.join import Join, Joinable

from mgcaffe.comm import Communicator, Plan, Segment
from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.errors import CommError
from mgcaffe.pytorch.agreement import broadcast_tensors, compare_modules, describe
from mgcaffe.pytorch.exchange import OnGroup
from mgcaffe.pytorch.failures import naming_causes, note_failures_for
from mgcaffe.pytorch.gradient_flow import GradientFlow, PassOptions
from mgcaffe.pytorch.joining import ShadowHook
from mgcaffe.pytorch.options import ExchangeOptions
from mgcaffe.pytorch.parameters import averaged_parameters, excluded_names
from mgcaffe.pytorch.ranks import find_communicator, shared_group
from mgcaffe.solvers.events import Event, Noted, PlanChosen, Warned

_log = logging.getLogger("mgcaffe.pytorch")


class MergedGradientParallel(nn.Module, Joinable):
    """Trains a module on several ranks, each with its own batches; a collective call of all of them.

    Args:
        module: the module, on the device that it is trained on.
        process_group: the ranks: a process group of torch.distributed, or a communicator of ours. None: the default
            process group if torch.distributed is initialized, else all ranks of the job if mpirun or torchrun started
            this process, else this process alone.
        schedule: how gradients are merged: `auto` (tries the best plans), `single`, `wfbp`, `threshold`, `mgwfbp`,
            `optimal`.
        broadcast_buffers: whether buffers are those of rank 0 in every forward pass after one with gradients.
        init_sync: whether ranks compare their modules and take over rank 0's values at the start.
        find_unused_parameters: whether the graph is searched, after each forward pass, for parameters that the result
            does not depend on; these, and parameters whose gradients do not come, count as zeros.
        static_graph: whether every iteration uses the same parameters, equally often; the first one shows it. Allows
            reentrant checkpointing of a part more than once.
        exclude: patterns (fnmatch) of names of parameters and buffers that are left alone.
        own_group: patterns of names of parameters that are reduced apart from all others, one group each.
        on_group: gets lists of parameters as soon as their gradients are means, while others are on their way; at the
            end of the backward pass, on its thread. `StepOnGroups` makes the optimizer's step there.
        listener: gets the events (`mgcaffe.solvers.events`), on every rank; None: rank 0 logs them.
        plan_file, bucket_mb, allreduce_type, hierarchical, cost_file, deterministic, calibration_iterations,
            transport, emulate_link: as in `ExchangeOptions`.

    Attributes:
        module: the module.
        require_backward_grad_sync: whether the next forward pass leads to averaged gradients (`no_sync`).

    Raises:
        UsageError: an option with a wrong value, or a module that cannot be averaged.
        CommError: the ranks cannot reach each other.
        RankDisagreement: the modules of the ranks differ.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        process_group: dist.ProcessGroup | Communicator | None = None,
        schedule: str = "auto",
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        exclude: str | Sequence[str] = (),
        own_group: str | Sequence[str] = (),
        on_group: OnGroup | None = None,
        listener: Callable[[Event], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self._on_group = on_group
        self.require_backward_grad_sync = True
        self._options = ExchangeOptions.of(schedule, options)
        self._exclude = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        self._own_group = (own_group,) if isinstance(own_group, str) else tuple(own_group)
        self._listener = listener
        self._listeners: list[Callable[[Event], None]] = []
        self._process_group = process_group
        self._prepare()
        self._connect(compare=init_sync)
        if init_sync:
            self._take_state(0)

    def _prepare(self) -> None:
        """Find the parameters and buffers that ranks have in common."""
        self._excluded = excluded_names(self.module, self._exclude)
        self._averaged = averaged_parameters(self.module, self._excluded, self._own_group)
        self._buffer_owners = [
            (part._buffers, name)
            for prefix, part in self.module.named_modules()
            for name in part._buffers
            if (f"{prefix}.{name}" if prefix else name) not in self._excluded
        ]
        self._broadcasts_next = True
        self._communicator: Communicator | None = None
        self._connected: GradientFlow | None = None

    def _connect(self, *, compare: bool) -> GradientFlow:
        self._communicator = find_communicator(self._process_group)
        note_failures_for(self._communicator)
        if compare:
            compare_modules(self._communicator, describe(self.module, self._excluded))
        passes = PassOptions(self.find_unused_parameters, self.static_graph)
        self._connected = GradientFlow(self._averaged, self._communicator, passes, self._options, self._emit)
        self._connected.on_group = self._on_group
        return self._connected

    @property
    def _flow(self) -> GradientFlow:
        return self._connected or self._connect(compare=True)  # that was copied or unpickled

    @property
    def _ranks(self) -> Communicator:
        if self._communicator is None:
            self._connect(compare=True)
        assert self._communicator is not None
        return self._communicator

    # -- what users call -----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Return what the module returns.

        Raises:
            CommError: parameters got no gradient in the backward pass before.
            UsageError: the module was moved or converted after it was wrapped.
        """
        self._before_forward()
        return self._after_forward(self.module(*inputs, **keywords))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients as they are on each rank, to be added to; the forward pass has to be inside as well."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @property
    def on_group(self) -> OnGroup | None:
        """What gets parameters as soon as their gradients are means; may be set between two iterations."""
        return self._on_group

    @on_group.setter
    def on_group(self, function: OnGroup | None) -> None:
        self._on_group = self._flow.on_group = function

    @property
    def plan(self) -> Plan | None:
        """The plan of the module's gradients, None where none was found yet; of several buffers, the first one's."""
        return next(iter(self._flow.plans), None)

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file that `plan_file` reads, on rank 0; of several buffers, the first one's.

        Raises:
            CommError: no plan was found yet; there is none on one rank.
            OSError: the file cannot be written.
        """
        text = next(iter(self._flow.plan_texts()), None)
        if text is None:
            raise CommError("no plan was found yet", hint="it is, after some tens of iterations on several ranks")
        if self._ranks.rank == 0:
            Path(path).write_text(text, encoding="utf-8")

    @property
    def reports(self) -> list[CommReport]:
        """The communication of the last backward pass, a report for each buffer of gradients."""
        return self._flow.reports

    @property
    def segments(self) -> list[list[Segment]]:
        """The parameters of each buffer of gradients, in their places; none before the first backward pass."""
        return self._flow.segments

    def duplicate_ranks(self) -> Communicator:
        """Return a communicator of one's own among the ranks; a collective call."""
        return self._ranks.duplicate()

    def add_listener(self, listener: Callable[[Event], None]) -> None:
        """Have a function get the events besides `listener`, from now on."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the background threads; gradients cannot be averaged afterwards."""
        if self._connected is not None:
            self._connected.close()
        if self._communicator is not None:
            self._communicator.close()

    # -- state: the module's own -----------------------------------------------------------------------------

    def state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the module's own state, under its own names."""
        return self.module.state_dict(*arguments, **keywords)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Let names without `module.` be found, as `state_dict` gives them, inside other modules as well."""
        own = f"{prefix}module."
        stored = f"{own}module." if hasattr(self.module, "module") else own
        if not any(name.startswith(stored) for name in state_dict):
            for name in [name for name in state_dict if name.startswith(prefix)]:
                state_dict[own + name[len(prefix) :]] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __getstate__(self) -> dict[str, Any]:
        if self._process_group is not None:
            raise pickle.PicklingError(
                "MergedGradientParallel can be copied and pickled only where its ranks are those of the default"
                " process group (process_group=None); copy its module instead"
            )
        state = self.__dict__.copy()
        for name in ("_excluded", "_averaged", "_buffer_owners", "_communicator", "_connected"):
            del state[name]
        return state | {"_listener": None, "_on_group": None, "_listeners": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._prepare()

    # -- uneven inputs ---------------------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Return the context in which ranks may have unequal numbers of batches; arguments as for DDP.

        Raises:
            CommError: the ranks share no process group of torch.distributed.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **keywords: Any) -> ShadowHook:
        """Return what a rank does that has no inputs left."""
        self._flow.divides_by_all = keywords.get("divide_by_initial_world_size", True)
        return ShadowHook(self)

    @property
    def join_device(self) -> torch.device:
        """The device on which ranks that still have inputs are counted."""
        return self._averaged[0].parameter.device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        """The process group in which they are counted."""
        return shared_group(self._process_group)

    def shadow_iteration(self) -> None:
        """Take part in an iteration of the ranks that still have inputs."""
        if self._will_broadcast():
            self._broadcast_buffers(self._highest_rank(False))
        averages = self._agree_on_averaging(False)
        if averages:
            self._flow.average_zeros()
        self._broadcasts_next = averages

    def take_final_state(self, is_last: bool) -> None:
        """Take over the values of the rank that had inputs for longest."""
        self._take_state(self._highest_rank(is_last))
        self._flow.alive = self._ranks.size
        self._flow.divides_by_all = True

    def _highest_rank(self, counts: bool) -> int:
        value = numpy.array([self._ranks.rank if counts else -1])
        self._ranks.allreduce(value, "max")
        return int(value[0])

    def _agree_on_averaging(self, has_inputs: bool) -> bool:
        """Count the ranks with inputs; return whether their backward pass averages gradients."""
        values = numpy.array([int(has_inputs and self.require_backward_grad_sync), int(has_inputs)])
        self._ranks.allreduce(values)
        self._flow.alive = int(values[1])
        return bool(values[0])

    # -- forward ---------------------------------------------------------------------------------------------

    @_disable_dynamo
    def _before_forward(self) -> None:
        if torch.is_grad_enabled() and self.require_backward_grad_sync:
            self._flow.check()
        Join.notify_join_context(self)
        with naming_causes(self._ranks):
            if self._will_broadcast():
                self._broadcast_buffers(self._highest_rank(True) if self._join_config.enable else 0)
            if self._join_config.enable:
                self._agree_on_averaging(True)

    @_disable_dynamo
    def _after_forward(self, output: Any) -> Any:
        self._broadcasts_next = torch.is_grad_enabled() and self.require_backward_grad_sync
        if torch.is_grad_enabled():
            self._flow.expect_pass(output, averages=self.require_backward_grad_sync)
        return output

    def _will_broadcast(self) -> bool:
        return self.broadcast_buffers and self._broadcasts_next and self._ranks.size > 1

    def _broadcast_buffers(self, root: int) -> None:
        buffers = [owner[name] for owner, name in self._buffer_owners]
        broadcast_tensors(self._ranks, [each for each in buffers if each is not None], root)

    def _take_state(self, root: int) -> None:
        """Take over a rank's parameters, and its buffers where they are to be equal."""
        values = [each for name, each in self.module.named_parameters() if name not in self._excluded]
        broadcast_tensors(self._ranks, values, root)
        if self.broadcast_buffers:
            self._broadcast_buffers(root)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
        if self._listener is not None:
            self._listener(event)
        elif self._ranks.rank > 0:
            return
        elif isinstance(event, Warned):
            _log.warning("%s", event.text)
        elif isinstance(event, Noted):
            _log.info("%s", event.text)
        elif isinstance(event, PlanChosen):
            groups = len(event.plan.groups)
            _log.info("gradients are sent by %s: %d group%s", event.plan.schedule, groups, "s" if groups > 1 else "")
