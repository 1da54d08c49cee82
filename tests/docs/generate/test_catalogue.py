"""docs/layers.md, and what it is made of."""

import inspect
import re
import sys

import pytest

from docs.generate import catalogue, catalogue_text
from mgcaffe.engine import registry
from mgcaffe.engine.checks.fork_fields import HOW_TO_COMPUTE
from mgcaffe.engine.checks.unused_fields import _belongs
from mgcaffe.prototxt import LayerParameter

# Messages that a type reads nothing from: all of their fields say how to compute, or the message is refused.
EMPTY_HANDED = {
    ("HDF5Data", "transform_param"),
    ("Sigmoid", "sigmoid_param"),
    ("SigmoidCrossEntropyLoss", "sigmoid_param"),
    ("Split", "split_param"),
    ("TanH", "tanh_param"),
}
# Of their data transformation only some fields count, which their docstrings say.
OWN_TRANSFORMATION = {"MemoryData", "WindowData"}


@pytest.fixture(scope="module")
def entries():
    return catalogue.entries()


@pytest.fixture(scope="module")
def schema():
    return catalogue.Schema()


@pytest.fixture(scope="module")
def page():
    return catalogue.render()


def test_the_committed_page_is_current(page):
    assert catalogue.PAGE.read_text(encoding="utf-8") == page, "run: python -m docs.generate.catalogue --write"


def test_every_registered_type_has_a_row_and_a_section(page):
    for name in registry.layer_types():
        assert f"| [{name}](#" in page
        assert any(name in line.removeprefix("### ").split(", ") for line in page.splitlines() if line[:4] == "### ")


def test_links_lead_somewhere(page):
    anchors = {catalogue._anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert links <= anchors


def test_every_message_that_a_type_reads_is_described(entries):
    messages = [field.name for field in LayerParameter.DESCRIPTOR.fields if field.name.endswith("_param")]
    missing = [
        (name, message)
        for entry in entries
        for name in entry.doc.names
        for message in messages
        if _belongs(message, name) and message not in entry.doc.fields and (name, message) not in EMPTY_HANDED
    ]
    assert not missing


def test_every_field_of_caffe_and_of_ours_is_described(entries, schema):
    silent = []
    for entry in entries:
        for param, named in catalogue.named_fields(entry, entries, schema).items():
            if param == "transform_param" and (
                entry.title in OWN_TRANSFORMATION or "transformer.py" in entry.doc.fields[param]
            ):
                continue
            idle = HOW_TO_COMPUTE.get(schema.fields(param)[0].message, frozenset()) | {"engine"}
            silent += [
                (entry.title, param, field.name)
                for field in schema.fields(param)
                if field.origin in ("bvlc", "mgcaffe") and field not in named and field.name not in idle
            ]
    # These count only beside data_param's own: ImageData and WindowData read a few of its fields, and name those.
    silent = [one for one in silent if one[1] != "data_param" or one[0] == "Data"]
    assert not silent


def test_the_common_transformation_is_described(schema):
    said = catalogue_text.docstring(catalogue_text.TRANSFORMER)
    named = {field.name for field in schema.named("transform_param", said)}
    own = {field.name for field in schema.fields("transform_param") if field.origin == "bvlc"}
    assert own - named == {"force_color", "force_gray"} or own <= named


def test_parameters_are_described_where_a_layer_declares_some(entries):
    for entry in entries:
        for layer_class in entry.classes:
            declares = any(
                "add_parameter(" in inspect.getsource(base)
                for base in layer_class.__mro__
                if base.__module__.startswith("mgcaffe.engine.layers.")
            )
            assert declares == (entry.doc.parameters != "none") or layer_class.type == "Python", layer_class.type


def test_in_place_is_described_where_a_layer_can(entries):
    for entry in entries:
        says = any(
            words in entry.doc.tops for words in ("may be the bottom's blob", "may be x's blob", "may be the bottom")
        )
        for layer_class in entry.classes:
            assert layer_class.in_place == says, layer_class.type


def test_a_docstring_about_another_type_is_an_error(monkeypatch):
    module = sys.modules[registry.layer_types()["Tile"].__module__]
    monkeypatch.setattr(module, "__doc__", module.__doc__.replace("Tile: ", "Tiles: "))
    with pytest.raises(ValueError, match=r"is about \['Tiles'\], but the module registers \['Tile'\]"):
        catalogue.entries()


def test_a_type_without_a_family_is_an_error(monkeypatch):
    families = {**catalogue_text.FAMILIES, "Your own": ()}
    monkeypatch.setattr(catalogue_text, "FAMILIES", families)
    with pytest.raises(ValueError, match=r"\['Python'\]"):
        catalogue.render()


def test_the_page_is_printed_or_written(page, capsys, monkeypatch, tmp_path):
    catalogue.main([])
    assert capsys.readouterr().out == page
    monkeypatch.setattr(catalogue, "PAGE", tmp_path / "layers.md")
    catalogue.main(["--write"])
    assert (tmp_path / "layers.md").read_text() == page
    with pytest.raises(SystemExit, match="usage"):
        catalogue.main(["--wrong"])
