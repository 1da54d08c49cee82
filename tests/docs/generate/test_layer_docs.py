"""The form of the layers' docstrings."""

import pytest

from docs.generate.layer_docs import parse_layer_doc

DOCSTRING = """Mix, Blend: mixes two blobs.

    y = a x + b z
    dx = a dy

With a of 1 nothing is mixed.

    another formula

Fields of `mix_param` (default): a (1), the first
weight; b. Fields of `other_param`: those of Other.
Bottoms: x (N, ...); z.
Top: the same; may be the bottom's blob. Parameters: w (N). It is
learned.
Differences from Caffe: none of them is (really) different. No two are.
(SSD's Caffe: mix_layer.cpp; Someone 2014.)
"""


def test_every_part_is_found():
    doc = parse_layer_doc(DOCSTRING)
    assert doc.names == ["Mix", "Blend"]
    assert doc.summary == "mixes two blobs."
    assert doc.intro == ["    y = a x + b z\n    dx = a dy", "With a of 1 nothing is mixed.", "    another formula"]
    assert doc.fields == {"mix_param": "a (1), the first weight; b.", "other_param": "those of Other."}
    assert doc.named_like() == ["Other"]
    assert doc.bottoms == "x (N, ...); z."
    assert doc.tops == "the same; may be the bottom's blob."
    assert doc.parameters == "w (N). It is learned."
    assert doc.differences == "none of them is (really) different. No two are."
    assert doc.source == "SSD's Caffe: mix_layer.cpp; Someone 2014"


def test_what_there_is_not_is_said_in_few_words():
    doc = parse_layer_doc("A: b.\n\nNo fields. No bottoms. No tops. No differences from Caffe. (Caffe: a.cpp.)")
    assert (doc.fields, doc.bottoms, doc.tops, doc.parameters, doc.differences) == ({}, "none", "none", "none", "none")


def test_a_part_may_come_in_pieces():
    doc = parse_layer_doc(DOCSTRING + "\nFields of `mix_param`: c.\nParameters: v.")
    assert doc.fields["mix_param"] == "a (1), the first weight; b.\n\nc."
    assert doc.parameters == "w (N). It is learned.\n\nv."


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (("Fields of `mix_param` (default): ", ""), None),
        (("Bottoms: x (N, ...); z.\n", ""), "bottoms"),
        (("Top: the same; may be the bottom's blob. ", ""), "tops"),
        (("Differences from Caffe: none of them is (really) different. No two are.", "Fine."), "differences"),
        (("(SSD's Caffe: mix_layer.cpp; Someone 2014.)", ""), "source"),
        (("Mix, Blend: mixes two blobs.", "Mixes two blobs."), "is not 'Type: what it does'"),
    ],
)
def test_a_part_that_is_missing_is_named(change, missing):
    text = DOCSTRING.replace(*change)
    if missing is None:
        text, missing = text.replace("Fields of `other_param`: ", ""), "fields"
    with pytest.raises(ValueError, match=missing):
        parse_layer_doc(text)
