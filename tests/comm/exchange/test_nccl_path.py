"""The order of work on streams over NCCL, on a device that does nothing before somebody waits for it.

There is no GPU here: `Cuda` stands for torch.cuda, `Group` for a process group of NCCL, `Values` for tensors.
"""

from contextlib import contextmanager, nullcontext

from mgcaffe.comm.exchange.nccl_path import NcclPath, NcclStreams
from tests.support.late_streams import LateEvent as Event
from tests.support.late_streams import LateStream as Stream


class Cuda:
    Event = Event

    def __init__(self):
        self.computing = self.current = Stream()

    def Stream(self, device):
        return Stream()

    def current_stream(self, device=None):
        return self.current

    def device(self, device):
        return nullcontext()

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


class Values:
    """A tensor whose operations are kernels of the current stream."""

    def __init__(self, cuda, content, start=0):
        self._cuda, self.content, self.places = cuda, content, range(start, len(content))

    def __getitem__(self, part):
        values = Values(self._cuda, self.content)
        values.places = range(part.start, part.stop)
        return values

    def detach(self):
        return self

    def view(self, *shape):
        return self

    def element_size(self):
        return 4

    def change(self, function):
        for place in self.places:
            self.content[place] = function(self.content[place])

    def div_(self, divisor):
        self._cuda.current_stream().launch(lambda: self.change(lambda value: value / divisor))


class Group:
    """Two ranks with the same gradients; NCCL works on a stream of its own."""

    def __init__(self, cuda):
        self._cuda, self._stream = cuda, Stream()

    def allreduce(self, tensors):
        self._stream.wait_stream(self._cuda.current)
        self._stream.launch(lambda: tensors[0].change(lambda value: value * 3))
        return self

    def wait(self):
        self._cuda.current.wait_stream(self._stream)


def make(count):
    cuda = Cuda()
    flat = Values(cuda, [0.0] * count)
    return cuda, flat, NcclPath(flat, NcclStreams(Group(cuda), None, 2, cuda))


def compute(cuda, flat, start, stop, value):
    cuda.computing.launch(lambda: flat[start:stop].change(lambda _: value))


def test_a_group_is_reduced_in_place_once_computed_while_the_computing_stream_is_busy_with_the_next_one():
    cuda, flat, path = make(6)
    compute(cuda, flat, 4, 6, 10.0)
    first = path.mark(4, 2)
    compute(cuda, flat, 0, 4, 20.0)
    second = path.mark(0, 4)
    assert flat.content == [0.0] * 6  # the host is ahead of the device
    path.reduce(4, 2, first)
    assert flat.content == [0.0] * 4 + [15.0] * 2 and cuda.computing.done == 1
    path.reduce(0, 4, second)
    assert flat.content == [30.0] * 4 + [15.0] * 2
    assert path.element_bytes == 4


def test_what_is_computed_next_sees_the_means_and_the_host_does_not_wait_for_them():
    cuda, flat, path = make(2)
    seen = []
    compute(cuda, flat, 0, 2, 10.0)
    path._streams.reduce(flat[0:2], path.mark(0, 2))  # enqueued, and not waited for
    path.finish()
    cuda.computing.launch(lambda: seen.extend(flat.content))
    assert flat.content == [0.0, 0.0]
    cuda.computing.record_event().synchronize()
    assert seen == [15.0, 15.0]


def test_what_another_stream_computes_is_waited_for_where_it_is_handed_over_on_that_stream():
    cuda, flat, path = make(2)
    side = Stream()
    side.launch(lambda: flat[0:2].change(lambda _: 10.0))
    with cuda.stream(side):  # as autograd runs a hook
        token = path.mark(0, 2)
    path.reduce(0, 2, token)
    assert flat.content == [15.0, 15.0] and side.done == 1


def test_two_groups_are_reduced_in_the_order_in_which_they_are_handed_over():
    cuda, flat, path = make(4)
    order = []
    compute(cuda, flat, 0, 4, 10.0)
    token = path.mark(2, 2)
    group = path._streams._group
    group.allreduce = lambda tensors, plain=group.allreduce: (order.append(tensors[0].places), plain(tensors))[1]
    path.reduce(2, 2, token)
    path.reduce(0, 2, path.mark(0, 2))
    path.finish()
    cuda.computing.record_event().synchronize()
    assert order == [range(2, 4), range(2)] and flat.content == [15.0] * 4
