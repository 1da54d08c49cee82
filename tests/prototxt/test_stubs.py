"""The stubs of the messages say what the message classes are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from mgcaffe.prototxt import ConvolutionParameter, LayerParameter, build_schema, has_field, messages
from mgcaffe.pycaffe.proto import caffe_pb2

STUBS = ast.parse((build_schema.HERE / "messages.pyi").read_text(encoding="utf-8"))
KINDS = {"int": int, "float": float, "bool": bool, "str": str, "bytes": bytes}


def classes(holder: ast.Module | ast.ClassDef, base: str) -> Iterator[ast.ClassDef]:
    for node in holder.body:
        if isinstance(node, ast.ClassDef) and ast.unparse(node.bases[0]) == base:
            yield node


def messages_with_stubs() -> Iterator[tuple[ast.ClassDef, type]]:
    def visit(holder, found):
        for stub in classes(holder, "Message"):
            message = getattr(found, stub.name)
            yield stub, message
            yield from visit(stub, message)

    yield from visit(STUBS, messages)


def method(stub: ast.ClassDef, name: str) -> ast.FunctionDef:
    return next(node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == name)


def test_every_name_of_the_schema_has_a_stub():
    stubs = {node.name for node in STUBS.body if isinstance(node, ast.ClassDef)}
    values = {node.target.id for node in STUBS.body if isinstance(node, ast.AnnAssign)}
    assert stubs | values == set(dir(messages)) | {"_Enum"}


def test_every_field_has_the_type_that_its_stub_gives_it():
    checked = 0
    for stub, message in messages_with_stubs():
        given = {node.target.id: ast.unparse(node.annotation) for node in stub.body if isinstance(node, ast.AnnAssign)}
        enums = {node.name for node in classes(stub, "_Enum")}
        scalars = {name: kind for name, kind in given.items() if not kind.startswith("ClassVar")}
        fields = {name for name in message.DESCRIPTOR.fields_by_name if name != "lambda"}
        composite = {
            node.name: ast.unparse(node.returns)
            for node in stub.body
            if isinstance(node, ast.FunctionDef) and node.decorator_list
        }
        assert {*scalars, *composite} == fields, stub.name
        assert set(message.DESCRIPTOR.enum_types_by_name) == enums
        for name, kind in scalars.items():
            assert isinstance(getattr(message(), name), KINDS.get(kind, int)), f"{stub.name}.{name}"
        for name, kind in composite.items():
            value, (outer, _, inner) = getattr(message(), name), kind.partition("[")
            found = type(value).__name__
            assert found == outer.rpartition(".")[2] or (inner and found.startswith("Repeated")), f"{stub.name}.{name}"
        checked += len(fields)
    assert checked > 700


def test_has_field_takes_the_names_that_protobuf_takes():
    for stub, message in messages_with_stubs():
        names = [node.value for node in ast.walk(method(stub, "HasField")) if isinstance(node, ast.Constant)]
        accepted = []
        for name in message.DESCRIPTOR.fields_by_name:
            try:
                message().HasField(name)
            except ValueError:
                continue
            accepted.append(name)
        assert [name for name in names if isinstance(name, str)] == [name for name in accepted if name != "lambda"]


def test_every_constructor_takes_its_fields():
    for stub, message in messages_with_stubs():
        arguments = [argument.arg for argument in method(stub, "__init__").args.kwonlyargs]
        message(**dict.fromkeys(arguments))
        assert set(arguments) == set(message.DESCRIPTOR.fields_by_name) - {"lambda"}


def test_the_documentation_of_a_field_is_in_its_stub():
    stub = next(stub for stub, message in messages_with_stubs() if message is ConvolutionParameter)
    assert ast.get_docstring(method(stub, "kernel_size")).startswith("Size of the filter")
    place = next(i for i, node in enumerate(stub.body) if getattr(getattr(node, "target", None), "id", "") == "group")
    assert "Default: 1." in stub.body[place + 1].value.value


@pytest.mark.parametrize("module", [messages, caffe_pb2])
def test_a_top_level_enum_has_a_name_and_its_values_are_numbers(module):
    assert isinstance(module.Phase, EnumTypeWrapper)
    assert module.Phase.Name(module.TEST) == "TEST"
    assert "Phase" in dir(module)


def test_has_field_asks_by_a_name_that_is_worked_out():
    layer = LayerParameter(type="Convolution")
    assert [has_field(layer, name) for name in ("type", "name")] == [True, False]
