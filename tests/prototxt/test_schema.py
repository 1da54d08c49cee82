"""The schema: what is shipped is what the tables say, Caffe's facts are kept, and clashes are resolved."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

import mgcaffe.prototxt
from mgcaffe.prototxt import build_schema, message_class, messages, schema_tables
from mgcaffe.prototxt.messages import message_facts
from tests.support.paths import ROOT

DATA = Path(__file__).parent / "data"


def facts(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as table:
        return list(csv.DictReader(table))


def field(message: str, name: str):
    return message_facts(message_class(message)).fields[name]


def test_shipped_files_are_built_from_the_tables():
    built = build_schema.build()
    assert (build_schema.HERE / "caffe.binpb").read_bytes() == built["caffe.binpb"]
    assert (build_schema.HERE / "caffe.proto").read_bytes() == built["caffe.proto"]
    assert (build_schema.HERE / "messages.pyi").read_bytes() == built["messages.pyi"]
    assert (ROOT / "docs" / "fields.md").read_bytes() == built["fields.md"]


def test_a_text_about_a_field_that_does_not_exist_is_refused(tmp_path):
    for table in build_schema.HERE.glob("*.csv"):
        shutil.copy(table, tmp_path)
    with (tmp_path / "caffe_docs.csv").open("a") as docs:
        docs.write("PoolingParameter,kernel,The window.\n")
    with pytest.raises(ValueError, match="PoolingParameter"):
        build_schema.build(tmp_path)


def test_every_field_of_caffe_and_of_ours_says_what_it_means():
    docs = schema_tables.read_docs(build_schema.HERE / "caffe_docs.csv")
    silent = [
        f"{field.message}.{field.name}"
        for field in schema_tables.read_fields(build_schema.HERE / "caffe_fields.csv")
        if field.origin in ("bvlc", "mgcaffe") and field.message not in ("V0LayerParameter", "V1LayerParameter")
        if (field.message, field.name) not in docs and (field.type, "") not in docs
    ]
    assert not silent


def described_messages():
    described = FileDescriptorSet.FromString((build_schema.HERE / "caffe.binpb").read_bytes())
    found = {}

    def visit(scope, nested):
        for message in nested:
            found[scope + message.name] = message
            visit(f"{scope}{message.name}.", message.nested_type)

    visit("", described.file[0].message_type)
    return found


def test_every_field_of_caffe_keeps_number_type_label_default_and_packing():
    described = described_messages()
    types = {number: name for name, number in build_schema.SCALARS.items()}
    labels = {number: name for name, number in build_schema.LABELS.items()}
    for row in facts("schema_fields.csv"):
        if row["origin"] != "bvlc":
            continue
        found = next(f for f in described[row["message"]].field if f.name == row["field"])
        composite = found.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_ENUM)
        type_name = found.type_name.removeprefix(".caffe.") if composite else types[found.type]
        assert found.number == int(row["number"])
        assert type_name == row["type"]
        assert labels[found.label] == row["label"]
        assert found.default_value == row["default"]
        assert found.options.packed == (row["packed"] == "packed")


def test_every_enum_value_of_caffe_keeps_its_number():
    for row in facts("schema_enums.csv"):
        if row["origin"] != "bvlc":
            continue
        outer, _, _ = row["enum"].rpartition(".")
        holder = message_class(outer) if outer else messages
        assert getattr(holder, row["value"]) == int(row["number"])


def test_every_field_of_every_fork_can_be_named():
    for row in facts("schema_fields.csv"):
        assert row["field"] in message_facts(message_class(row["message"])).fields


@pytest.mark.parametrize(
    ("message", "name", "number"),
    [
        ("SolverParameter", "layer_wise_reduce", 41),  # BVLC's own
        ("SolverParameter", "eval_type", 241),  # SSD's 41 is BVLC's, NVIDIA's 241 is free
        ("SolverParameter", "plateau_winsize", 43),  # SSD's
        ("SolverParameter", "min_lr", 30043),  # NVIDIA's, lost to SSD's
        ("SolverParameter", "warmup_iter", 40048),  # Intel's, lost to NVIDIA's
        ("SolverParameter", "larc", 49),
        ("LayerParameter", "recurrent_param", 146),  # BVLC's number, not NVIDIA's 151
        ("LayerParameter", "mn_activation_param", 40151),  # which stays NVIDIA's all the same
        ("LayerParameter", "smooth_l1_loss_param", 40148),
        ("LossParameter", "label_smoothing", 4),
        ("LossParameter", "pre_fixed_normalizer", 40004),
        ("SolverParameter", "comm_param", 1000),
        ("SolverState", "engine_state", 1000),
    ],
)
def test_clashing_numbers_go_to_the_earlier_origin(message, name, number):
    assert field(message, name).number == number


def test_clashing_enum_values_go_to_the_earlier_origin():
    modes = field("LossParameter", "normalization").enum
    assert modes.numbers["NONE"] == 3
    assert modes.numbers["PRE_FIXED"] == 40003


def test_a_clash_of_our_own_numbers_with_caffes_is_refused():
    def row(origin, name):
        return schema_tables.Field(origin, "M", name, 1, "int32", "optional", "", False, 1)

    with pytest.raises(KeyError):
        schema_tables.merge_fields([row("bvlc", "a"), row("mgcaffe", "b")])


def test_defaults_are_caffes_where_forks_differ():
    assert message_class("SolverParameter")().test_initialization is True
    assert message_class("DataParameter")().prefetch == 4


def test_our_own_messages_have_their_defaults():
    comm = message_class("CommParameter")()
    assert comm.schedule == comm.AUTO
    assert (comm.bucket_mb, comm.calibration_iterations) == (25, 10)
    assert [comm.AUTO, comm.OPTIMAL, comm.MGWFBP, comm.WFBP, comm.SINGLE, comm.THRESHOLD] == list(range(6))


def test_messages_and_enum_values_can_be_imported_from_the_package():
    from mgcaffe.prototxt import TEST, TRAIN, NetParameter, PoolingParameter

    assert (TRAIN, TEST, PoolingParameter.STOCHASTIC) == (0, 1, 2)
    assert NetParameter().state.phase == TEST
    assert "LayerParameter" in dir(mgcaffe.prototxt)
    with pytest.raises(AttributeError, match="NoSuchMessage"):
        _ = mgcaffe.prototxt.NoSuchMessage
