"""Remembers where in its file each field of a message was written, for messages that come much later.

A `Place` mirrors a message: where it begins, and the places of its fields. `Source` ties a tree of places to
the text that it came from; `NetSource`, `LayerSource` and `SolverSource` tie it to the message as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mgcaffe.errors import Location, PrototxtError
from mgcaffe.prototxt.lexer import SourceText
from mgcaffe.prototxt.messages import NetParameter, SolverParameter, has_field


@dataclass
class Place:
    """Where one occurrence of a field begins and, if it holds a message, the places of that one's fields."""

    offset: int
    fields: dict[str, list[Place]] = field(default_factory=dict)

    def add(self, name: str, place: Place) -> None:
        """Note one more occurrence of a field."""
        self.fields.setdefault(name, []).append(place)

    def find(self, path: str, index: int = 0) -> Place:
        """Find a field, by its name or a path such as `convolution_param.kernel_size`.

        Args:
            path: field names, the first occurrence of each but the last.
            index: which occurrence of the last one.

        Returns:
            Its place, or that of the nearest message around it that was written.
        """
        place = self
        *outer, last = path.split(".")
        for name in outer:
            if name not in place.fields:
                return place
            place = place.fields[name][0]
        occurrences = place.fields.get(last, [])
        return occurrences[index] if -len(occurrences) <= index < len(occurrences) else place


@dataclass
class Source:
    """A place in a text: answers where the fields of one message were written."""

    text: SourceText
    place: Place

    @property
    def location(self) -> Location:
        """Where the message itself begins."""
        return self.text.location(self.place.offset)

    def field(self, path: str, index: int = 0) -> Location:
        """Say where a field was written, or else the message that would hold it.

        Args:
            path: the field's name, or a path such as `convolution_param.kernel_size`.
            index: which occurrence of a repeated field, counted from 0.
        """
        return self.text.location(self.place.find(path, index).offset)

    def inner(self, path: str, index: int = 0) -> Source:
        """Give the source of a message inside this one."""
        return Source(self.text, self.place.find(path, index))

    def error(self, message: str, path: str = "", index: int = 0, hint: str | None = None) -> PrototxtError:
        """Make the error for something wrong with a field, or with the message if no field is named."""
        place = self.place.find(path, index) if path else self.place
        return self.text.error(message, place.offset, hint)


class LayerSource(Source):
    """Where one layer of a net and its fields were written."""


@dataclass
class NetSource(Source):
    """A net and where it was written. `layers[i]` belongs to `param.layer[i]`, also after upgrades.

    Attributes:
        path: the file.
        param: the NetParameter.
        layers: the sources of its layers.
        upgrades: what was written in an old way and has been brought into today's.
    """

    path: str
    param: NetParameter
    layers: list[LayerSource] = field(default_factory=list)
    upgrades: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.layers:
            self.layers = [LayerSource(self.text, place) for place in self._layer_places()]

    def _layer_places(self) -> list[Place]:
        name = "layer" if self.param.layer else "layers"
        return [self.place.find(name, index) for index in range(len(getattr(self.param, name)))]


@dataclass
class SolverSource(Source):
    """A solver and where it was written.

    Attributes:
        path: the file.
        param: the SolverParameter.
        inline_nets: the sources of the nets written inside it, by field name and index.
        upgrades: what was written in an old way, there too, and has been brought into today's.
        given_elsewhere: where fields were given that the file does not have so, by path: in another file, or as a flag.
    """

    path: str
    param: SolverParameter
    inline_nets: dict[tuple[str, int], NetSource] = field(default_factory=dict)
    upgrades: list[str] = field(default_factory=list)
    given_elsewhere: dict[str, Location] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inline_nets:
            return
        for name in ("net_param", "train_net_param"):
            if has_field(self.param, name):
                self._add_inline(name, 0, getattr(self.param, name))
        for index, net in enumerate(self.param.test_net_param):
            self._add_inline("test_net_param", index, net)

    def note_changes(self, before: SolverParameter, place_of: Callable[[str], Location]) -> None:
        """Note where the fields come from that have changed in `param` since it was `before`.

        Args:
            before: a copy made before the change.
            place_of: the place of a field, given its path.
        """
        for path in _differing(before, self.param):
            self.given_elsewhere[path] = place_of(path)

    def locate(self, path: str, index: int = 0) -> Location:
        """Say where a field was given, also where that was not in the file; of a message, every place."""
        if path in self.given_elsewhere:
            return self.given_elsewhere[path]
        places = [str(place) for name, place in self.given_elsewhere.items() if name.startswith(f"{path}.")]
        if not places:
            return self.field(path, index)
        if self.place.find(path) is not self.place:
            places.insert(0, str(self.field(path)))
        return Location(", ".join(dict.fromkeys(places)))

    def _add_inline(self, name: str, index: int, param: NetParameter) -> None:
        place = self.place.find(name, index)
        self.inline_nets[name, index] = NetSource(self.text, place, self.path, param)

    def inline_net(self, name: str, index: int = 0) -> NetSource:
        """Give the net written inside the solver as `net_param`, `train_net_param` or `test_net_param`.

        Raises:
            KeyError: the solver has no such net.
        """
        return self.inline_nets[name, index]


def _differing(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that a message has, and another of its type has not or with other values."""
    for descriptor, value in after.ListFields():
        name, old = descriptor.name, getattr(before, descriptor.name)
        if hasattr(value, "ListFields"):
            if old != value:
                yield from _differing(old, value, f"{path}{name}.")
        elif old != value or (not hasattr(value, "append") and not has_field(before, name)):
            yield f"{path}{name}"
