"""What `--allow` can name: what a format cannot express, and what is written (or read) instead where it is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mgcaffe.errors import UsageError

CARRIED_STATE = "carried_state"

ALLOWANCES: Mapping[str, str] = {
    CARRIED_STATE: "to ONNX and to a `.pt2`: the state of an LSTM or RNN without `expose_hidden` begins with zeros in"
    " each run, where Caffe's goes on from the run before",
}


def check_allowances(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set.

    Raises:
        UsageError: one of them is unknown.
    """
    for name in names:
        if name not in ALLOWANCES:
            known = ", ".join(ALLOWANCES)
            raise UsageError(f"--allow={name}: there is nothing of this name to allow", hint=f"there is {known}")
    return frozenset(names)
