"""NCCL on a device that does nothing before it is waited for: `Cuda` stands for torch.cuda, `Values` for tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mgcaffe.comm.exchange.nccl_path import NcclPath, NcclStreams
from tests.support.late_streams import LateEvent, LateStream
from tests.support.nccl_order import COUNT


class Cuda:
    """Stands for torch.cuda."""

    Event = LateEvent

    def __init__(self) -> None:
        self.computing = self.current = LateStream()

    def Stream(self, device: Any) -> LateStream:
        """Return another stream."""
        return LateStream()

    def current_stream(self, device: Any = None) -> LateStream:
        """Return the stream on which kernels are launched."""
        return self.current

    def device(self, device: Any) -> AbstractContextManager[None]:
        """There is only one."""
        return nullcontext()

    @contextmanager
    def stream(self, stream: LateStream) -> Iterator[None]:
        """Make a stream the current one."""
        before, self.current = self.current, stream
        yield
        self.current = before


class Values:
    """A tensor whose operations are kernels of the current stream."""

    def __init__(self, cuda: Cuda, content: list[float], start: int = 0) -> None:
        self._cuda, self.content, self.places = cuda, content, range(start, len(content))

    def __getitem__(self, part: slice) -> Values:
        values = Values(self._cuda, self.content)
        values.places = range(part.start, part.stop)
        return values

    def detach(self) -> Values:
        """Return itself: there is no autograd."""
        return self

    def view(self, *shape: int) -> Values:
        """Return itself: it is flat."""
        return self

    def element_size(self) -> int:
        """Return float32's."""
        return 4

    def change(self, function: Callable[[float], float]) -> None:
        """Change the values at once."""
        for place in self.places:
            self.content[place] = function(self.content[place])

    def div_(self, divisor: float) -> None:
        """Launch a division."""
        self._cuda.current_stream().launch(lambda: self.change(lambda value: value / divisor))


class Group:
    """Two ranks, of which the other one has twice this one's gradients; NCCL works on a stream of its own."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda, self._stream = cuda, LateStream()
        self.order: list[range] = []

    def allreduce(self, tensors: list[Values]) -> Group:
        """Launch the sum."""
        self.order.append(tensors[0].places)
        self._stream.wait_stream(self._cuda.current)
        self._stream.launch(lambda: tensors[0].change(lambda value: value * 3))
        return self

    def wait(self) -> None:
        """Let the current stream wait for the sum."""
        self._cuda.current.wait_stream(self._stream)


class LateDevice:
    """See `nccl_order.Device`.

    Attributes:
        values: what is in the buffer at present, whatever was launched.
        group: the process group.
    """

    def __init__(self) -> None:
        self._cuda = Cuda()
        self._flat: Any = Values(self._cuda, [0.0] * COUNT)
        self.values: list[float] = self._flat.content
        self.group = Group(self._cuda)
        self.streams = NcclStreams(self.group, None, 2, self._cuda)  # type: ignore[arg-type]
        self.path = NcclPath(self._flat, self.streams)

    def compute(self, start: int, stop: int, value: float) -> None:
        """Launch what nobody has run before it is waited for."""
        self._cuda.current.launch(lambda: self._flat[start:stop].change(lambda _: value))

    def is_computing(self) -> bool:
        """Return whether something has not run."""
        return self._cuda.current.is_busy()

    def copy(self) -> Callable[[], list[float]]:
        """Launch a copy."""
        copied: list[float] = []
        stream = self._cuda.current
        stream.launch(lambda: copied.extend(self.values))
        behind = stream.record_event()

        def wait() -> list[float]:
            behind.synchronize()
            return copied

        return wait

    def enqueue(self, start: int, stop: int) -> None:
        """Enqueue alone."""
        self.streams.reduce(self._flat[start:stop], self.path.mark(start, stop - start))

    def another_stream(self) -> AbstractContextManager[None]:
        """Change streams."""
        return self._cuda.stream(LateStream())

    def mean(self, value: float) -> float:
        """Return (1 + 2) / 2 of it."""
        return value * 1.5
