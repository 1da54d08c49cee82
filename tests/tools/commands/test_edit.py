"""`engine edit` as its users run it: what it writes, says and refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.prototxt import blob_array, fill_blob, print_text, read_net, write_binary
from mgcaffe.tools.commands import edit as command
from mgcaffe.tools.convert.proof import TOLERANCE
from mgcaffe.tools.surgery.ends import cut_after
from tests.support.paths import MODELS, ROOT
from tests.support.surgerykit import SHAPES, SMALL, STATE, TRAINS, full, layer, names, save_weights

NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }\nlayer { name: "relu"'
NORMED = TRAINS.replace('layer { name: "relu"', NORM)


@pytest.fixture
def small(engine):
    """A deploy net with weights, and one that trains."""
    engine.write("small.prototxt", "# a comment\n" + SMALL)
    save_weights(full(SMALL), engine.folder / "small.caffemodel")
    engine.write("trains.prototxt", NORMED)
    save_weights(full(NORMED, SHAPES), engine.folder / "trains.caffemodel")
    return engine


def written(engine):
    return sorted(path.name for path in engine.folder.glob("out*"))


def test_operations_are_done_in_one_go_proved_and_written(small):
    words = ("trains.prototxt", "trains.caffemodel", "-o", "out.prototxt", "--deploy", "--fold", "--rename=conv=first")
    result = small.run("edit", *words, "--input_shape=3,6,6", "--json=proof.json")
    assert result.returncode == 0, result.stderr
    assert written(small) == ["out.caffemodel", "out.prototxt"]
    net, weights = read_net("out.prototxt"), read_net("out.caffemodel")
    assert names(net) == ["image", "first", "relu", "drop", "ip", "prob"]
    assert names(weights) == ["first", "ip"] and not any(row.blobs for row in net.layer)
    head = Path("out.prototxt").read_text().splitlines()[0]
    assert head.startswith("# Made by 'engine edit' from trains.prototxt trains.caffemodel; 4 blobs compared, largest")
    for line in ("deploy net: inputs 'image' 1x3x6x6", "folded 1 layer(s): bn into conv", "layer 'conv' is now 'first'",
                 "wrote out.caffemodel", "wrote out.prototxt"):  # fmt: skip
        assert line in result.stdout
    proof = json.loads(Path("proof.json").read_text())
    assert {each["name"] for each in proof["blobs"]} == {"conv@bn", "conv", "drop", "ip"}
    assert 0 <= proof["largest_relative"] < 1e-5
    assert Net.from_file("out.prototxt", phase=TEST).copy_trained_layers("out.caffemodel").skipped == []


def test_a_net_without_weights_is_proved_with_random_ones_and_gets_none(small):
    result = small.run("edit", "small.prototxt", "-o", "out.prototxt", "--cut=conv")
    assert result.returncode == 0, result.stderr
    assert written(small) == ["out.prototxt"] and "comment" not in Path("out.prototxt").read_text()
    assert names(read_net("out.prototxt")) == ["data", "conv"]
    assert "conv@conv  0.00e+00  0.00e+00" in result.stdout


def test_the_shape_of_an_input_comes_from_its_source(engine, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = engine.run("edit", "examples/digits/train_test.prototxt", "-o", str(engine.folder / "out.prototxt"),
                        "--deploy", "--batch_size=4")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert list(read_net(engine.folder / "out.prototxt").layer[0].input_param.shape[0].dim) == [4, 1, 8, 8]
    assert "prepared by transform_param { scale: 0.00390625 }" in result.stdout


def test_there_and_back(small):
    words = ("small.prototxt", "small.caffemodel", "-o", "out.prototxt", "--train_val", "--source=a,b", "--classes=20",
             "--rename=ip=fresh")  # fmt: skip
    result = small.run("edit", *words)
    assert result.returncode == 0, result.stderr
    net = read_net("out.prototxt")
    assert names(net) == ["data", "data", "conv", "relu", "fresh", "loss", "accuracy"]
    assert [row.data_param.source for row in net.layer[:2]] == ["a", "b"] and net.layer[0].data_param.batch_size == 64
    assert names(read_net("out.caffemodel")) == ["conv"]
    back = small.run("edit", "out.prototxt", "out.caffemodel", "-o", "out2.prototxt", "--deploy", "--input_shape=3,6,6")
    assert back.returncode == 0, back.stderr
    assert names(read_net("out2.prototxt")) == ["data", "conv", "relu", "fresh", "prob"]


def test_weights_are_merged_and_conflicts_named(small):
    net = full(SMALL)
    for name, kept in (("a", ["conv"]), ("b", ["ip"])):
        part = read_net("small.caffemodel")
        for row in part.layer:
            if row.name not in kept:
                del row.blobs[:]
        write_binary(part, small.folder / name)
    result = small.run("edit", "small.prototxt", "a", "b", "-o", "out.prototxt")
    assert result.returncode == 0, result.stderr
    assert [row.blobs for row in read_net("out.caffemodel").layer] == [layer(net, "conv").blobs, layer(net, "ip").blobs]
    fill_blob(layer(net, "ip").blobs[1], np.ones(5, np.float32))
    save_weights(net, small.folder / "c")
    result = small.run("edit", "small.prototxt", "b", "c", "-o", "out3.prototxt")
    assert (result.returncode, "differ between files: 'ip' in b and c" in result.stderr) == (65, True), result.stderr
    assert not Path("out3.prototxt").exists()


def test_values_that_differ_end_with_code_65_and_another_name(small, monkeypatch):
    from mgcaffe.tools.surgery import names as operations

    rename = operations.rename

    def spoil(net, names):
        edit = rename(net, names)
        blob = layer(edit.net, "first").blobs[0]
        fill_blob(blob, blob_array(blob) * 1.5)
        return edit

    monkeypatch.setattr(operations, "rename", spoil)
    Path("out.prototxt").write_text("what was there before")
    words = ("edit", "small.prototxt", "small.caffemodel", "-o", "out.prototxt", "--rename=conv=first")
    result = small.run(*words, "--json=proof.json")
    assert result.returncode == 65
    assert "error: blob 'conv" in result.stderr and "more than 0.0001" in result.stderr
    assert "out.prototxt is not written; the net is kept as out.unproven.prototxt" in result.stderr
    assert written(small) == ["out.prototxt", "out.unproven.caffemodel", "out.unproven.prototxt"]
    assert Path("out.prototxt").read_text() == "what was there before"
    assert "; DIFFERS from it: blob 'conv" in Path("out.unproven.prototxt").read_text().splitlines()[0]
    assert json.loads(Path("proof.json").read_text())["largest_relative"] > 0.1
    assert small.run(*words, "--tolerance=2").returncode == 0
    assert small.run(*words, "--no_check").returncode == 0
    assert "not compared with it (--no_check)" in Path("out.prototxt").read_text().splitlines()[0]


def test_the_level_is_the_nets_own_unless_the_flag_gives_one(small):
    deep = 'layer { name: "deep" type: "Power" bottom: "ip" top: "deep" include { min_level: 1 } }\n'
    small.write("levels.prototxt", f"state {{ level: 2 }}\n{SMALL}{deep}")
    for flags, has_deep in (([], True), (["--level=0"], False), (["--level=1"], True)):
        result = small.run("edit", "levels.prototxt", "-o", "out.prototxt", "--rename=conv=first", *flags)
        assert result.returncode == 0, result.stderr
        assert ("deep" in result.stdout.split()) == has_deep


def test_without_a_check_no_data_and_no_shape_are_needed(small):
    words = ("edit", "trains.prototxt", "-o", "out.prototxt", "--rename=conv=first")
    result = small.run(*words)
    assert (result.returncode, "--input_shape" in result.stderr) == (65, True), result.stderr
    result = small.run(*words, "--no_check")
    assert result.returncode == 0 and "not compared: --no_check" in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "the net is missing"),
        (["small.prototxt"], 2, "the name of the output is missing"),
        (["small.prototxt", "-o", "out.caffemodel"], 2, "the name has to end in .prototxt"),
        (["small.prototxt", "-o", "out.prototxt"], 2, "there is nothing to do"),
        (["small.prototxt", "-o", "small.prototxt", "--fold"], 2, "would write over small.prototxt"),
        (["a.prototxt", "small.caffemodel", "-o", "small.prototxt", "--fold"], 2, "would write over small.caffemodel"),
        (["small.prototxt", "-o", "out.prototxt", "--deploy", "--train_val"], 2, "exclude each other"),
        (["small.prototxt", "-o", "out.prototxt", "--deploy", "--loss=hinge"], 2, "--loss goes with --train_val"),
        (["small.prototxt", "-o", "out.prototxt", "--train_val"], 2, "--train_val needs one or two data sources"),
        (["small.prototxt", "-o", "out.prototxt", "--cut=ip", "--batch_size=2"], 2, "--batch_size goes with --deploy"),
        (["small.prototxt", "-o", "out.prototxt", "--rename=a"], 2, "'a' is not OLD=NEW"),
        (["small.prototxt", "-o", "out.prototxt", "--rename=ip=a", "--rename=ip=b"], 2, "--rename gives 'ip' 2 names"),
        (["small.prototxt", "small.prototxt", "-o", "out.prototxt", "--cut=ip"], 65, "small.prototxt holds no weights"),
        (["small.prototxt", "-o", "out.prototxt", "--no_check", "--json=x", "--fold"], 2, "exclude each other"),
        (["absent.prototxt", "-o", "out.prototxt", "--fold"], 65, "absent.prototxt"),
        (["small.prototxt", "absent.caffemodel", "-o", "out.prototxt", "--cut=ip"], 65, "absent.caffemodel"),
        (["small.caffemodel", "-o", "out.prototxt", "--fold"], 65, "small.caffemodel holds weights"),
        (["small.prototxt", "-o", "out.prototxt", "--cut=con"], 65, "did you mean 'conv'?"),
        (["small.prototxt", "-o", "no/out.prototxt", "--cut=conv"], 73, "no/out.prototxt"),
        (["bad.prototxt", "-o", "out.prototxt", "--cut=conv"], 65, "bad.prototxt:4:42: Unknown bottom blob 'dta'"),
        (["type.prototxt", "-o", "out.prototxt", "--cut=conv"], 65, "type.prototxt:6:22: unknown layer type 'RLU'"),
        (["bad.prototxt", "-o", "out.prototxt", "--cut=conv", "--no_check"], 65, "bad.prototxt:4:42: Unknown bottom"),
        (["other.prototxt", "small.caffemodel", "-o", "out.prototxt", "--cut=ip"], 65,
         "weights in small.caffemodel do not fit: layer 'conv'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(small, words, code, said):
    small.write("bad.prototxt", SMALL.replace('bottom: "data"', 'bottom: "dta"'))
    small.write("type.prototxt", SMALL.replace('"ReLU"', '"RLU"'))
    small.write("other.prototxt", SMALL.replace("kernel_size: 3", "kernel_size: 2"))
    result = small.run("edit", *words)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr and not written(small)


def test_damaged_weights_are_refused(small):
    data = (small.folder / "small.caffemodel").read_bytes()
    (small.folder / "cut.caffemodel").write_bytes(data[: len(data) // 2])
    result = small.run("edit", "small.prototxt", "cut.caffemodel", "-o", "out.prototxt", "--cut=ip")
    assert (result.returncode, "cut.caffemodel" in result.stderr) == (65, True), result.stderr


def test_the_first_blocks_of_resnet_50_are_folded(engine):
    net = cut_after(read_net(MODELS / "resnet50" / "deploy.prototxt"), "res3a", STATE).net
    net.layer[0].input_param.shape[0].dim[2:] = [32, 32]
    engine.write("resnet.prototxt", print_text(net))
    save_weights(full(net), engine.folder / "w.caffemodel")
    result = engine.run("edit", "resnet.prototxt", "w.caffemodel", "-o", "out.prototxt", "--fold")
    assert result.returncode == 0, result.stderr
    kinds = [row.type for row in read_net("out.prototxt").layer]
    assert "BatchNorm" not in kinds and "Scale" not in kinds and kinds.count("Convolution") == 15


def test_the_default_tolerance_is_that_of_conversions():
    assert command._TOLERANCE == TOLERANCE
