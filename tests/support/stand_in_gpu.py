"""A stand-in for a GPU: tensors that say they are on `cuda:0` and whose values lie in the host's memory.

Every operation on them is computed by the CPU's kernels, so results can be compared, and is refused where CUDA would
refuse it: operands on both devices, an operator that PyTorch has no CUDA kernel for, a generator of the wrong device,
`numpy()` of a tensor on the device. Copies that don't block are made as late as the streams allow, and the host's
memory holds NaN until then.

What it cannot show: a kernel of CUDA that computes something else than the CPU's, types that one kernel of CUDA
doesn't take, and what happens within one stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.late_streams import LateEvent, LateStream
from tests.support.operators_of_cuda import has_kernel

GPU = torch.device("cuda", 0)
_OPS = torch.ops.aten
_PLAIN_GENERATOR = torch.Generator
_COPIES = {_OPS._to_copy.default, _OPS.copy_.default, _OPS.fill_.Tensor}
_INDEXED = {_OPS.index.Tensor, _OPS.index_put_.default, _OPS.index_put.default, _OPS._index_put_impl_.default}
"""Operators whose indices may lie in the host's memory."""


class GpuTensor(torch.Tensor):
    """A tensor on the stand-in; its storage is that of the tensor `_host`."""

    _host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> GpuTensor:
        """Say of the values in `host` that they are on the GPU."""
        made: GpuTensor = torch.Tensor._make_subclass(
            cls, host, False, dispatch_device=True, device_for_backend_keys=GPU
        )
        made._host = host
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Return the values and the device."""
        return f"GpuTensor({self._host})"

    def tolist(self) -> Any:
        """Return the values, which PyTorch allows on a GPU too."""
        return self._host.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation that has at least one such operand."""
        return _run(func, args, kwargs or {})


class DeviceMismatch(RuntimeError):
    """An operation that CUDA would refuse."""


class _Factories(TorchDispatchMode):
    """Makes tensors on the stand-in where `device` says so."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what would skip it takes seconds to import

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


_computing = threading.local()


def _current_stream(device: Any = None) -> LateStream:
    """Return this thread's stream."""
    if not hasattr(_computing, "stream"):
        _computing.stream = LateStream()
    stream: LateStream = _computing.stream
    return stream


@contextlib.contextmanager
def _stream(stream: LateStream) -> Iterator[None]:
    before, _computing.stream = _current_stream(), stream
    yield
    _computing.stream = before


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func is torch.ops.prim.device.default:
        return GPU
    values = list(_leaves((*args, *kwargs.values())))
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    on_gpu = [each for each in tensors if isinstance(each, GpuTensor)]
    target = kwargs.get("device")
    makes_gpu = bool(on_gpu) if target is None else torch.device(target).type == "cuda"
    if on_gpu:
        _check(func, args, tensors, on_gpu)
    for generator in (each for each in values if isinstance(each, _PLAIN_GENERATOR)):
        if (generator._cdata in _generators) != makes_gpu:
            raise DeviceMismatch(f"{func}: a generator of the other device")
    if func is _OPS.copy_.default and on_gpu and _is_late(args, kwargs):
        return _copy_late(*args[:2])
    hosts = {id(each._host): each for each in on_gpu}
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    result = func(*_each(_host, args), **{name: _each(_host, value) for name, value in kwargs.items()})
    if any(_is_other(each, each._host) for each in on_gpu):
        raise NotImplementedError(f"{func} changes what a tensor is; the stand-in for a GPU does not follow")
    if not makes_gpu:
        return result
    if func is _OPS._to_copy.default and isinstance(result, torch.Tensor) and not on_gpu:
        result = result.clone() if any(result is each for each in tensors) else result
    return _each(lambda each: _on_gpu(each, hosts), result)


def _on_gpu(value: Any, hosts: dict[int, GpuTensor]) -> Any:
    """Return a result as it is on the GPU: the operand itself where the operator wrote into it."""
    if not isinstance(value, torch.Tensor):
        return value
    return hosts[id(value)] if id(value) in hosts else GpuTensor(value)


def _is_other(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape != other.shape or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def _leaves(value: Any) -> Iterator[Any]:
    """Return what tuples and lists hold, one after the other."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """Return tuples and lists with the function's results in the places of what they hold."""
    return type(value)(_each(function, each) for each in value) if type(value) in (tuple, list) else function(value)


def _host(value: Any) -> Any:
    return value._host if isinstance(value, GpuTensor) else value


def _check(func: Any, args: Any, tensors: list[torch.Tensor], on_gpu: list[GpuTensor]) -> None:
    if not has_kernel(func):
        raise DeviceMismatch(f"{func} has no kernel for CUDA")
    if func in _COPIES:
        return
    if func in _INDEXED:
        tensors = [args[0], *(each for each in args[2:] if isinstance(each, torch.Tensor))]
    elsewhere = [each for each in tensors if not isinstance(each, GpuTensor)]
    if torch.Tag.pointwise in func.tags:
        elsewhere = [each for each in elsewhere if each.dim()]
    if elsewhere:
        raise DeviceMismatch(
            f"{func}: operands of shapes {[tuple(each.shape) for each in elsewhere]} are not on the GPU"
        )


def _is_late(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a copy need not have been made when the call returns."""
    return bool(kwargs.get("non_blocking") or (args[2:] and args[2])) and hasattr(_computing, "stream")


def _copy_late(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    into, values = _host(target), _host(source)
    if not isinstance(target, GpuTensor):
        into.fill_(float("nan"))
    _current_stream().launch(lambda: into.copy_(values))
    return target


_generators: set[int] = set()
"""Where the generators of the stand-in lie; an operator is given another Python object for the same one."""


_SEED_OF_GPU = 0x5DEECE66


class _Generator(torch.Generator):
    """A generator that says on which device it is; on the GPU a seed gives other numbers than on the CPU."""

    _on = torch.device("cpu")

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = super().__new__(cls)
        made._on = torch.device(device)
        if made._on.type == "cuda":
            _generators.add(made._cdata)
            weakref.finalize(made, _generators.discard, made._cdata)
        return made

    def manual_seed(self, seed: int) -> _Generator:
        """Begin anew."""
        super().manual_seed(seed ^ _SEED_OF_GPU if self._on.type == "cuda" else seed)
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Return the device that it was made for."""
        return self._on


_PROPERTIES = SimpleNamespace(
    name="stand-in", total_memory=1 << 34, uuid="stand-in", major=0, minor=0, multi_processor_count=1
)
_FAKES: dict[str, Callable[..., Any] | Any] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "synchronize": lambda device=None: _current_stream().synchronize(),
    "device": lambda device: contextlib.nullcontext(),
    "Stream": LateStream,
    "Event": LateEvent,
    "current_stream": _current_stream,
    "stream": _stream,
    "max_memory_allocated": lambda device=None: 0,
    "get_device_properties": lambda device=None: _PROPERTIES,
}


def _without_pinning(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return make(*args, **kwargs)

    return made


@contextlib.contextmanager
def stand_in_gpu() -> Iterator[torch.device]:
    """Let this process have a GPU, `cuda:0`, that computes on the CPU; for PyTorch without CUDA only."""
    registry = _device_guards()
    before, registry[1] = registry[1], registry[0]
    converts = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # so that a module's parameters become GpuTensors
    with pytest.MonkeyPatch.context() as patch:
        for name, fake in _FAKES.items():
            patch.setattr(torch.cuda, name, fake)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
        patch.setattr(torch, "empty", _without_pinning(torch.empty))  # also for threads that make batches
        try:
            with on_this_thread(GPU):
                yield GPU
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(converts)
            registry[1] = before


@contextlib.contextmanager
def on_this_thread(device: torch.device) -> Iterator[None]:
    """Let another thread make tensors on the stand-in too; with a GPU it does nothing, for it need not."""
    if torch.cuda.is_available is not _FAKES["is_available"]:
        yield
        return
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes the values on the CPU and copies them
    try:
        with _Factories():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)


def _device_guards() -> Any:
    """Return PyTorch's table of what switches between the devices of each type: the CPU's does nothing."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
