"""`MergedGradientParallel`: data parallelism for any module, with merged groups of gradients that are planned.

It stands where `torch.nn.parallel.DistributedDataParallel` does, and behaves as that does: parameters and buffers come
from rank 0 at the start, and `backward()` returns with gradients averaged over the ranks. docs/pytorch.md lists what is
the same, what is not, and what is refused.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._compile import _disable_dynamo
from torch.distributed.algorithms.join import Join, Joinable
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from mgcaffe.comm import Communicator, Plan, Segment
from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.errors import CommError
from mgcaffe.errors.whole_files import overwrite
from mgcaffe.pytorch.agreement import compare_arguments
from mgcaffe.pytorch.event_log import log_event
from mgcaffe.pytorch.exchange import OnGroup
from mgcaffe.pytorch.failures import PEER_TIMEOUT_S, naming_causes, note_exception, note_pass
from mgcaffe.pytorch.gradient_flow import GradientFlow, PassOptions
from mgcaffe.pytorch.joining import UnevenInputs, agree_on_averaging, highest_rank
from mgcaffe.pytorch.module_state import ModuleState
from mgcaffe.pytorch.options import ExchangeOptions, checked_timeout
from mgcaffe.pytorch.ranks import find_communicator
from mgcaffe.solvers.events import Event


class MergedGradientParallel(nn.Module, UnevenInputs):
    """Trains a module on several ranks, each with its own batches; a collective call of all of them.

    Args:
        module: the module, on the device that it is trained on.
        process_group: the ranks: a process group of torch.distributed, or a communicator of ours. None: the default
            process group if torch.distributed is initialized, else all ranks of the job if mpirun or torchrun started
            this process, else this process alone.
        schedule: how gradients are merged: `auto` (tries the best plans), `single`, `wfbp`, `threshold`, `mgwfbp`,
            `optimal`.
        broadcast_buffers: whether buffers are those of rank 0 in every forward pass after one with gradients. False:
            also not at the start.
        forward_sync_buffers: the same, but buffers are rank 0's at the start in any case.
        init_sync: whether ranks compare their modules and take over rank 0's values at the start.
        find_unused_parameters: whether the graph is searched, after each forward pass, for parameters that the result
            does not depend on; these, and parameters whose gradients do not come, count as zeros.
        static_graph: whether every iteration uses the same parameters, equally often; the first one shows it. Allows
            reentrant checkpointing of a part more than once.
        exclude: patterns (fnmatch) of names of parameters and buffers that are left alone.
        own_group: patterns of names of parameters that are reduced apart from all others, one group each.
        on_group: gets lists of parameters as soon as their gradients are means, while others are on their way; at the
            end of the backward pass, on its thread. With them come those that no rank used and that have a gradient,
            as an optimizer's step would see them. `StepOnGroups` makes that step there.
        listener: gets the events (`mgcaffe.solvers.events`), on every rank; None: rank 0 logs them.
        peer_timeout: after how many seconds without a sign of life a rank counts as dead, where another one waits for
            it; 0: never. A rank that computes for long gives signs of life.
        plan_file, bucket_mb, allreduce_type, hierarchical, cost_file, deterministic, calibration_iterations,
            transport, emulate_link: as in `ExchangeOptions`.

    Attributes:
        module: the module.
        require_backward_grad_sync: whether the next forward pass leads to averaged gradients (`no_sync`).

    Raises:
        UsageError: an option with a wrong value, or a module that cannot be averaged.
        CommError: the ranks cannot reach each other.
        RankDisagreement: the modules of the ranks, or the arguments, differ.
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
        forward_sync_buffers: bool | None = None,
        peer_timeout: float = PEER_TIMEOUT_S,
        **options: Any,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self.module = module
        self.broadcast_buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self._forward_sync_buffers = forward_sync_buffers
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self._on_group = on_group
        self.require_backward_grad_sync = True
        self._options = ExchangeOptions.of(schedule, options)
        self._exclude = (exclude,) if isinstance(exclude, str) else tuple(sorted(exclude))
        self._own_group = (own_group,) if isinstance(own_group, str) else tuple(own_group)
        self._listener = listener
        self._listeners: list[Callable[[Event], None]] = []
        self._peer_timeout_s = checked_timeout(peer_timeout)
        self._process_group = process_group
        self._prepare()
        self._connect(compare=init_sync)
        if init_sync:
            self._state.take(self._ranks, 0, buffers=broadcast_buffers or forward_sync_buffers is not None)

    def _prepare(self) -> None:
        """Find the parameters and buffers that ranks have in common."""
        self._state = ModuleState(self.module, self._exclude, self._own_group)
        self._broadcasts_next = True
        self._repeats = False
        self._communicator: Communicator | None = None
        self._connected: GradientFlow | None = None

    def _connect(self, *, compare: bool) -> GradientFlow:
        self._communicator = find_communicator(self._process_group, self._peer_timeout_s)
        arguments = {
            "forward_sync_buffers": self._forward_sync_buffers,
            "broadcast_buffers": self.broadcast_buffers,
            "init_sync": compare,
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "exclude": self._exclude,
            "own_group": self._own_group,
        }
        compare_arguments(self._communicator, type(self).__name__, arguments | self._options.compared())
        if compare:
            self._state.compare(self._communicator)
        passes = PassOptions(self.find_unused_parameters, self.static_graph)
        self._connected = GradientFlow(self._state, self._communicator, passes, self._options, self._emit)
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
            UsageError: the module was moved or converted after it was wrapped (docs/pytorch.md: where it may not be).
        """
        if torch.compiler.is_compiling():  # which cannot go on behind an exception
            _before_forward(self)
            return _after_forward(self, self.module(*inputs, **keywords))
        self._before_forward()
        try:
            output = self.module(*inputs, **keywords)
        except BaseException as error:
            # The others broadcast once for this pass and for one in its place.
            self._broadcasts_next = self._repeats = torch.is_grad_enabled() and self._broadcasts_next
            if torch.is_grad_enabled():
                note_exception(self._ranks, error, "forward")
            raise
        return self._after_forward(output)

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
            overwrite(path, [text.encode()])

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

    def remove_listener(self, listener: Callable[[Event], None]) -> None:
        """End what `add_listener` began; harmless when repeated."""
        self._listeners = [each for each in self._listeners if each != listener]

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

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **keywords: Any) -> Any:
        """Load the module's own state, as `state_dict` gives it, or that of DistributedDataParallel."""
        if isinstance(state_dict, Mapping) and self._is_prefixed(state_dict, ""):
            own = OrderedDict(state_dict)
            if versions := getattr(state_dict, "_metadata", None):  # of each part's state, by the part's name
                own._metadata = versions.copy()  # type: ignore[attr-defined]
            consume_prefix_in_state_dict_if_present(own, "module.")
            state_dict = own
        return self.module.load_state_dict(state_dict, *arguments, **keywords)

    def _is_prefixed(self, state_dict: Mapping[str, Any], prefix: str) -> bool:
        """Return whether names have `module.` before the module's own."""
        own = f"{prefix}module."
        stored = f"{own}module." if hasattr(self.module, "module") else own
        return any(name.startswith(stored) for name in state_dict)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Let names without `module.` be found, as `state_dict` gives them, inside other modules as well."""
        own = f"{prefix}module."
        if not self._is_prefixed(state_dict, prefix):
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
        for name in ("_state", "_communicator", "_connected"):
            del state[name]
        return state | {"_listener": None, "_on_group": None, "_listeners": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._prepare()

    # -- forward ---------------------------------------------------------------------------------------------

    def _before_forward(self) -> None:
        joins = self._join_config.enable
        if torch.is_grad_enabled():
            note_pass(self._ranks)
            if self.require_backward_grad_sync:
                self._flow.check()
        if joins:
            Join.notify_join_context(self)
        if not (joins or self._will_broadcast()):
            return
        with naming_causes(self._ranks):
            if self._will_broadcast():
                root = highest_rank(self._ranks, True) if joins else 0
                self._state.broadcast_buffers(self._ranks, root)
            if joins:
                sync = self.require_backward_grad_sync and torch.is_grad_enabled()
                _, self._flow.alive = agree_on_averaging(self._ranks, has_inputs=True, averages=sync)

    def _after_forward(self, output: Any) -> Any:
        learns = torch.is_grad_enabled()
        averages = learns and self.require_backward_grad_sync
        if self._broadcasts_next != averages:  # to set an attribute of a module takes time
            self._broadcasts_next = averages
        if self._repeats:
            self._repeats = False
        if learns:
            self._flow.expect_pass(output, averages=averages)
        return output

    def _will_broadcast(self) -> bool:
        if self._repeats and torch.is_grad_enabled():
            return False
        return self.broadcast_buffers and self._broadcasts_next and self._ranks.size > 1

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
        if self._listener is not None:
            self._listener(event)
        elif self._ranks.rank == 0:
            log_event(event)


# For compiled code, which must not trace into them. Elsewhere each wrapper would cost as much as what it wraps.
_before_forward = _disable_dynamo(MergedGradientParallel._before_forward)
_after_forward = _disable_dynamo(MergedGradientParallel._after_forward)
