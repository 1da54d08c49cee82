"""Hands a solver's bad_record and bad_record_limit down to the layers that read records.

What a layer says itself (`data_param { bad_record: STOP }`) wins.
"""

from __future__ import annotations

from mgcaffe.prototxt import NetParameter, SolverParameter, has_field

_READERS = ("Data", "ImageData", "WindowData", "CriteoData")


def hand_down(solver: SolverParameter, net: NetParameter) -> None:
    """Set the fields in the data_param of each layer of a net that lacks them; the message is changed in place."""
    for name in ("bad_record", "bad_record_limit"):
        if not has_field(solver, name):
            continue
        for layer in net.layer:
            if layer.type in _READERS and not has_field(layer.data_param, name):
                setattr(layer.data_param, name, getattr(solver, name))
