"""The page's script in a browser, where there is one: whatever blocks are open, nothing overlaps or is torn apart."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from mgcaffe.tools import main
from tests.support.paths import MODELS

_BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
_CHECK = """
let overlaps = 0, torn = 0, missing = 0;
for (let turn = 0; turn <= 30; turn++) {
  open.clear();
  D.blocks.forEach((_, block) => { if ((turn * 7 + block * block * 5) % 30 < turn) open.add(block); });
  const {spots, lines} = arranged();
  const rects = spots.map((s) => [s.x, s.y, ...(s.opened ? [D.insides[s.node.block].w, D.insides[s.node.block].h]
    : [s.node.r[2], s.node.r[3]])]);
  rects.forEach((a, i) => {
    if (a[0] < -.5 || a[1] < -.5 || a[0] + a[2] > size[0] + .5 || a[1] + a[3] > size[1] + .5) overlaps++;
    rects.slice(0, i).forEach((b) => {
      if (a[0] + a[2] > b[0] + .3 && b[0] + b[2] > a[0] + .3 && a[1] + a[3] > b[1] + .3 && b[1] + b[3] > a[1] + .3)
        overlaps++;
    });
  });
  const near = (p, q) => Math.hypot(p[0] - q[0], p[1] - q[1]) < .5;
  const touches = (p) => rects.some(([x, y, w, h]) => p[0] > x - .4 && p[0] < x + w + .4 && p[1] > y - .4
    && p[1] < y + h + .4 && !(p[0] > x + .4 && p[0] < x + w - .4 && p[1] > y + .4 && p[1] < y + h - .4));
  for (const line of lines) for (const point of [line.a, line.b]) {
    const ends = lines.filter((other) => other.wire === line.wire && (near(other.a, point) || near(other.b, point)));
    if (!touches(point) && ends.length < 2) torn++;
  }
}
open.clear();
redraw();
const click = (what) => svg.querySelector(what).dispatchEvent(new MouseEvent('click', {bubbles: true}));
const clicked = [];
for (const what of ['.block', '.fold']) { click(what); clicked.push(svg.querySelectorAll('.open').length); }
D.layers.forEach((layer, number) => { visit(number); if (!placed[number] || byId('about').hidden) missing++; });
byId('search').value = 'concat 28x28';
search();
const left = rows.filter((row) => !row.hidden).length;
document.body.dataset.result = `overlaps ${overlaps} torn ${torn} missing ${missing} found ${left} clicked ${clicked}`;
"""


@pytest.mark.slow
@pytest.mark.skipif(_BROWSER is None, reason="no chromium")
@pytest.mark.parametrize("direction", ["TB", "RL"])
def test_blocks_open_in_any_combination(tmp_path, direction):
    page = tmp_path / "net.html"
    words = [str(MODELS / "googlenet" / "train_val.prototxt"), "--input_shape=3,256,256", f"--rankdir={direction}"]
    assert main.main(["draw", *words, "-o", str(page)]) == 0
    text = page.read_text()
    end = "</script></body>"
    assert text.count(end) == 1
    page.write_text(text.replace(end, _CHECK + end))
    result = subprocess.run(
        [
            str(_BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--no-first-run", f"--user-data-dir={tmp_path / 'user'}",
            "--dump-dom", f"file://{page}",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r'data-result="([^"]*)"', result.stdout)
    assert found, result.stdout[-2000:]
    assert found[1] == "overlaps 0 torn 0 missing 0 found 2 clicked 1,0"
