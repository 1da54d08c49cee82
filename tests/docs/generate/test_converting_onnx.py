"""docs/converting_onnx.md, whose table of operators is made."""

import pytest

pytest.importorskip("onnx")

from docs.generate import converting_onnx
from mgcaffe.tools.convert.onnx_in.operators import OPERATORS


def test_the_committed_page_is_current_and_names_every_operator():
    page = converting_onnx.PAGE.read_text(encoding="utf-8")
    assert converting_onnx.render() == page, "run: python -m docs.generate.converting_onnx --write"
    assert all(f"| `{name}` | " in page for name in OPERATORS)
