"""docs/converting.md, and what it is made of."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("onnx")

from docs.generate import converting
from mgcaffe.engine import registry
from mgcaffe.tools.convert.allowances import ALLOWANCES
from mgcaffe.tools.convert.layer_writer import INPUT
from mgcaffe.tools.convert.onnx_out.operators import OPERATORS
from mgcaffe.tools.convert.torch_out import operators as torch_out
from tests.support.layer_cases import CASES, MODULE_CASES

# What names a file is tested by itself.
FILES = {"InfogainLoss": {"source"}}
TABLES = [pytest.param(OPERATORS, id="onnx"), pytest.param(torch_out.OPERATORS, id="pytorch")]


@pytest.fixture(scope="module")
def page():
    return converting.render()


def test_the_committed_page_is_current(page):
    assert converting.PAGE.read_text(encoding="utf-8") == page, "run: python -m docs.generate.converting --write"


def test_every_layer_type_and_every_allowance_has_a_row(page):
    rows = {line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")}
    assert {name for name in registry.layer_types() if name != INPUT} <= rows
    assert {f"`{name}`" for name in ALLOWANCES} <= rows
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 120


@pytest.mark.parametrize("table", TABLES)
def test_fields_said_to_be_without_effect_are_fields_of_the_type(table):
    for layer_type, (_, idle) in converting.expressed_and_idle(table).items():
        assert set(table[layer_type].without_effect) <= set(idle), layer_type


@pytest.mark.parametrize("table", TABLES)
def test_every_field_said_to_be_expressed_is_set_in_a_case(table):
    for layer_type, (expressed, _) in converting.expressed_and_idle(table).items():
        cases = {**CASES[layer_type], **(MODULE_CASES.get(layer_type, {}) if table is not OPERATORS else {})}
        said = set(re.findall(r"(\w+)\s*[:{]", " ".join(cases.values())))
        wanted = set(expressed) - FILES.get(layer_type, set())
        assert wanted <= said, f"no case of {layer_type} sets {sorted(wanted - said)}"
