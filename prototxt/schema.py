"""What the schema says about each message and field, in the form in which the readers and the printer ask.

protobuf's own descriptors answer the same questions, but differently from one protobuf version to the next
(labels became properties, for one), and more slowly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

INTEGER_RANGES = {
    FieldDescriptorProto.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptorProto.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptorProto.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptorProto.TYPE_UINT64: (0, 2**64 - 1),
}
KINDS = {
    FieldDescriptorProto.TYPE_MESSAGE: "message",
    FieldDescriptorProto.TYPE_ENUM: "enum",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    **dict.fromkeys(INTEGER_RANGES, "integer"),
}
SEVERAL_DEVICES = "On several GPUs train with as many ranks: mpirun -n RANKS engine train SOLVER."
_HINTS = {
    ("V1LayerParameter", "type"): "In the older 'layers' a type is a bare name of 2014, such as CONVOLUTION."
    " Write every layer as 'layer', which takes any type, in quotes, such as \"Convolution\".",
    ("V1LayerParameter", "param"): "In the older 'layers' rates are blobs_lr: 1 and weight_decay: 1."
    " Or write every layer as 'layer', which takes param { lr_mult: 1 }, and its type in quotes.",
    ("LayerParameter", "type"): "In 'layer' a type stands in quotes, such as \"Convolution\"; bare names such as"
    " CONVOLUTION are for the older 'layers'.",
    ("LayerParameter", "param"): 'In \'layer\' the name of shared weights is param { name: "w" }; param: "w" is for'
    " the older 'layers'.",
    ("SolverParameter", "device_id"): SEVERAL_DEVICES,
}
"""What to do where a value is often written wrongly, as where the older and today's form of a layer are mixed up."""


@dataclass
class EnumFacts:
    """The values of one enum, in both directions. Where two names share a number the first one is printed."""

    numbers: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


@dataclass
class FieldFacts:
    """One field: its name and number, what it holds, whether it repeats.

    `kind` is message, enum, string, bytes, bool, float, double or integer; `low` and `high` bound an integer. `hint`
    says how the field is written where that is often mistaken.
    """

    name: str
    number: int
    kind: str
    repeated: bool
    required: bool
    low: int = 0
    high: int = 0
    message: MessageFacts | None = None
    enum: EnumFacts | None = None
    hint: str | None = None


@dataclass
class MessageFacts:
    """One message: its full name and its fields by name."""

    full_name: str
    fields: dict[str, FieldFacts] = field(default_factory=dict)

    @cached_property
    def required(self) -> list[str]:
        """The names of the fields that every such message must have."""
        return [name for name, facts in self.fields.items() if facts.required]


def collect(described: FileDescriptorSet) -> dict[str, MessageFacts]:
    """Collect the facts of every message of a descriptor set, by full name."""
    messages: dict[str, MessageFacts] = {}
    enums: dict[str, EnumFacts] = {}
    sources: dict[str, DescriptorProto] = {}

    def visit(scope: str, holder: Any, nested: Any) -> None:
        for enum in holder.enum_type:
            facts = enums[f"{scope}.{enum.name}"] = EnumFacts()
            for value in enum.value:
                facts.numbers[value.name] = value.number
                facts.names.setdefault(value.number, value.name)
        for message in nested:
            name = f"{scope}.{message.name}"
            messages[name] = MessageFacts(name)
            sources[name] = message
            visit(name, message, message.nested_type)

    for file in described.file:
        visit(file.package, file, file.message_type)
    for name, source in sources.items():
        for described_field in source.field:
            facts = _field_facts(described_field, messages, enums)
            facts.hint = _HINTS.get((source.name, facts.name))
            messages[name].fields[facts.name] = facts
    return messages


def _field_facts(
    described: FieldDescriptorProto, messages: dict[str, MessageFacts], enums: dict[str, EnumFacts]
) -> FieldFacts:
    low, high = INTEGER_RANGES.get(described.type, (0, 0))
    type_name = described.type_name.removeprefix(".")
    return FieldFacts(
        name=described.name,
        number=described.number,
        kind=KINDS[described.type],
        repeated=described.label == FieldDescriptorProto.LABEL_REPEATED,
        required=described.label == FieldDescriptorProto.LABEL_REQUIRED,
        low=low,
        high=high,
        message=messages.get(type_name),
        enum=enums.get(type_name),
    )
