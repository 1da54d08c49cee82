"""What an operation on a net gives: the new net, which of its values are the old net's, and what to say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mgcaffe.engine.types import Array
from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import LayerParameter, NetParameter, blob_array
from mgcaffe.prototxt.blobs import without_blobs


@dataclass(frozen=True)
class Edit:
    """A net after some operations.

    Attributes:
        net: the NetParameter; its layers hold their weights in `blobs`.
        origin: for each layer that should give the same tops as a layer of the first net did: that layer's name.
        notes: what was done, a line each, for the user.
    """

    net: NetParameter
    origin: dict[str, str]
    notes: tuple[str, ...] = ()

    @classmethod
    def begin(cls, net: NetParameter) -> Edit:
        """Return a net with nothing done to it."""
        return cls(net, {layer.name: layer.name for layer in net.layer})

    def then(self, operation: Callable[[NetParameter], Edit]) -> Edit:
        """Return what an operation makes of this net, with the origins in the first one."""
        done = operation(self.net)
        origin = {new: self.origin[old] for new, old in done.origin.items() if old in self.origin}
        return Edit(done.net, origin, (*self.notes, *done.notes))


def with_layers(net: NetParameter, layers: Iterable[LayerParameter]) -> NetParameter:
    """Return a net (upgraded to today's form) with other layers; its name and its other fields stay."""
    made = NetParameter()
    for name in ("name", "force_backward", "debug_info"):
        if net.HasField(name):
            setattr(made, name, getattr(net, name))
    if net.HasField("state"):
        made.state.CopyFrom(net.state)
    made.layer.extend(layers)
    return made


def blob_of(layer: LayerParameter, index: int) -> Array:
    """Return the values of one of a layer's weights.

    Raises:
        PrototxtError: the blob does not hold what its shape says; names the layer.
    """
    try:
        return blob_array(layer.blobs[index])
    except PrototxtError as error:
        raise PrototxtError(f"layer '{layer.name}', blob {index}: {error.message}") from None


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the ones in front that old files have."""
    start = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[start:]


def weights_of(net: NetParameter) -> NetParameter:
    """Return the layers that have weights: one without would not fit the net that starts it from its fillers."""
    return NetParameter(name=net.name, layer=[layer for layer in net.layer if layer.blobs])


def without_weights(net: NetParameter) -> NetParameter:
    """Return a net as it stands in a prototxt."""
    return with_layers(net, [without_blobs(layer) for layer in net.layer])
