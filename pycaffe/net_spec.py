"""Nets written in Python instead of prototxt (Caffe: net_spec.py).

from mgcaffe.pycaffe import layers as L, params as P

net = NetSpec()
net.data = L.Input(shape=dict(dim=[1, 3, 32, 32]))
net.conv = L.Convolution(net.data, num_output=8, kernel_size=3)
net.pool = L.Pooling(net.conv, pool=P.Pooling.MAX, kernel_size=2)
print(net.to_proto())
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from mgcaffe.prototxt import LayerParameter, NetParameter, message_class
from mgcaffe.pycaffe.problems import ArgumentError, ArgumentTypeError, UnknownTopError

# Types that read the fields of another one.
_BORROWED = {
    "Deconvolution": "convolution",
    "Im2col": "convolution",
    "LSTM": "recurrent",
    "RNN": "recurrent",
}


def param_name_dict() -> dict[str, str]:
    """Return what the field of LayerParameter for a type is named before `_param`: "Convolution" -> "convolution"."""
    fields = LayerParameter.DESCRIPTOR.fields
    names = {
        field.message_type.name.removesuffix("Parameter"): field.name.removesuffix("_param")
        for field in fields
        if field.name.endswith("_param") and field.message_type is not None
    }
    return {**names, **_BORROWED}


_param_names = param_name_dict()  # scripts that fill messages by themselves import it


class Top:
    """One top of a layer to be.

    Attributes:
        fn: the layer.
        n: which of its tops it is.
    """

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> NetParameter:
        """Return the NetParameter of this top and all that it is made from, with names made up."""
        return to_proto(self)


class Function:
    """A layer to be: its type, what it reads, and its fields.

    Args:
        type_name: the layer's type.
        inputs: the tops that it reads.
        params: fields of the layer or of its type's own message; and `ntop` (how many tops, 1) and `in_place`
            (its tops are its bottoms).

    Raises:
        ArgumentTypeError: an input is no Top.
    """

    def __init__(self, type_name: str, inputs: Iterable[Any], params: Mapping[str, Any]) -> None:
        self.type_name = type_name
        self.inputs: list[Top] = list(inputs)
        for number, top in enumerate(self.inputs):
            if not isinstance(top, Top):
                raise ArgumentTypeError(f"{type_name} input {number} is not a Top (type is {type(top)})")
        self.params = dict(params)
        self.ntop = int(self.params.pop("ntop", 1))
        self.in_place = bool(self.params.pop("in_place", False))
        self.tops = tuple(Top(self, number) for number in range(self.ntop))
        if self.in_place and len(self.inputs) != self.ntop:
            raise ArgumentError(
                f"{type_name}: in_place needs as many tops as inputs, not {self.ntop} and {len(self.inputs)}"
            )


class NetSpec:
    """A net to be: tops by name, set and read as attributes or items. Each name becomes a blob's."""

    tops: OrderedDict[str, Top]

    def __init__(self) -> None:
        object.__setattr__(self, "tops", OrderedDict())

    def __setattr__(self, name: str, value: Any) -> None:
        """Name a top, or a layer without tops (Silence)."""
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        """Return the top of this name."""
        try:
            return object.__getattribute__(self, "tops")[name]
        except KeyError:
            raise UnknownTopError(f"the net has no top '{name}'") from None

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    def to_proto(self) -> NetParameter:
        """Return the NetParameter, layers in an order in which they can be computed."""
        names = {id(top): name for name, top in self.tops.items()}
        return _Writer(names).write(self.tops.values())


def to_proto(*tops: Top) -> NetParameter:
    """Return the NetParameter of all that makes these tops, with names made up: Convolution1, ReLU1, ..."""
    return _Writer({}).write(tops)


class _Writer:
    """Turns tops into layers, each layer once.

    Args:
        names: of tops, and of layers without tops, by id.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._made: OrderedDict[int, LayerParameter] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def write(self, tops: Iterable[Any]) -> NetParameter:
        """Return the net that makes all these tops."""
        for top in tops:
            if not isinstance(top, (Top, Function)):
                raise ArgumentTypeError(f"a net is made of tops, not of {type(top)}")
            self._add(top if isinstance(top, Function) else top.fn)
        net = NetParameter()
        net.layer.extend(self._made.values())
        return net

    def _add(self, root: Function) -> None:
        """Add a layer behind those that it reads; without recursion, since nets are deep."""
        waiting = [root]
        while waiting:
            function = waiting[-1]
            missing = [top.fn for top in function.inputs if id(top.fn) not in self._made]
            if missing and id(function) not in self._made:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            if id(function) not in self._made:
                self._made[id(function)] = self._layer(function)

    def _layer(self, function: Function) -> LayerParameter:
        layer = LayerParameter(type=function.type_name)
        layer.bottom.extend(self._made[id(top.fn)].top[top.n] for top in function.inputs)
        if function.in_place:
            layer.top.extend(layer.bottom)
        else:
            layer.top.extend(self._name(top, function) for top in function.tops)
        layer.name = self._name(function.tops[0] if function.tops else function, function)
        own_field = _param_names.get(function.type_name)
        own: Message | None = getattr(layer, f"{own_field}_param") if own_field else None
        for name, value in function.params.items():
            # the layer's own message comes first: the field `engine` is in both
            target = own if own is not None and name in own.DESCRIPTOR.fields_by_name else layer
            if target is layer and name not in layer.DESCRIPTOR.fields_by_name:
                raise ArgumentError(f"layers of type {function.type_name} have no field '{name}'")
            assign_proto(target, name, value)
        return layer

    def _name(self, named: Top | Function, function: Function) -> str:
        """Return the name given to a top or layer, or a made-up one: its type and a number."""
        if id(named) not in self._names:
            self._counts[function.type_name] += 1
            self._names[id(named)] = f"{function.type_name}{self._counts[function.type_name]}"
        return self._names[id(named)]


def assign_proto(message: Message, name: str, value: Any) -> None:
    """Set a field from a Python value: dicts make messages, lists repeated fields.

    Raises:
        ArgumentError: the message has no such field, or the value does not fit it.
    """
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise ArgumentError(f"{message.DESCRIPTOR.name} has no field '{name}'")
    target = getattr(message, name)
    try:
        if hasattr(target, "extend"):
            _extend(target, value if isinstance(value, (list, tuple)) else [value])
        elif isinstance(value, Mapping):
            target.SetInParent()
            for inner, item in value.items():
                assign_proto(target, inner, item)
        elif field.message_type is not None:
            target.CopyFrom(value)
        else:
            setattr(message, name, _plain(value))
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{message.DESCRIPTOR.name}.{name} cannot be {value!r}: {error}") from None


def _extend(target: Any, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, Mapping):
            inner = target.add()
            for name, item in value.items():
                assign_proto(inner, name, item)
        else:
            target.extend([_plain(value)])


def _plain(value: Any) -> Any:
    """Return a numpy number as Python's own."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "DESCRIPTOR") else value


class Layers:
    """Makes layers: `L.Convolution(bottom, num_output=8)` gives the top, with `ntop=2` a tuple of tops."""

    def __getattr__(self, type_name: str) -> Callable[..., Any]:
        """Return the function that makes layers of this type."""
        if type_name.startswith("__"):
            raise AttributeError(type_name)

        def make(*bottoms: Any, **fields: Any) -> Any:
            function = Function(type_name, bottoms, fields)
            if function.ntop == 0:
                return function
            return function.tops[0] if function.ntop == 1 else function.tops

        return make


class Parameters:
    """Values of enums: `P.Pooling.MAX`."""

    def __getattr__(self, type_name: str) -> Any:
        """Return the message class of this layer type, whose attributes are the values."""
        try:
            return message_class(f"{type_name}Parameter")
        except KeyError:
            raise AttributeError(f"the schema has no message {type_name}Parameter") from None


layers = Layers()
params = Parameters()
