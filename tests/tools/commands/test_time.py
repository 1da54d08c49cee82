"""`engine time`: lines and JSON, also of nets whose data is not at hand."""

from __future__ import annotations

import json
import re

from mgcaffe.tools import main


def test_time_runs_on_noise_and_names_the_costliest_layers(folder, capsys):
    words = ["--input_shape=image=2,3,8,8", "--iterations=2", "--threads=1", "--json=out.json"]
    assert main.main(["time", "net.prototxt", *words]) == 0
    text = capsys.readouterr().err
    for line in (
        r"\*\*\* Benchmark begins \*\*\*",
        r"Testing for 2 iterations\.",
        r"Iteration: 2 forward-backward time: \S+ ms\.",
        r"      conv\tforward: \S+ ms\.",
        r"      conv\tbackward: \S+ ms\.",
        r"Average Forward pass: \S+ ms\.",
        r"Average Backward pass: \S+ ms\.",
        r"Average Forward-Backward: \S+ ms\.",
        r"Total Time: \S+ ms\.",
        "Costliest layers: ",
    ):
        assert re.search(line, text), f"{line}\n{text}"
    figures = json.loads((folder / "out.json").read_text())
    assert (figures["iterations"], figures["threads"]) == (2, 1)
    assert [row["name"] for row in figures["layers"]] == ["data", "conv", "ip", "loss"]
    parts = sum(row["forward_ms"] + row["backward_ms"] for row in figures["layers"])
    assert 0 < parts <= figures["forward_backward_ms"]
