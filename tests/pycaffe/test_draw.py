"""draw: every net gives a graph, and what is not installed is named."""

import shutil

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.prototxt import TEST, TRAIN, parse_net, read_net
from mgcaffe.pycaffe import draw
from tests.support.paths import MODELS
from tests.support.pycaffe_nets import DEPLOY, SIMPLE

NETS = [path for path in sorted(MODELS.glob("*/*.prototxt")) if path.name != "solver.prototxt"]


@pytest.mark.parametrize("path", NETS, ids=[f"{path.parent.name}/{path.name}" for path in NETS])
def test_every_model_is_drawn(path):
    net = read_net(path)
    for rankdir in ("LR", "TB"):
        text = draw.get_dot(net, rankdir)
        assert text.count("layer0 [") == 1
        assert text.count("{") == text.count("}")
    assert sum(f"layer{index} [" in text for index in range(len(net.layer))) == len(net.layer)


def test_layers_tell_what_they_are():
    text = draw.get_dot(parse_net(SIMPLE).param, display_lrm=True)
    assert 'label="conv\\n(Convolution)\\nkernel size: 2\\nstride: 1\\npad: 3\\nlr mult: 1\\nlr mult: 1"' in text
    assert '-> "blob ip_blob" [label="13"];' in text
    assert '"blob conv" -> layer2;' in text
    assert '[label="13"]' not in draw.get_dot(parse_net(SIMPLE).param, label_edges=False)


def test_only_the_layers_of_a_phase_are_drawn():
    net = parse_net(
        'layer { name: "a" type: "Input" top: "a" include { phase: TRAIN } }'
        'layer { name: "b" type: "Input" top: "a" exclude { phase: TRAIN } }'
    ).param
    assert '"a\\n(Input)"' in draw.get_dot(net, phase=TRAIN)
    assert '"b\\n(Input)"' not in draw.get_dot(net, phase=TRAIN)
    assert '"b\\n(Input)"' in draw.get_dot(net, phase=TEST)
    assert "a\\n" in draw.get_dot(net)
    assert "b\\n" in draw.get_dot(net)


def test_names_are_quoted():
    net = parse_net('layer { name: "a\\"b" type: "Input" top: "x" }').param
    assert '"a\\"b\\n(Input)"' in draw.get_dot(net)


def test_text_needs_nothing_installed(tmp_path):
    draw.draw_net_to_file(parse_net(DEPLOY).param, tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text().startswith('digraph "deploy" {')


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("html", b"<!doctype html>")])
def test_pictures_are_drawn_without_graphviz(monkeypatch, tmp_path, ending, begins):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    draw.draw_net_to_file(parse_net(SIMPLE).param, tmp_path / f"net.{ending}", phase=TRAIN, display_lrm=True)
    content = (tmp_path / f"net.{ending}").read_bytes()
    assert content.startswith(begins)
    if ending == "svg":
        assert ">Convolution 2x2 pad 3 lr mult: 1 lr mult: 1<" in content.decode()
        assert ">ip_blob 13<" in content.decode()


def test_other_formats_say_what_they_need(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="Graphviz"):
        draw.draw_net_to_file(parse_net(DEPLOY).param, tmp_path / "net.pdf")
    assert not (tmp_path / "net.pdf").exists()
    with pytest.raises(UsageError, match="rankdir 'XX' is unknown"):
        draw.draw_net(parse_net(DEPLOY).param, "XX", "svg")
    monkeypatch.setitem(__import__("sys").modules, "pydot", None)
    with pytest.raises(UsageError, match="pydot"):
        draw.get_pydot_graph(parse_net(DEPLOY).param)


def test_graphviz_draws_where_it_is_installed(monkeypatch, tmp_path):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread line\necho "$1 $line"\n')
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    assert draw.draw_net(parse_net(DEPLOY).param, "LR", "svg") == b'-Tsvg digraph "deploy" {\n'
