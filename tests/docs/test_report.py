"""docs/report.md lists what stands in a JSON log."""

from __future__ import annotations

import ast
import re

from tests.support.paths import ROOT


def _written() -> set[str]:
    """Return every kind of event and every field that the JSON log writes, as its source names them."""
    tree = ast.parse((ROOT / "tools/listeners/json_log.py").read_text(encoding="utf-8"))
    names = {f"data_{stage}_ms" for stage in ("read", "decode", "transform", "batch")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("self._write", "dict"):
            names |= {keyword.arg for keyword in node.keywords if keyword.arg}
            names |= {word.value for word in node.args if isinstance(word, ast.Constant)}
        elif isinstance(node, ast.Dict):
            names |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    return names


def test_every_event_and_field_of_the_json_log_is_listed():
    section = (ROOT / "docs/report.md").read_text(encoding="utf-8").partition("## The JSON log")[2]
    written = _written()
    assert {"start", "gap", "measured_ms", "text", "hidden_share"} <= written
    assert written - set(re.findall(r"`(\w+)`", section)) == set()
