"""Files: text or binary by content, mix-ups named, and every bad file a clear error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import (
    BlobProto,
    NetParameter,
    SolverParameter,
    SolverState,
    read_net,
    read_net_source,
    read_solver,
    read_solver_source,
    write_binary,
    write_text,
)

NET = "name: 'n' layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' }"
SOLVER = "net: 'n.prototxt' base_lr: 0.1 type: 'SGD' max_iter: 3"


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "file") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(read, path, **kwargs) -> PrototxtError:
    start = time.perf_counter()
    with pytest.raises(PrototxtError) as caught:
        read(path, **kwargs)
    assert time.perf_counter() - start < 2
    assert caught.value.exit_code == 65
    assert caught.value.location is not None
    assert caught.value.location.file == str(path)
    return caught.value


def test_text_and_binary_are_distinguished_by_content(write):
    net = read_net(write(NET, "net.caffemodel"))
    assert read_net(write(net.SerializeToString(), "net.prototxt")) == net
    solver = read_solver(write(SOLVER))
    assert read_solver(write(solver.SerializeToString())) == solver


def test_a_short_binary_message_that_looks_like_text(write):
    message = NetParameter(name="a name of thirty-two characters!")
    assert all(byte >= 32 or byte == 10 for byte in message.SerializeToString())
    assert read_net(write(message.SerializeToString())) == message


GBK = NET.encode().replace(b"'a'", b"'\xc4\xe3'").replace(b"'n'", b"'\xba\xc3'")


@pytest.mark.parametrize("form", ["text", "binary", "old"])
def test_nets_whose_strings_are_not_utf8_are_read_and_written_again(write, tmp_path, caplog, form):
    """Caffe takes a string's bytes as they are, so names in GBK are found in Chinese files."""
    content = GBK
    if form != "text":
        net = read_net(write(NET.replace("layer {", "layers {").replace("'ReLU'", "RELU") if form == "old" else NET))
        content = net.SerializeToString().replace(b"\x0a\x01a", b"\x0a\x02\xc4\xe3")
        length = content.index(b"\x0a\x02\xc4\xe3") - 1
        content = content[:length] + bytes([content[length] + 1]) + content[length + 1 :]
    path = write(content)
    caplog.clear()
    net = read_net(path)
    assert net.layer[0].name == "\xc4\xe3"
    (warning,) = [record.message for record in caplog.records if "Latin-1" in record.message]
    assert warning.startswith(f"{path}:1:1: name is" if form == "text" else f"{path}: NetParameter.layer[0].name is")
    caplog.clear()
    write_text(net, tmp_path / "text")
    write_binary(net, tmp_path / "binary")
    assert read_net(tmp_path / "text") == read_net(tmp_path / "binary") == net
    assert not caplog.records


def test_a_mistake_in_a_text_that_is_not_utf8_is_named_for_itself(write):
    error = refused(read_net, write(GBK + b"\nlayer { name: 'b' "))
    assert "the '{' of 'layer' is never closed" in error.message
    assert error.location.line == 2


@pytest.mark.parametrize("read", [read_net, read_solver])
def test_a_broken_text_that_is_not_utf8_is_no_binary_message(write, read):
    """As a message it would be a name of nine bytes, one of them beyond ASCII."""
    error = refused(read, write(b"\n\tname: '\xe9x"))
    assert error.message.startswith("this string is not closed") and error.location.line == 2


def test_the_sources_know_their_file(write):
    path = write(NET)
    assert read_net_source(path).path == str(path)
    assert read_net_source(path).layers[0].location.file == str(path)
    binary = write(read_net(path).SerializeToString())
    assert str(read_net_source(binary).layers[0].location) == str(binary)
    assert read_solver_source(write(SOLVER)).field("base_lr").column == 19


def test_a_file_that_is_neither_gives_both_reasons(write):
    error = refused(read_net, write(b"\x7fELF\x02\x01\x01\0\xff\xff"))
    assert "neither as text nor in binary" in error.message
    assert "as text: unexpected character 'U+007F' (line 1, column 1)" in error.message
    assert "in binary: 10 bytes that are no NetParameter" in error.message


@pytest.mark.parametrize("read", [read_net, read_solver])
@pytest.mark.parametrize("content", ["", " \n\t\n", "# nothing here\n"])
def test_empty_files(read, content, write):
    assert "this file is empty" in refused(read, write(content)).message


def test_a_solver_given_as_a_net(write):
    error = refused(read_net, write("# comment\n" + SOLVER))
    assert "this is a solver, not a net: it has 'net'" in error.message
    assert error.location is not None and error.location.line == 2
    binary = SolverParameter(net="n", base_lr=0.1, max_iter=300, snapshot_prefix="s")
    assert "this is a solver, not a net" in refused(read_net, write(binary.SerializeToString())).message


def test_a_net_given_as_a_solver(write):
    assert "this is a net, not a solver: it has 'layer'" in refused(read_solver, write(NET)).message
    binary = read_net(write(NET)).SerializeToString()
    assert "this is a net, not a solver" in refused(read_solver, write(binary)).message


def test_unknown_fields_warn_or_are_refused(write, caplog):
    path = write(NET + "\nunheard: 1")
    assert read_net(path).layer[0].name == "a"
    assert caplog.messages == [f"{path}:2:1: unknown field 'unheard' in NetParameter, ignored."]
    assert "unknown field 'unheard'" in refused(read_net, path, strict=True).message
    path = write(SOLVER + "\nbase_rl: 1")
    assert read_solver(path).max_iter == 3
    assert "Did you mean 'base_lr'?" in refused(read_solver, path, strict=True).message


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 1000,
        b"layer {" * 100_000,
        b"\xa2\x06\x80" * 10_000,
        b"\x0b" * 100_000,  # groups inside groups, in binary
        b"input_dim: " + b"9" * 1_000_000,
        b"name: '" + b"\\" * 1_000_001,
        b"name: " + b"'a' " * 10 + b"'",
        b"# \xff\xfe" * 10,
        b"\xff\xfel\0a\0",
        b"- " * 100_000,
        b"layer { name: 'a' " + b" " * 1_000_000 + b"\x01}",
        b"#" * 1_000_000 + b"\n}",
        b"[" * 100_000,
        b"layer: [" * 100_000,
        b"1e" * 100_000,
    ],
)
def test_hostile_files_end_fast_with_a_clear_error(content, write):
    refused(read_net, write(content))


def test_unreadable_paths(tmp_path):
    assert "no such file" in refused(read_net, tmp_path / "none").message
    assert "this is a directory" in refused(read_solver, tmp_path).message


def test_a_message_of_another_kind(write):
    blob = BlobProto(data=[1.0] * 20, num=1)
    error = refused(read_net, write(blob.SerializeToString()))
    assert "neither as text nor in binary" in error.message


def test_a_solverstate_in_the_place_of_weights(write):
    state = SolverState(iter=30, learned_net="net_iter_30.caffemodel", history=[BlobProto(data=[1.0] * 200)])
    error = refused(read_net, write(state.SerializeToString()))
    assert "this is a solverstate, not weights" in error.message
    assert "--snapshot" in str(error)
