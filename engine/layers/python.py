"""Python: a layer that a user writes in Python.

    top = whatever the user's `forward` fills in

The class has pycaffe's methods: setup, reshape, forward and backward. With `loss_weight`, tops count towards the loss,
and their `diff` holds that weight when backward begins. Data are numpy arrays in the CPU's memory, also where the net
runs on a GPU.

Fields of `python_param`: module: looked for on PYTHONPATH and in the folder where the command runs; layer: the name of
a class in it, derived from `caffe.Layer`; param_str: handed to it; share_in_parallel (false): has no meaning, since
every rank is a process of its own and has its own layer.
Bottoms: any number. Tops: any number; one may be the bottom of the same place.
Parameters: those that the user's `setup` adds.
Differences from Caffe: several ranks are no obstacle, where Caffe refuses more than one GPU.
(Caffe: python_layer.hpp, _caffe.cpp.)
"""

from __future__ import annotations

import inspect
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.host_blob import LayerBlob, ParameterBlob, as_sizes, resized
from mgcaffe.engine.host_copies import write_back
from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.engine.user_errors import described, error_class, old_program_hint
from mgcaffe.engine.user_layer import BlobVector, UserLayer, load_module
from mgcaffe.errors import NetError

logger = logging.getLogger("mgcaffe.engine")


@register("Python")
class Python(Layer):
    """The layer; see the module's text.

    Attributes:
        user: the user's own object.
        top_values: the tops' values by number, on the CPU, which the user's next `forward` finds there. Those of a top
            in place do not count.
    """

    only_once = "nothing is known of what a class of the user's does"
    may_ignore_top_diff = True
    bottoms = at_least(0)
    tops = at_least(0)
    in_place = True
    keeps_tops = True
    user: UserLayer
    top_values: _TopValues

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Make the user's object and call its `setup`."""
        param = self.param.python_param
        user_class = self._find_class()
        shard = self.context.shard
        if param.share_in_parallel and shard.size > 1:
            warn_once(logger, f"layer '{self.name}': share_in_parallel is not needed: each rank has its own layer")
        self.user = self._call("__init__", user_class, self.param)
        self.user.param_str, self.user.phase = param.param_str, self.phase
        self.user.solver_rank, self.user.solver_count = shard.rank, shard.size
        self.user.blobs = BlobVector(self._add_blob)
        self._shares = [self.param.bottom[index : index + 1] == [top] for index, top in enumerate(self.param.top)]
        self._tops = [LayerBlob(self._zeros(())) for _ in self.param.top]
        self.top_values = _TopValues(self._tops)
        bottoms, tops = self._blobs([self._zeros(shape) for shape in bottom_shapes])
        self._call("setup", self.user.setup, bottoms, tops)
        self._is_set_up = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return what the user's `reshape` makes of the tops. It is called again before each forward."""
        bottoms, tops = self._blobs([self._zeros(shape) for shape in bottom_shapes])
        self._call("reshape", self.user.reshape, bottoms, tops)
        return [top.shape for top in tops]

    def first_values(self) -> list[torch.Tensor | None]:
        """Return what `setup` and `reshape` have left in the tops; None for those in place."""
        return [
            None if shares else top.values.to(self.context.device)
            for shares, top in zip(self._shares, self._tops, strict=True)
        ]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep what the user saw, for backward."""
        values = [bottom.cpu() for bottom in bottoms]
        for index, shares in enumerate(self._shares):
            overwrites = self.may_overwrite_bottom and index == 0
            if shares and values[index] is bottoms[index] and not overwrites:
                values[index] = bottoms[index].clone()
        blobs, tops = self._blobs(values)
        self._call("reshape", self.user.reshape, blobs, tops)
        self._call("forward", self.user.forward, blobs, tops)
        write_back()
        self.saved = (blobs, tops) if self.backward_follows else None
        return [top.values.to(self.context.device) for top in tops]

    def recall(self, bottoms: Sequence[torch.Tensor], tops: Sequence[torch.Tensor]) -> None:
        """Show the user's `backward` the blobs as they are; `forward` is not called."""
        blobs, shown = self._blobs([bottom.cpu() for bottom in bottoms])
        for index, (blob, values) in enumerate(zip(shown, tops, strict=True)):
            if not self._shares[index]:
                blob.values = values.cpu().clone()
        self.saved = blobs, shown

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return what the user's `backward` writes into the bottoms' diffs."""
        bottoms, tops = self.saved
        for top, diff, free in zip(tops, top_diffs, self.may_overwrite_top_diff, strict=True):
            host = diff.cpu()
            top.give(host if free or host is not diff else diff.clone())
        for parameter in self.parameters:
            if parameter.fresh:
                parameter.diff.zero_()
                parameter.fresh = False
        self._call("backward", self.user.backward, tops, [bool(want) for want in wanted], bottoms)
        write_back()
        keep = not self.context.frees_blobs  # a second backward begins with what the first, or forward, left there
        return [
            bottom.take(keep).to(self.context.device) if want else None
            for bottom, want in zip(bottoms, wanted, strict=True)
        ]

    def describe(self) -> str:
        """Return the layer's name, with the user's class and the place in the prototxt."""
        param, place = self.param.python_param, self.location()
        return f"{super().describe()} ({param.module}.{param.layer}{f', {place}' if place else ''})"

    # -- inside ------------------------------------------------------------------------------------------

    _is_set_up = False

    def _find_class(self) -> type[UserLayer]:
        param = self.param.python_param
        for field in ("module", "layer"):
            if not getattr(param, field):
                self.fail(f"python_param.{field} is missing", "python_param")
        try:
            module = load_module(param.module)
        except KeyboardInterrupt as interrupt:
            self._pass_on(interrupt, f"importing '{param.module}'")
        except ModuleNotFoundError as error:
            if error.name != param.module.partition(".")[0]:
                self._fail_in_user_code(f"importing '{param.module}'", error)
            self.fail(
                f"there is no Python module '{param.module}'",
                "python_param.module",
                hint="it is looked for on PYTHONPATH and in the folder where the command runs",
            )
        except BaseException as error:
            self._fail_in_user_code(f"importing '{param.module}'", error)
        found = getattr(module, param.layer, None)
        if not inspect.isclass(found):
            self.fail(f"module '{param.module}' ({module.__file__}) has no class '{param.layer}'", "python_param.layer")
        if not issubclass(found, UserLayer):
            self.fail(
                f"class '{param.layer}' of module '{param.module}' ({module.__file__}) is no layer",
                "python_param.layer",
                hint="derive it from caffe.Layer",
            )
        return found

    def _add_blob(self, sizes: tuple[int, ...]) -> ParameterBlob:
        if self._is_set_up:
            raise NetError("blobs can be added only in setup, since the solver has to know them from the start")
        parameter = self.add_parameter(as_sizes(sizes))
        parameter.initial = torch.zeros(parameter.shape, dtype=self.context.dtype)
        return ParameterBlob(parameter, self._resize)

    def _resize(self, parameter: Parameter, shape: Shape) -> None:
        """Give a parameter another shape, which `setup` may do, since the net gives it a place only afterwards."""
        if self._is_set_up:
            raise NetError(
                f"a learnable blob of shape {parameter.shape} cannot become one of shape {shape} after setup",
                hint="reshape it in setup, since the solver has to know its size from the start",
            )
        self.check_parameter(self.parameters.index(parameter), shape)
        assert parameter.initial is not None
        parameter.shape, parameter.initial = shape, resized(parameter.initial, shape)

    def _zeros(self, shape: Shape) -> torch.Tensor:
        return torch.zeros(shape, dtype=self.context.dtype)

    def _blobs(self, values: Sequence[torch.Tensor]) -> tuple[list[LayerBlob], list[LayerBlob]]:
        """Return bottoms with these values, and the tops, of which in-place ones are the bottoms themselves.

        A top is the same blob in every pass, so what the user leaves untouched stays.
        """
        bottoms = [LayerBlob(value) for value in values]
        tops = [bottoms[index] if self._shares[index] else top for index, top in enumerate(self._tops)]
        return bottoms, tops

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the user's code; its exceptions, sys.exit too, become errors that say where in it they came from."""
        try:
            return function(*arguments)
        except KeyboardInterrupt as interrupt:
            self._pass_on(interrupt, name)
        except BaseException as error:
            self._fail_in_user_code(name, error)

    def _pass_on(self, interrupt: KeyboardInterrupt, what: str) -> NoReturn:
        """Raise the interrupt unchanged, unless only the user's code can have raised it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise interrupt  # it may be Ctrl-C
        self._fail_in_user_code(what, interrupt)

    def _fail_in_user_code(self, what: str, error: BaseException) -> NoReturn:
        kind, hint = error_class(type(error)), old_program_hint(error)
        if isinstance(error, SystemExit):
            hint = "a layer must not end the process: raise an exception"
        raise kind(
            f"{what} failed in {self.param.python_param.module}.{self.param.python_param.layer}"
            f" (layer '{self.name}', type {self.type}): {described(error)}",
            location=self.location("python_param"),
            hint=hint,
        ) from None


class _TopValues:
    """What lies in a layer's tops, to be read and set by number like the entries of a list."""

    def __init__(self, tops: Sequence[LayerBlob]) -> None:
        self._tops = tops

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._tops[index].values

    def __setitem__(self, index: int, values: torch.Tensor) -> None:
        top = self._tops[index]
        top.reshape(*values.shape)
        top.values = values.cpu().contiguous()
