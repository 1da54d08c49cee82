"""Which operators PyTorch has for CUDA, by the list of operators that comes with it; for machines without CUDA."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import torch

_GENERAL = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def has_kernel(func: torch._ops.OpOverload) -> bool:
    """Return whether CUDA tensors can be given to this operator; True where the list does not know it."""
    if func.namespace != "aten":
        return func.namespace in ("prim", "profiler")
    served = _served()
    return served.get(func._schema.name.removeprefix("aten::") + _overload(func), True)


def _overload(func: torch._ops.OpOverload) -> str:
    return "" if func._overloadname == "default" else "." + func._overloadname


@functools.cache
def _served() -> dict[str, bool]:
    """Return for each operator, by name and overload, whether it has a kernel for CUDA or a general one."""
    listed = Path(torch.__file__).parent.parent / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    if not listed.exists():
        return {}
    served: dict[str, bool] = {}
    delegates: dict[str, str] = {}
    for entry in re.split(r"^- func: ", listed.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name = entry[: entry.index("(")]
        listed_for = re.findall(r"^    ([A-Za-z, ]+): ", entry, re.MULTILINE)
        backends = {key.strip() for keys in listed_for for key in keys.split(",")}
        general = "  dispatch:" not in entry or "  ufunc_inner_loop:" in entry
        served[name] = general or bool(backends & {"CUDA", *_GENERAL})
        if delegate := re.search(r"^  structured_delegate: (\S+)", entry, re.MULTILINE):
            delegates[name] = delegate.group(1)
    return served | {name: served[delegate] for name, delegate in delegates.items()}
