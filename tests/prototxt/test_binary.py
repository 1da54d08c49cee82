"""Binary files: what is unknown or damaged is said, and writing is whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import (
    BlobProto,
    LayerParameter,
    NetParameter,
    PoolingParameter,
    SolverState,
    parse_binary,
    read_binary,
    read_net,
    write_binary,
)


@pytest.fixture
def net():
    net = NetParameter(name="n")
    net.layer.add(name="a", type="InnerProduct").blobs.add(data=[1, 2, 3]).shape.dim.append(3)
    return net


def test_what_was_written_is_read(tmp_path, net):
    write_binary(net, tmp_path / "net.caffemodel")
    assert read_binary(tmp_path / "net.caffemodel", NetParameter, strict=True) == net
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.caffemodel"]


def test_a_cut_file_is_refused_wherever_it_is_cut(net):
    data = net.SerializeToString()
    whole = 0
    for end in range(1, len(data)):
        try:
            message, _ = parse_binary(data[:end], NetParameter)
            whole += 1
        except PrototxtError as error:
            assert "cut short" in error.message
        else:
            assert not message.layer  # the cut fell between two fields of the net
    assert whole <= 1


def test_unknown_fields_are_named_by_message_and_number(tmp_path, net, caplog):
    net.layer[0].MergeFromString(b"\xf8\xff\x03\x05")  # field 8191, a varint
    net.MergeFromString(b"\x1a\x01x" + b"\xaa\x7d\x01x")  # input, and field 2005
    write_binary(net, tmp_path / "net")
    read_binary(tmp_path / "net", NetParameter)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"{tmp_path / 'net'}: unknown field number 2005 in NetParameter, ignored.",
        f"{tmp_path / 'net'}: unknown field number 8191 in NetParameter.layer[0], ignored.",
    ]
    with pytest.raises(PrototxtError, match="unknown field number 2005 in NetParameter"):
        read_binary(tmp_path / "net", NetParameter, strict=True)


def test_unknown_enum_values_and_other_types_are_named():
    _, problems = parse_binary(b"\x08\x63", PoolingParameter)
    assert problems.found[0].message == "unknown value 99 for pool in PoolingParameter"
    _, problems = parse_binary(b"\x10\x01", LayerParameter)
    assert problems.found[0].message == "field number 2 of another type than type in LayerParameter"


def test_endless_unknown_fields_are_given_up():
    with pytest.raises(PrototxtError, match="1000 such problems came before it, giving up"):
        parse_binary(b"\xa8\x7d\x01" * 5000, NetParameter)


def test_missing_required_fields_are_named():
    with pytest.raises(PrototxtError, match=r"lacks what it must have: .*clip_param\.max"):
        parse_binary(b"\xa2\x09\x05\x0d\0\0\0\0", LayerParameter)


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"\x0a\x02\xff\xfe", {"name": "\xff\xfe"}),
        (b"\x1a\x01a\x1a\x01\xff", {"input": ["a", "\xff"]}),
        (b"\xa2\x06\x04\x0a\x02\xc4\xe3", {"layer": [{"name": "\xc4\xe3"}]}),
    ],
)
def test_strings_that_are_not_utf8_are_read_as_latin_1_and_written_again(tmp_path, data, fields):
    net, problems = parse_binary(data, NetParameter)
    assert net == NetParameter(**fields)
    assert not problems.found
    assert len(problems.foreign) == 1
    write_binary(net, tmp_path / "net")
    assert parse_binary((tmp_path / "net").read_bytes(), NetParameter)[0] == net


def test_one_warning_names_the_first_string_that_is_not_utf8(tmp_path, caplog):
    (tmp_path / "net").write_bytes(b"\x0a\x01\xe9" + b"\xa2\x06\x06\x0a\x01\xe8\x12\x01\xe7")
    net = read_binary(tmp_path / "net", NetParameter, strict=True)
    assert (net.name, net.layer[0].name, net.layer[0].type) == ("\xe9", "\xe8", "\xe7")
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'net'}: NetParameter.name is not UTF-8 and is read as Latin-1, '\xe9', and so are 2 more strings"
        " (NetParameter.layer[0].name, NetParameter.layer[0].type); written again it is UTF-8"
    ]


def test_other_kinds_of_files_are_recognised():
    with pytest.raises(PrototxtError, match="this is an HDF5 file, not a SolverState"):
        parse_binary(b"\x89HDF\r\n\x1a\n", SolverState)


@pytest.mark.parametrize(
    ("begins", "what"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a Git LFS pointer, whose file"),
        ("<!DOCTYPE html>\n<html><body>Not Found</body></html>", "a web page"),
        ("\n <HTML>Sign in</HTML>", "a web page"),
    ],
)
def test_what_a_download_leaves_in_place_of_a_file_is_recognised(tmp_path, begins, what):
    """As text these would be refused at their second word, and as weights too."""
    (tmp_path / "x.caffemodel").write_text(begins)
    with pytest.raises(PrototxtError, match=f"this is {what}"):
        read_net(tmp_path / "x.caffemodel")


@pytest.mark.parametrize("options", [{}, *({"pickle_protocol": protocol} for protocol in (2, 3, 4, 5))])
def test_checkpoints_of_pytorch_are_recognised_with_advice(tmp_path, options):
    """Both the zip file of today and the pickle that was written before 1.6."""
    path = tmp_path / "x.caffemodel"
    torch.save({"a.weight": torch.zeros(3)}, path, _use_new_zipfile_serialization=not options, **options)
    with pytest.raises(PrototxtError, match="as checkpoints of PyTorch") as caught:
        read_net(path)
    assert "FILE.py:FUNCTION" in caught.value.hint
    with pytest.raises(PrototxtError, match="as checkpoints of PyTorch") as caught:
        parse_binary(path.read_bytes(), BlobProto)
    assert caught.value.hint is None


def test_a_failed_write_leaves_nothing_behind(tmp_path, net):
    with pytest.raises(PrototxtError, match="cannot be written: No such file or directory") as caught:
        write_binary(net, tmp_path / "no" / "net")
    assert caught.value.exit_code == 73
    (tmp_path / "taken").mkdir()
    with pytest.raises(PrototxtError, match="cannot be written"):
        write_binary(net, tmp_path / "taken")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_a_message_without_required_fields_is_not_written(tmp_path):
    net = NetParameter()
    net.layer.add().clip_param.min = 0
    with pytest.raises(PrototxtError, match="cannot be put into binary form"):
        write_binary(net, tmp_path / "net")
    assert not list(tmp_path.iterdir())


def test_unreadable_paths(tmp_path):
    with pytest.raises(PrototxtError, match="no such file"):
        read_binary(tmp_path / "none", BlobProto)
    with pytest.raises(PrototxtError, match="this is a directory"):
        read_binary(tmp_path, BlobProto)
    with pytest.raises(PrototxtError, match="a device"):
        read_binary("/dev/zero", BlobProto)
    with pytest.raises(PrototxtError, match="cannot be read"):
        read_binary("a\0b", BlobProto)
    with pytest.raises(PrototxtError, match="cannot be read: File name too long"):
        read_binary("a" * 5000, BlobProto)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    path: Path = tmp_path / "secret"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(PrototxtError, match="no permission"):
        read_binary(path, BlobProto)
