"""What LSTM and RNN share: their bottoms and tops, the products over all time steps, and the state that goes on.

Bottoms: x (T, N, ...), T time steps of N independent streams; cont (T, N), the sequence indicators: 0 where a sequence
begins, else 1; optionally a static input (N, ...), which is the same in every step; with `expose_hidden` the state
before the first step, each (1, N, H). Tops: y (T, N, H); with `expose_hidden` the state after the last step, each
(1, N, H). H is num_output.

Without `expose_hidden` the state after the last step of one forward pass is the state before the first step of the
next one; it begins with zeros, and every layer has its own, in a test net as well. No gradient flows from one pass to
the one before, nor, as in Caffe, through the exposed states: those bottoms get gradients of zero, and gradients of
those tops are not used.

Caffe unrolls a net of T steps and so needs a fixed T; here T and N may change. Stream n goes on as stream n; streams
that are new begin with zeros. (Caffe: recurrent_layer.cpp.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import torch

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.kernels import linear
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.types import Shape

_log = logging.getLogger("mgcaffe.engine")


class RecurrentLayer(Layer):
    """Base of the recurrent layers.

    Attributes:
        state_names: what the parts of the state are called; a class attribute.
        gates: how many values x is transformed to, as a multiple of num_output; a class attribute.
        hidden: num_output.
        exposed: how many bottoms (and tops) hold the state; 0 without `expose_hidden`.
        has_static: whether bottom 2 is a static input.
    """

    bottoms = between(2, 5)
    tops = between(1, 3)
    keeps_tops = True
    differentiates_frozen = True

    state_names: tuple[str, ...] = ()
    gates = 1

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the parameters that transform x and the static input: W (G, D), b (G), [W_static (G, S)]."""
        param = self.param.recurrent_param
        if param.num_output < 1:
            self.fail("num_output has to be at least 1", "recurrent_param")
        self.hidden: int = param.num_output
        self.exposed = len(self.state_names) if param.expose_hidden else 0
        if not self.exposed:
            self.only_once = "it begins with the state that the pass before left"
        elif param.debug_info:
            self.only_once = "with debug_info it logs each pass"
        self._check_counts(len(bottom_shapes))
        self.has_static = len(bottom_shapes) > 2 + self.exposed
        self._check_shapes(bottom_shapes)
        self._inputs = math.prod(bottom_shapes[0][2:])
        self._state: list[torch.Tensor] | None = None
        self._streams = bottom_shapes[0][1]
        self._gradient_is_dropped = False
        size = self.gates * self.hidden
        self.add_parameter((size, self._inputs), param.weight_filler)
        self.add_parameter((size,), param.bias_filler)
        if self.has_static:
            self._static_inputs = math.prod(bottom_shapes[2][1:])
            self.add_parameter((size, self._static_inputs), param.weight_filler)

    def _check_counts(self, bottoms: int) -> None:
        least, tops = 2 + self.exposed, len(self.param.top)
        given = "with expose_hidden" if self.exposed else "without expose_hidden"
        if bottoms not in between(least, least + 1):
            self.fail(f"{given} it takes {between(least, least + 1)} bottom blob(s), not {bottoms}", "bottom")
        if tops != 1 + self.exposed:
            self.fail(f"{given} it makes {1 + self.exposed} top blob(s), not {tops}", "top")

    def _check_shapes(self, shapes: Sequence[Shape]) -> None:
        x, indicators = shapes[:2]
        if len(x) < 3:
            self.fail(f"bottom 0 has to have three axes or more, (time steps, streams, ...), not shape {x}")
        if indicators != x[:2]:
            self.fail(f"bottom 1 has to have one number a time step and stream, {x[:2]}, not shape {indicators}")
        if self.has_static and (len(shapes[2]) < 2 or shapes[2][0] != x[1]):
            self.fail(f"bottom 2, the static input, has to have shape ({x[1]}, ...), one row a stream, not {shapes[2]}")
        wanted = (1, x[1], self.hidden)
        for index, shape in enumerate(shapes[len(shapes) - self.exposed :], len(shapes) - self.exposed):
            if shape != wanted:
                self.fail(f"bottom {index}, a state, has to have shape {wanted}, not {shape}")

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the sequence indicators."""
        return bottom != 1

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(T, N, H), and for each exposed state (1, N, H)."""
        self._check_shapes(bottom_shapes)
        steps, streams, *rest = bottom_shapes[0]
        if math.prod(rest) != self._inputs:
            self.fail(f"bottom 0 changed to shape {bottom_shapes[0]}; the weight needs {self._inputs} inputs per step")
        if self.has_static and math.prod(bottom_shapes[2][1:]) != self._static_inputs:
            self.fail(f"bottom 2 changed to shape {bottom_shapes[2]}; the weight needs {self._static_inputs} inputs")
        self._streams = streams
        return [(steps, streams, self.hidden), *[(1, streams, self.hidden)] * self.exposed]

    # -- the state ---------------------------------------------------------------------------------------

    @property
    def carries_state(self) -> bool:
        """Whether a forward pass begins with the state that the one before left."""
        return not self.exposed

    def state(self) -> list[torch.Tensor]:
        """Return the state that the next forward pass begins with: one tensor (N, H) for each of `state_names`."""
        kept = self._state or [self._zeros(0) for _ in self.state_names]
        return [self._fit(values) for values in kept]

    def set_state(self, values: Sequence[torch.Tensor]) -> bool:
        """Put back what `state` gave; return False, and keep the state, if the shapes are others."""
        if [tuple(part.shape) for part in values] != [(self._streams, self.hidden)] * len(self.state_names):
            return False
        self._state = [part.to(self.context.device, self.context.dtype, copy=True) for part in values]
        return True

    def recall(self, bottoms: Sequence[torch.Tensor], tops: Sequence[torch.Tensor]) -> None:
        """Leave the state of the streams as it is."""
        state = self._state
        super().recall(bottoms, tops)
        self._state = state

    def reset_state(self) -> None:
        """Let the next forward pass begin with zeros (Caffe: Reset)."""
        self._state = None

    def _begin(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the state before the first step, each (N, H)."""
        if self.exposed:
            return [bottom[0] for bottom in bottoms[len(bottoms) - self.exposed :]]
        return self.state()

    def _end(self, state: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tops for the state after the last step, if it is exposed; else it is kept."""
        # Copies: y, of which the state may be a part, is given away.
        copies = [part.clone() for part in state]
        if self.exposed:
            return [part.unsqueeze(0) for part in copies]
        self._state = copies
        return []

    def _zeros(self, streams: int) -> torch.Tensor:
        return torch.zeros(streams, self.hidden, dtype=self.context.dtype, device=self.context.device)

    def _fit(self, values: torch.Tensor) -> torch.Tensor:
        """Return the first N streams, with zeros for those that are new."""
        missing = self._streams - len(values)
        return torch.cat([values, self._zeros(missing)]) if missing > 0 else values[: self._streams]

    @staticmethod
    def _factors(markers: torch.Tensor) -> tuple[torch.Tensor | float, torch.Tensor | None]:
        """Return what the states are multiplied by: that from before the pass, and that before each step.

        Where a sequence begins in the first step or not at all, these are the first step's 0s and 1s, (N, 1), and None;
        else 1 and the factors of all steps, (T, N, 1).
        """
        # On a GPU looking would mean waiting for it.
        if markers.is_cpu and bool((markers[1:] == 1).all()) and bool(((markers[:1] == 0) | (markers[:1] == 1)).all()):
            return (markers[0].unsqueeze(1) if len(markers) else 1.0), None
        return 1.0, markers.unsqueeze(2)

    # -- products over all time steps --------------------------------------------------------------------

    def _transform(self, bottoms: Sequence[torch.Tensor]) -> torch.Tensor:
        """W x + b, plus W_static times the static input: (T, N, G) in storage of its own."""
        x = bottoms[0]
        weight, bias = (parameter.data for parameter in self.parameters[:2])
        y = widened(linear.forward(self._rows(x), weight, bias)).view(*x.shape[:2], len(bias))
        if self.has_static:
            y.add_(linear.forward(self._static_rows(bottoms[2]), self.parameters[2].data, None))
        return y

    def _transform_backward(
        self, dy: torch.Tensor, bottoms: Sequence[torch.Tensor], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Add to the gradients of `_transform`'s parameters; return those of all bottoms.

        Args:
            dy: (T, N, G).
            bottoms: those of the forward pass.
            wanted: as for `backward`.
        """
        weight, bias = self.parameters[:2]
        diffs: list[torch.Tensor | None] = [None] * len(wanted)
        flat = dy.reshape(-1, self.gates * self.hidden)
        if bias.wanted:
            bias.accumulate(flat.sum(0))
        flat = self._operand(flat)
        self._add_product(weight, flat, self._rows(bottoms[0]))
        if wanted[0]:
            diffs[0] = linear.backward_data(flat, weight.data).view(bottoms[0].shape)
        if self.has_static:
            over_time = self._operand(dy.sum(0))
            self._add_product(self.parameters[2], over_time, self._static_rows(bottoms[2]))
            if wanted[2]:
                diffs[2] = linear.backward_data(over_time, self.parameters[2].data).view(bottoms[2].shape)
        return self._none_to_states(diffs, bottoms, wanted)

    def _none_to_states(
        self, diffs: list[torch.Tensor | None], bottoms: Sequence[torch.Tensor], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Return the bottoms' gradients with those of exposed states, which are zero."""
        for index in range(len(wanted) - self.exposed, len(wanted)):
            if wanted[index]:
                diffs[index] = torch.zeros_like(bottoms[index])
        return diffs

    def _add_product(self, parameter: Parameter, dy: torch.Tensor, x: torch.Tensor) -> None:
        if parameter.wanted:
            linear.add_product(parameter.diff, self._operand(dy), self._operand(x), parameter.beta())

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return self._operand(x.reshape(x.shape[0] * x.shape[1], self._inputs))

    def _static_rows(self, x: torch.Tensor) -> torch.Tensor:
        return self._operand(x.reshape(len(x), self._static_inputs))

    def _operand(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, dy or a weight as the products take it."""
        return self.context.precision.narrow(x)

    def _warn_of_dropped_gradient(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> None:
        """Warn once that the exposed state passes no gradient on, where one would have flowed."""
        if not self.exposed or self._gradient_is_dropped:
            return
        self._gradient_is_dropped = True
        if any(wanted[len(wanted) - self.exposed :]) or any(bool(diff.any()) for diff in top_diffs[1:]):
            warn_once(_log, f"layer '{self.name}': no gradient flows through the exposed hidden state, as in Caffe")

    # -- the rest ----------------------------------------------------------------------------------------

    def _log_steps(self, direction: str, blobs: Mapping[str, torch.Tensor]) -> None:
        """With `debug_info`, log the mean absolute value of each step of the blobs, as Caffe's unrolled net does.

        Args:
            direction: "Forward" (tops' data) or "Backward" (bottoms' diffs).
            blobs: values of all steps, (T, ...), by name.
        """
        if not self.param.recurrent_param.debug_info:
            return
        side, kind = ("top", "data") if direction == "Forward" else ("bottom", "diff")
        for step in range(len(next(iter(blobs.values())))):
            for name, values in blobs.items():
                mean = float(values[step].abs().mean()) if values[step].numel() else 0.0
                place = f"Layer {self.name}_unit_{step + 1}, {side} blob {name}_{step + 1}"
                _log.info("    [%s] %s %s: %g", direction, place, kind, mean)

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Return one for each weight and each row that it is applied to."""
        steps, streams = bottom_shapes[0][:2]
        weights = [parameter.count for parameter in self.parameters if len(parameter.shape) == 2]
        once_a_pass = weights.pop(1) if self.has_static else 0
        return streams * (steps * sum(weights) + once_a_pass)
