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


def test_pictures_say_what_they_need(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="Graphviz"):
        draw.draw_net_to_file(parse_net(DEPLOY).param, tmp_path / "net.png")
    assert not (tmp_path / "net.png").exists()
    monkeypatch.setitem(__import__("sys").modules, "pydot", None)
    with pytest.raises(UsageError, match="pydot"):
        draw.get_pydot_graph(parse_net(DEPLOY).param)
