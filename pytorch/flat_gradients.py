"""Gradients side by side in one flat buffer, of which the parameters' `.grad` are views.

Autograd makes a new gradient where `.grad` is None, which is what `zero_grad()` leaves: it is copied into its place
then, and the place becomes the parameter's `.grad`. Where a place has been `.grad` already, autograd adds to it.

Gradients in 16 bits have a place of 32 bits, so that they are added up in float32; they are copied there and back.
Complex ones lie as pairs of real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.comm import Segment
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.parameters import NamedParameter

_STAGED = (torch.float16, torch.bfloat16)


def buffer_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the buffer in which gradients of a type lie."""
    return torch.float32 if dtype in _STAGED else torch.empty(0, dtype=dtype).real.dtype


class Place:
    """The place of one parameter's gradient.

    Args:
        named: the parameter.
        part: its elements of the flat buffer.
        factor: by which its gradient is multiplied on the way there.

    Attributes:
        named: the parameter.
        kept: the gradient that was there before a backward pass which did not use the parameter, if there was any.
    """

    def __init__(self, named: NamedParameter, part: torch.Tensor, factor: float) -> None:
        self.named = named
        self._factor = factor
        self.kept: torch.Tensor | None = None
        self._parameter = named.parameter
        self._is_staged = self._parameter.dtype in _STAGED
        self._view = _view_like(part, self._parameter)
        self._address = self._view.data_ptr()

    def take(self) -> bool:
        """Bring the parameter's gradient, multiplied, to its place; zeros where it has none.

        Returns:
            Whether the parameter's `.grad` lies there now; if not, it needs `give`.

        Raises:
            UsageError: the gradient is sparse.
        """
        grad = self._parameter.grad
        if grad is None:
            self._view.zero_()
            return False
        if grad.layout != torch.strided:
            raise UsageError(
                f"parameter '{self.named.name}' has a sparse gradient, which cannot be averaged in one flat buffer",
                hint="make it dense, or name the parameter in exclude",
            )
        if grad.data_ptr() == self._address and not self._is_staged:
            self._multiply()
        else:
            grad = grad.detach() if grad.requires_grad else grad
            if self._is_staged:
                self._view.copy_(grad)
                self._multiply()
                return False
            torch.mul(grad, self._factor, out=self._view)
            self._parameter.grad = self._view
        return True

    def _multiply(self) -> None:
        if self._factor != 1.0:
            self._view.mul_(self._factor)

    def keep(self) -> None:
        """Keep the parameter's gradient for `give_back`."""
        grad = self._parameter.grad
        self.kept = None if grad is None else grad.detach().clone()

    def give(self) -> None:
        """Let the parameter have what lies in its place as its gradient."""
        self.kept = None
        grad = self._parameter.grad
        if self._is_staged:
            if grad is None:
                self._parameter.grad = grad = torch.empty_like(self._parameter, requires_grad=False)
            grad.detach().copy_(self._view)
        elif grad is None:
            self._parameter.grad = self._view

    def give_back(self) -> None:
        """Let the parameter have the gradient that it had before a backward pass in which no rank used it."""
        if self.kept is not None:
            self._view.copy_(self.kept)
            self.give()


class FlatGradients:
    """The gradients of parameters of one type on one device.

    Args:
        parameters: in the reverse of the order in which their gradients become ready.
        factor: by which gradients are multiplied on their way into the buffer.

    Attributes:
        flat: the buffer.
        places, segments: one for each parameter, ascending.
    """

    def __init__(self, parameters: Sequence[NamedParameter], factor: float = 1.0) -> None:
        first = parameters[0].parameter
        counts = [each.parameter.numel() * (2 if each.parameter.is_complex() else 1) for each in parameters]
        self.flat = torch.zeros(sum(counts), dtype=buffer_type(first.dtype), device=first.device)
        self.places: list[Place] = []
        self.segments: list[Segment] = []
        offset = 0
        for named, count in zip(parameters, counts, strict=True):
            self.places.append(Place(named, self.flat[offset : offset + count], factor))
            self.segments.append(Segment(named.name, offset, count))
            offset += count


def _view_like(part: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a view with the parameter's shape, and with its strides if these leave no element out."""
    if parameter.is_complex():
        part = torch.view_as_complex(part.view(-1, 2))
    dense = sorted(zip(parameter.stride(), parameter.shape, strict=True), key=lambda each: each[0])
    expected = 1
    for stride, length in dense:
        if length != 1 and stride != expected:
            return part.view(parameter.shape)
        expected *= length
    return part.as_strided(parameter.shape, parameter.stride())
