"""In what two nets differ: layers of one alone, and fields with other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from mgcaffe.prototxt import LayerParameter, NetParameter, print_text
from mgcaffe.prototxt.messages import message_facts

_SHOWN = 60
_NOT_SET = "not set"


@dataclass(frozen=True)
class FieldDifference:
    """A field with two values.

    Attributes:
        layer: the layer's name (with `#2` for the second of the name, and so on); empty for a field of the net.
        field: the path, as `convolution_param.kernel_size[0]`.
        a, b: the values as text.
    """

    layer: str
    field: str
    a: str
    b: str


@dataclass(frozen=True)
class NetDiff:
    """In what net A differs from net B.

    Attributes:
        only_in_a, only_in_b: layers, by name and type.
        fields: what differs in the others and in the nets themselves.
        moved: whether the layers of both stand in another order.
    """

    only_in_a: list[str]
    only_in_b: list[str]
    fields: list[FieldDifference]
    moved: bool

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not (self.only_in_a or self.only_in_b or self.fields or self.moved)


def diff_nets(a: NetParameter, b: NetParameter) -> NetDiff:
    """Compare two nets in today's form; weights are left aside.

    Layers belong together by their names, several of one name in their order. A field that is set to its default is
    another one than a field that is not set.
    """
    first, second = numbered(a.layer), numbered(b.layer)
    both = [name for name in first if name in second]
    fields = [FieldDifference("", path, *texts) for path, *texts in _fields(a, b, skip=("layer", "layers"))]
    for name in both:
        fields += [
            FieldDifference(name, path, *texts) for path, *texts in _fields(first[name], second[name], ("blobs",))
        ]
    return NetDiff(
        [f"{name} ({layer.type})" for name, layer in first.items() if name not in second],
        [f"{name} ({layer.type})" for name, layer in second.items() if name not in first],
        fields,
        both != [name for name in second if name in first],
    )


def numbered(layers: Sequence[LayerParameter]) -> dict[str, LayerParameter]:
    """Return layers by name; the second of a name has `#2` behind it, and so on."""
    seen: Counter[str] = Counter()
    found = {}
    for layer in layers:
        seen[layer.name] += 1
        found[layer.name if seen[layer.name] == 1 else f"{layer.name}#{seen[layer.name]}"] = layer
    return found


def _fields(a: Message, b: Message, skip: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Path and both values of every field that differs."""
    set_in = [{descriptor.name for descriptor, _ in message.ListFields()} for message in (a, b)]
    for name, facts in message_facts(a).fields.items():
        if name in skip or not any(name in names for names in set_in):
            continue
        values = [_values(message, name, facts.repeated) for message in (a, b)]
        for index in range(max(map(len, values))):
            path = f"{name}[{index}]" if max(map(len, values)) > 1 else name
            one, two = (row[index] if index < len(row) else None for row in values)
            if isinstance(one, Message) and isinstance(two, Message):
                yield from ((f"{path}.{inner}", *texts) for inner, *texts in _fields(one, two))  # type: ignore[misc]
            elif one != two:
                yield path, _text(one, facts), _text(two, facts)


def _values(message: Message, name: str, repeated: bool) -> list[Any]:
    if repeated:
        return list(getattr(message, name))
    return [getattr(message, name)] if message.HasField(name) else []


def _text(value: Any, facts: Any) -> str:
    """Return a value as a prototxt has it, shortened."""
    if value is None:
        return _NOT_SET
    if isinstance(value, Message):
        text = " ".join(print_text(value).split())
        return _short(f"{{ {text} }}" if text else "{ }")
    if facts.kind == "enum":
        return str(facts.enum.names[value])
    if isinstance(value, bool):
        return str(value).lower()
    return _short(f"{value:.8g}" if isinstance(value, float) else str(value))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
