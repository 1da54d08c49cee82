"""`engine draw`: pictures with every layer and shape, safe with any name, and mistakes with one message."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from mgcaffe.tools import main
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

SHAPE = "--input_shape=3,256,256"


def draw(capsys, *words):
    """Run the command and return its exit code and what it said."""
    code = main.main(["draw", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


def data_of(page):
    """Return what the page's script is given."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def texts_of(svg):
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def figures(capsys, tmp_path, model, *words):
    """Return the rows of `engine summary` for the same net."""
    assert main.main(["summary", str(model), *words, f"--json={tmp_path / 'summary.json'}"]) == 0
    capsys.readouterr()
    return json.loads((tmp_path / "summary.json").read_text())["layers"]


@pytest.mark.parametrize("name", ["lenet", "googlenet", "resnet50"])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_a_page_has_every_layer_with_its_blobs_and_costs(capsys, tmp_path, name, phase):
    model = MODELS / name / "train_val.prototxt"
    shape = "--input_shape=1,28,28" if name == "lenet" else SHAPE
    code, said = draw(capsys, model, shape, f"--phase={phase}", "-o", tmp_path / "net.html")
    assert code == 0, said
    page = (tmp_path / "net.html").read_text()
    assert ("25,557,096 parameters and 53,173 statistics of BatchNorm" in page) == (name == "resnet50")
    data = data_of(page)
    rows = [
        row for row in figures(capsys, tmp_path, model, shape, f"--phase={phase}")
        if not (row["type"] == "Split" and row["name"].endswith("_split"))
    ]  # fmt: skip
    assert [layer["name"] for layer in data["layers"]] == [row["name"] for row in rows]
    for layer, row in zip(data["layers"], rows, strict=True):
        assert [shape for _, shape in layer["tops"]] == ["x".join(map(str, s)) or "scalar" for s in row["top_shapes"]]
        assert layer["parameters"] == row["parameters"] + row["statistics"]
        assert layer["macs"] == row["macs"]
    shown = {
        line[4] for plate in (data["plate"], *data["insides"]) for node in plate["nodes"] for line in node["lines"]
    }
    assert shown - {-1} == set(range(len(rows)))
    assert f"{len(rows)} layers" in said


def test_the_page_of_googlenet_opens_with_its_nine_inception_blocks_folded(capsys, tmp_path):
    model = MODELS / "googlenet" / "deploy.prototxt"
    assert draw(capsys, model, "--phase=TEST", "--output", tmp_path / "net.html")[0] == 0
    data = data_of((tmp_path / "net.html").read_text())
    assert [block["title"][:10] for block in data["blocks"]] == ["inception_"] * 9
    assert len([node for node in data["plate"]["nodes"] if node["block"] >= 0]) == 9
    assert len(data["insides"]) == 9
    blocks = {layer["name"]: layer["block"] for layer in data["layers"]}
    assert blocks["inception_3a/1x1"] == 0
    assert blocks["inception_5b/output"] == 8
    assert blocks["pool3/3x3_s2"] == -1


def test_an_svg_has_every_layer_and_every_shape(capsys, tmp_path):
    model = MODELS / "googlenet" / "train_val.prototxt"
    assert draw(capsys, model, SHAPE, "-o", tmp_path / "net.svg")[0] == 0
    texts = texts_of((tmp_path / "net.svg").read_text())
    for row in figures(capsys, tmp_path, model, SHAPE):
        if row["type"] == "Split":
            continue
        in_place = row["bottoms"] == row["tops"]
        assert (row["name"] in texts) or any(text.endswith(f": {row['name']}") for text in texts), row["name"]
        for shape in row["top_shapes"]:
            text = "x".join(map(str, shape)) or "scalar"
            assert in_place or any(each == text or each.endswith(f" {text}") for each in texts)
    assert "inception_4c" in texts


def test_a_folded_svg_shows_blocks_instead_of_their_layers(capsys, tmp_path):
    assert draw(capsys, MODELS / "resnet50" / "deploy.prototxt", "--fold", "-o", tmp_path / "net.svg")[0] == 0
    texts = texts_of((tmp_path / "net.svg").read_text())
    assert "res4f" in texts
    assert "res4f_branch2a" not in texts


@pytest.mark.parametrize("direction", ["TB", "LR", "BT", "RL"])
def test_a_png_is_an_image(capsys, tmp_path, direction):
    words = (MODELS / "lenet" / "deploy.prototxt", "-o", tmp_path / "net.png", "--rankdir", direction)
    assert draw(capsys, *words)[0] == 0
    image = Image.open(io.BytesIO((tmp_path / "net.png").read_bytes()))
    assert image.format == "PNG"
    assert (image.width > image.height) == (direction in ("LR", "RL"))
    assert len(image.getcolors(1 << 20)) > 20


def test_layers_link_to_their_lines(capsys, folder):
    code, said = draw(capsys, "net.prototxt", "--input_shape=3,8,8")
    assert code == 0, said
    layers = {layer["name"]: layer for layer in data_of((folder / "net.html").read_text())["layers"]}
    assert layers["conv"]["href"] == "net.prototxt#L7"
    assert layers["conv"]["place"] == "net.prototxt:7:1"
    assert (folder / "net.prototxt").read_text().splitlines()[6] == "layer {"
    assert 'type: "Convolution"' in layers["conv"]["source"]
    (folder / "sub").mkdir()
    words = ("net.prototxt", "--input_shape=3,8,8", "-o", "sub/net.svg")
    assert draw(capsys, *words)[0] == 0
    assert 'href="../net.prototxt#L7"' in (folder / "sub" / "net.svg").read_text()
    assert draw(capsys, *words, "--link", "vscode://file{path}:{line}?a&{file}")[0] == 0
    assert f'href="vscode://file{folder}/net.prototxt:7?a&amp;../net.prototxt"' in (folder / "sub/net.svg").read_text()


def test_nothing_on_a_page_comes_from_elsewhere(capsys, folder):
    assert draw(capsys, "net.prototxt", "--input_shape=3,8,8")[0] == 0
    page = (folder / "net.html").read_text()
    assert not re.search(r"(?:src|href)=|@import|url\(http|fetch\(|XMLHttpRequest", page.replace("link.href", ""))
    assert "default-src 'none'" in page


HOSTILE = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)> & \\u2028 {x}'


@pytest.mark.parametrize("kind", ["html", "svg", "png"])
def test_names_of_any_kind_are_only_text(capsys, tmp_path, kind):
    quoted = HOSTILE.replace('"', '\\"').replace("\\u2028", "\u2028")
    (tmp_path / "net.prototxt").write_text(
        f'name: "{quoted}"\n'
        f'layer {{ name: "{quoted}" type: "Input" top: "{quoted}" input_param {{ shape {{ dim: 1 dim: 2 }} }} }}\n'
        f'layer {{ name: "\U0001f600 ]]>" type: "TanH" bottom: "{quoted}" top: "two\\nlines" }}\n'
    )
    path = tmp_path / f"net.{kind}"
    code, said = draw(capsys, tmp_path / "net.prototxt", "-o", path)
    assert code == 0, said
    if kind == "html":
        page = path.read_text()
        assert page.count("<script") == page.count("</script>") == 2
        assert "<img" not in page
        assert data_of(page)["layers"][0]["name"] == quoted.replace('\\"', '"')
    if kind == "svg":
        root = ET.fromstring(path.read_text())
        assert not [each for each in root.iter() if each.tag.endswith(("script", "img"))]
        assert any("<script>" in text for text in texts_of(path.read_text()))


def test_long_names_are_shortened_in_boxes_and_whole_elsewhere(capsys, tmp_path):
    name = "a" * 250
    (tmp_path / "net.prototxt").write_text(
        f'layer {{ name: "{name}" type: "Input" top: "x" input_param {{ shape {{ dim: 1 }} }} }}'
    )
    code, said = draw(capsys, tmp_path / "net.prototxt", "-o", tmp_path / "net.html")
    assert code == 0, said
    data = data_of((tmp_path / "net.html").read_text())
    assert data["plate"]["w"] < 600
    assert data["layers"][0]["name"] == name


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "the net is missing"),
        (["net.prototxt", "-o", "net.pdf"], 2, "let it end in one of .html, .svg, .png"),
        (["net.prototxt", "-o", "net"], 2, "let it end in one of .html, .svg, .png"),
        (["net.prototxt", "-o", "a.svg", "--link=x{lime}"], 2, "'{lime}' is none of {file}, {path} and {line}"),
        (["net.prototxt", "--rankdir=XX"], 2, "choose from"),
        (["net.prototxt", "--columns=-1"], 2, "-1 is too small"),
        (["net.prototxt", "--outptu=a.svg"], 2, "did you mean '--output'?"),
        (["absent.prototxt"], 65, "absent.prototxt"),
        (["net.prototxt"], 65, "--input_shape"),
        (["broken.prototxt"], 65, "broken.prototxt:1:"),
        (["net.prototxt", "--input_shape=3,8,8", "-o", "absent/net.svg"], 73, "cannot write absent/net.svg"),
        (["net.prototxt", "--input_shape=3,8,8", "-o", "a\0.svg"], 2, "NUL byte"),
    ],
)
def test_mistakes_are_named(capsys, folder, words, code, message):
    (folder / "broken.prototxt").write_text("layer { name }")
    (folder / "net.prototxt").write_text((folder / "net.prototxt").read_text().replace("crop_size: 6", ""))
    ended, said = draw(capsys, *words)
    assert (ended, message in said) == (code, True), said
    assert "Traceback" not in said
    assert not list(folder.glob("*.html"))


def test_a_picture_too_large_for_an_image_says_what_to_do(capsys, folder, monkeypatch):
    monkeypatch.setattr("mgcaffe.tools.drawing.static._MOST_PIXELS", 1000)
    ended, said = draw(capsys, "net.prototxt", "--input_shape=3,8,8", "-o", "net.png")
    assert (ended, "draw it as .svg or .html" in said) == (2, True), said
    assert not (folder / "net.png").exists()
