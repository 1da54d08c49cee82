"""The learning-rate policies of a SolverParameter: which schedule each makes of which fields (`rate_schedules`).

A warm-up (`warm_up`) comes before any policy, and `min_lr` bounds all of them. `plateau` alone has a state: its
schedule counts the steps that it has made (`plateau`), which follow from the losses so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source, has_field, nearest
from mgcaffe.solvers.rates import rate_schedules
from mgcaffe.solvers.rates.plateau import Plateau, PlateauState
from mgcaffe.solvers.rates.rate_schedules import RateSchedule
from mgcaffe.solvers.rates.warm_up import WarmUp, check_warm_up
from mgcaffe.solvers.source import locate


def _accept(param: SolverParameter, source: Source | None) -> None:
    """Find nothing to refuse."""


def _check_poly(param: SolverParameter, source: Source | None) -> None:
    if not param.HasField("max_iter"):
        raise SolverError(
            "lr_policy 'poly' needs max_iter, at which the rate ends", location=locate(source, "lr_policy")
        )
    if param.min_lr > param.base_lr:
        raise SolverError(
            f"min_lr is {param.min_lr:g}, above base_lr {param.base_lr:g}; with lr_policy 'poly' the rate goes from"
            " base_lr to min_lr",
            location=locate(source, "min_lr"),
        )


def _check_windows(param: SolverParameter, source: Source | None) -> None:
    if not param.plateau_winsize:
        raise SolverError(
            "lr_policy 'plateau' needs plateau_winsize: for each step of the rate, the iterations to wait for a lower"
            " loss",
            location=locate(source, "lr_policy"),
        )
    for index, size in enumerate(param.plateau_winsize):
        if size <= 0:
            raise SolverError(
                f"plateau_winsize is {size} and must be above 0", location=locate(source, "plateau_winsize", index)
            )


def _check_stages(param: SolverParameter, source: Source | None) -> None:
    if not param.stagelr or len(param.stagelr) != len(param.stageiter):
        raise SolverError(
            f"lr_policy 'multifixed' needs one stageiter for each stagelr; the solver has {len(param.stagelr)} stagelr"
            f" and {len(param.stageiter)} stageiter",
            location=locate(source, "stagelr" if param.stagelr else "lr_policy"),
        )
    for index, rate in enumerate(param.stagelr):
        if rate < 0:
            raise SolverError(
                f"stagelr is {rate:g} and must not be negative", location=locate(source, "stagelr", index)
            )
    for index, (before, last) in enumerate(pairwise(param.stageiter), start=1):
        if last <= before:
            raise SolverError(
                f"stageiter {last} comes after {before}: the stages' last iterations must rise",
                location=locate(source, "stageiter", index),
            )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A learning-rate policy: its schedule, and what it asks of the solver's fields.

    Attributes:
        schedule: makes the schedule out of a SolverParameter message. That of `plateau` counts steps, not iterations.
        reads: all fields that the schedule depends on; an unset one counts as 0, with a warning.
        above_zero, not_negative: those of them that have to be; one that is above 0 has to be given.
        check: refuses what ranges cannot say, such as lists that have to be given and to rise.
    """

    schedule: Callable[[SolverParameter], RateSchedule]
    reads: tuple[str, ...]
    above_zero: tuple[str, ...] = ()
    not_negative: tuple[str, ...] = ()
    check: Callable[[SolverParameter, Source | None], None] = _accept


POLICIES: dict[str, Policy] = {
    "fixed": Policy(schedule=lambda param: rate_schedules.fixed(param.base_lr), reads=("base_lr",)),
    "step": Policy(
        schedule=lambda param: rate_schedules.step(param.base_lr, param.gamma, param.stepsize),
        reads=("base_lr", "gamma", "stepsize"),
        above_zero=("stepsize",),
        not_negative=("gamma",),
    ),
    "exp": Policy(
        schedule=lambda param: rate_schedules.exp(param.base_lr, param.gamma),
        reads=("base_lr", "gamma"),
        not_negative=("gamma",),
    ),
    "inv": Policy(
        schedule=lambda param: rate_schedules.inv(param.base_lr, param.gamma, param.power),
        reads=("base_lr", "gamma", "power"),
        not_negative=("gamma",),
    ),
    "multistep": Policy(
        schedule=lambda param: rate_schedules.multistep(param.base_lr, param.gamma, param.stepvalue),
        reads=("base_lr", "gamma", "stepvalue"),
        not_negative=("gamma",),
    ),
    "poly": Policy(
        schedule=lambda param: rate_schedules.poly(param.base_lr, param.min_lr, param.power, param.max_iter),
        reads=("base_lr", "power", "max_iter"),
        not_negative=("max_iter",),
        check=_check_poly,
    ),
    "sigmoid": Policy(
        schedule=lambda param: rate_schedules.sigmoid(param.base_lr, param.gamma, param.stepsize),
        reads=("base_lr", "gamma", "stepsize"),
        above_zero=("stepsize",),
    ),
    "multifixed": Policy(
        schedule=lambda param: rate_schedules.multifixed(param.stagelr, param.stageiter),
        reads=("stagelr", "stageiter"),
        check=_check_stages,
    ),
    "plateau": Policy(
        schedule=lambda param: rate_schedules.exp(param.base_lr, param.gamma),
        reads=("base_lr", "gamma", "plateau_winsize"),
        not_negative=("gamma",),
        check=_check_windows,
    ),
}


def fields_read(param: SolverParameter) -> tuple[str, ...]:
    """Return the fields that a solver's lr_policy (a known one) and its warm-up read."""
    reads = POLICIES[param.lr_policy].reads
    if "base_lr" not in reads and (param.warmup_iter or param.rampup_interval):
        reads = ("base_lr", *reads)
    return reads


class LearningRatePolicy:
    """The policy that a solver asks for, its fields checked.

    Fields of the message that change later, as pycaffe scripts do with base_lr, count from the next iteration on; the
    warm-up stays as it was.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.

    Attributes:
        name: the policy.
        warnings: fields that the policy reads and that the solver leaves unset, so that they count as 0, or as no step,
            and a poly that has no iterations.

    Raises:
        SolverError: the policy is missing or unknown, or a field lies outside its range.
    """

    def __init__(self, param: SolverParameter, source: Source | None = None) -> None:
        self.name: str = param.lr_policy
        self._param = param
        if self.name not in POLICIES:
            _refuse_unknown(param, source)
        self._policy = POLICIES[self.name]
        for field in self._policy.above_zero:
            if getattr(param, field) <= 0:
                self._refuse(field, "must be above 0", source)
        for field in self._policy.not_negative:
            if getattr(param, field) < 0:
                self._refuse(field, "must not be negative", source)
        if param.min_lr < 0:
            raise SolverError(f"min_lr is {param.min_lr:g} and must not be negative", location=locate(source, "min_lr"))
        self._policy.check(param, source)
        check_warm_up(param, source)
        self._warm_up = WarmUp.of(param)
        self._plateau = Plateau(param) if self.name == "plateau" else None
        self._steps_told = 0  # of multistep
        unset = [field for field in fields_read(param) if not _is_set(param, field)]
        self.warnings = [
            f"lr_policy '{self.name}' reads {field}, which is not set"
            + (": the rate takes no step" if field == "stepvalue" else " and counts as 0")
            for field in unset
        ]
        if self.name == "poly" and not param.max_iter:
            self.warnings.append(f"lr_policy 'poly' with a max_iter of 0: the rate is {param.min_lr:g} from the start")

    def schedule(self) -> RateSchedule:
        """Make the schedule of the fields as they are now; with `plateau`, the one that holds until its next step."""
        schedule = self._policy.schedule(self._param)
        if self._plateau is not None:
            schedule = rate_schedules.fixed(schedule(self._plateau.state.steps))
        schedule = rate_schedules.join(self._warm_up.schedule, schedule, at=self._warm_up.iterations)
        return rate_schedules.clip(schedule, self._param.min_lr) if self._param.min_lr > 0 else schedule

    def rate(self, iteration: int) -> float:
        """Return the learning rate of the update that `iteration` updates precede."""
        return self.schedule()(iteration)

    def current_step(self, iteration: int) -> int:
        """Count the steps that the rate of the last of `iteration` updates had gone down.

        That is Caffe's `current_step` in a solverstate: a step that is due at `iteration` itself is not in it yet.
        """
        if self._plateau is not None:
            return self._plateau.state.steps
        if iteration == 0:
            return 0
        if self.name == "step":
            return (iteration - 1) // self._param.stepsize
        return rate_schedules.steps_passed(self._param.stepvalue, iteration - 1) if self.name == "multistep" else 0

    def observe(self, iteration: int, smoothed_loss: float) -> str | None:
        """Show the policy an iteration's loss, the same on all ranks, before the rate of its update is asked for.

        Returns:
            A message for the user where `multistep` or `plateau` takes a step, in Caffe's words.
        """
        if self.name == "multistep":
            steps = rate_schedules.steps_passed(self._param.stepvalue, iteration)
            if steps <= self._steps_told:
                return None
            self._steps_told = steps
            return f"MultiStep Status: Iteration {iteration}, step = {steps}"
        if self._plateau is None or iteration < self._warm_up.iterations:
            return None
        if not self._plateau.observe(iteration, smoothed_loss):
            return None
        return f"Plateau Status: Iteration {iteration}, step = {self._plateau.state.steps}"

    @property
    def state(self) -> PlateauState | None:
        """What a snapshot has to hold beside the iteration; None: nothing."""
        return self._plateau.state if self._plateau is not None else None

    def resume(self, state: PlateauState | None, iteration: int, current_step: int) -> str | None:
        """Go on from a snapshot.

        Args:
            state: what `state` was; None in a snapshot of another policy, or of a Caffe without `plateau`.
            iteration, current_step: the snapshot's.

        Returns:
            A message for the user where the state is missing.
        """
        self._steps_told = self.current_step(iteration)
        if self._plateau is None:
            return None
        if state is not None:
            self._plateau.state = state
            return None
        self._plateau.state = PlateauState(current_step, last_event=iteration)
        return (
            "the snapshot doesn't say what lr_policy 'plateau' has seen: it goes on from step"
            f" {current_step}, and looks for a plateau from iteration {iteration} on"
        )

    def _refuse(self, field: str, rule: str, source: Source | None) -> None:
        raise SolverError(
            f"{field} is {getattr(self._param, field):g}; with lr_policy '{self.name}' it {rule}",
            location=locate(source, field),
        )


def _refuse_unknown(param: SolverParameter, source: Source | None) -> None:
    known = ", ".join(POLICIES)
    if not param.lr_policy:
        raise SolverError("the solver gives no lr_policy", location=locate(source), hint=f"known policies: {known}")
    near = nearest(param.lr_policy, POLICIES)
    guess = f" Did you mean '{near}'?" if near else ""
    raise SolverError(
        f"unknown lr_policy '{param.lr_policy}'.{guess}",
        location=locate(source, "lr_policy"),
        hint=f"known policies: {known}",
    )


def _is_set(param: SolverParameter, field: str) -> bool:
    value = getattr(param, field)
    return has_field(param, field) if isinstance(value, (int, float)) else len(value) > 0
