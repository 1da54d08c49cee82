"""The commands that write upgraded files."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from mgcaffe.engine.weights.shards import RowsToWrite, ShardSet, encode_shard
from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_CANNOT_WRITE, EXIT_OK, EXIT_USAGE
from mgcaffe.prototxt import NetParameter, SolverParameter, parse_text, read_net
from mgcaffe.tools.commands import upgrade_net_proto_binary, upgrade_net_proto_text, upgrade_solver_proto_text
from tests.support.paths import ROOT

COMMANDS = {
    module.__name__.rpartition(".")[2]: module
    for module in (upgrade_net_proto_text, upgrade_net_proto_binary, upgrade_solver_proto_text)
}

V0 = """\
name: "old"
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "data" top: "pad" }
layers { layer { name: "conv" type: "conv" num_output: 2 kernelsize: 3
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 } } bottom: "pad" top: "conv" }
"""
V2 = """\
name: "old"
layer { name: "input" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 2 pad: 1 kernel_size: 3 }
  blobs { num: 1 channels: 1 height: 1 width: 2 data: 1 data: 2 } }
"""


def net(text: str):
    return parse_text(text, NetParameter)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.prototxt").write_text(V0)
    (tmp_path / "old.caffemodel").write_bytes(net(V0).SerializeToString())
    return tmp_path


def test_the_commands_are_installed():
    listed = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]\n")[2]
    for name in COMMANDS:
        assert f'{name} = "mgcaffe.tools.commands.{name}:main"\n' in listed.partition("\n[")[0] + "\n"


@pytest.mark.parametrize("given", ["old.prototxt", "old.caffemodel"])
@pytest.mark.parametrize("command", ["upgrade_net_proto_text", "upgrade_net_proto_binary"])
def test_a_net_is_written_in_todays_form(folder, capsys, command, given):
    assert COMMANDS[command].main([given, "new"]) == EXIT_OK
    if command.endswith("text"):
        assert net((folder / "new").read_text()) == net(V2)
    else:
        assert NetParameter.FromString((folder / "new").read_bytes()) == net(V2)
    assert capsys.readouterr().err.splitlines() == [
        f"{given}: upgraded 2 layers in the form of 2013 (V0); 1 of them, of type padding,"
        " went into the pad of those that read them",
        f"{given}: upgraded 1 input fields, now a layer of type Input",
        "wrote new",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["new", "old.caffemodel", "old.prototxt"]


def test_what_is_in_todays_form_is_written_as_it_is(folder, capsys):
    (folder / "new.prototxt").write_text(V2)
    assert upgrade_net_proto_text.main(["new.prototxt", "same.prototxt"]) == EXIT_OK
    assert net((folder / "same.prototxt").read_text()) == net(V2)
    assert "was in today's form already" in capsys.readouterr().err


def test_a_solver_is_written_in_todays_form_with_its_nets(folder, capsys):
    (folder / "solver.prototxt").write_text(
        f"base_lr: 0.1 solver_type: ADAGRAD\nnet_param {{\n{V0}}}\ntest_net_param {{ layers {{ type: RELU }} }}\n"
    )
    assert upgrade_solver_proto_text.main(["solver.prototxt", "new"]) == EXIT_OK
    wanted = f'base_lr: 0.1 type: "AdaGrad" net_param {{ {V2} }} test_net_param {{ layer {{ type: "ReLU" }} }}'
    assert parse_text((folder / "new").read_text(), SolverParameter) == parse_text(wanted, SolverParameter)
    told = capsys.readouterr().err
    assert 'upgraded solver_type, now type: "AdaGrad"' in told
    assert "upgraded net_param: 2 layers in the form of 2013 (V0)" in told
    assert "upgraded test_net_param: 1 layers in the form before 2015 (V1)" in told


@pytest.mark.parametrize("command", ["upgrade_net_proto_text", "upgrade_net_proto_binary"])
def test_a_file_can_be_upgraded_in_place(folder, command):
    (folder / "link").symlink_to("old.prototxt")
    assert COMMANDS[command].main(["link", "link"]) == EXIT_OK
    assert (folder / "link").is_symlink()
    assert read_net(folder / "old.prototxt") == net(V2)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/stdout")
def test_the_file_to_write_may_be_a_pipe(folder):
    reader, writer = os.pipe()
    with os.fdopen(reader) as output:
        assert upgrade_net_proto_text.main(["old.prototxt", f"/dev/fd/{writer}"]) == EXIT_OK
        os.close(writer)
        assert net(output.read()) == net(V2)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("words", [[], ["a"], ["a", "b", "c"]])
def test_another_number_of_files_is_a_usage_error(folder, capsys, command, words):
    assert COMMANDS[command].main(words) == EXIT_USAGE
    told = capsys.readouterr().err
    assert f"{command} takes two files, not {len(words)}" in told
    assert f"usage: {command} IN OUT" in told


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help(folder, capsys, command, word):
    assert COMMANDS[command].main([word]) == EXIT_OK
    assert capsys.readouterr().out.startswith(f"usage: {command} IN OUT")


def broken(text: str, says: str):
    return pytest.param(text, says, id=says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        broken("layers { layer { type: 'convv' } }", "in:1:18: unknown layer type 'convv'"),
        broken("layer { name: 'a'", "in:1:"),
        broken("layer { name: 'a' colour: 3 }", "in:1:19: unknown field 'colour'"),
        broken("base_lr: 1", "this is a solver, not a net"),
        broken("", "empty"),
    ],
)
@pytest.mark.parametrize("target", ["out", "in"])
def test_a_bad_file_gives_one_message_and_writes_nothing(folder, capsys, text, says, target):
    (folder / "in").write_text(text)
    before = sorted(path.name for path in folder.iterdir())
    assert upgrade_net_proto_text.main(["in", target]) == EXIT_BAD_INPUT
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "in").read_text() == text


def test_missing_and_unwritable_files(folder, capsys):
    assert upgrade_net_proto_text.main(["absent", "out"]) == EXIT_BAD_INPUT
    assert "absent: no such file" in capsys.readouterr().err
    for target in ("no/such/out", "."):
        assert upgrade_net_proto_binary.main(["old.caffemodel", target]) == EXIT_CANNOT_WRITE
        assert "cannot be written" in capsys.readouterr().err


def test_a_net_is_no_solver(folder, capsys):
    assert upgrade_solver_proto_text.main(["old.prototxt", "out"]) == EXIT_BAD_INPUT
    assert "this is a net, not a solver" in capsys.readouterr().err


def test_tables_in_shards_come_into_the_one_file(tmp_path, capsys):
    shards = ShardSet("a.caffemodel", 2, "one")
    for number in range(2):
        rows = [RowsToWrite("a/0", number, 2, np.array([[number, 3.0]], np.float32))]
        content = encode_shard(shards, number, f"rank {number}", 5, rows)
        (tmp_path / shards.name(number)).write_bytes(b"".join(content))
    message = NetParameter()
    message.layer.add(name="a", type="EmbeddingBag").blobs.add().CopyFrom(shards.reference("a/0", (2, 2)))
    (tmp_path / "a.caffemodel").write_bytes(message.SerializeToString())
    assert (
        upgrade_net_proto_binary.main([str(tmp_path / "a.caffemodel"), str(tmp_path / "whole.caffemodel")]) == EXIT_OK
    )
    (layer,) = NetParameter.FromString((tmp_path / "whole.caffemodel").read_bytes()).layer
    assert list(layer.blobs[0].data) == [0, 3, 1, 3] and layer.type == "EmbeddingBag"
    assert not layer.blobs[0].HasField("shards")
    (tmp_path / shards.name(1)).unlink()
    assert upgrade_net_proto_binary.main([str(tmp_path / "a.caffemodel"), str(tmp_path / "b")]) == EXIT_BAD_INPUT
    assert "a.caffemodel.shard_2_of_2.safetensors" in capsys.readouterr().err
