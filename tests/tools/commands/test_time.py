"""`engine time`: lines and JSON, also of nets whose data is not at hand."""

from __future__ import annotations

import json
import re

import h5py

from mgcaffe.solvers.tables.loads import read_loads
from mgcaffe.tools import main
from tests.support.tablekit import table_net, write_table_data


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


def test_time_counts_the_rows_that_passes_look_up_and_writes_them_for_train(folder, capsys):
    write_table_data(folder)
    (folder / "tables.prototxt").write_text(table_net(folder, 1))
    assert main.main(["time", "tables.prototxt", "--iterations=5", "--loads=loads.csv"]) == 0
    # 12 items a batch: 4 ids in table a, 5 in b, 1 + 5 in the table that c and c2 share, which has 7 rows.
    assert read_loads(folder / "loads.csv", ["a", "b", "c"]) == {"a": 48, "b": 60, "c": 72}
    text = (folder / "loads.csv").read_text()
    assert text.startswith("# tables.prototxt: means of 5 passes\ntable,rows,distinct\n")
    assert re.search(r"^c,72,7$", text, re.MULTILINE)
    with h5py.File(folder / "data.h5") as file:
        batches = file["a"][:].reshape(5, -1)  # the file is one pass of five batches
    different = sum(len(set(batch)) for batch in batches.tolist()) / 5
    assert f"Table 'a': a pass looks up 48 rows, {different:g} different" in capsys.readouterr().err


def test_time_has_no_rows_to_count_without_tables_and_says_where_it_cannot_write(folder, capsys):
    words = ["time", "net.prototxt", "--input_shape=image=2,3,8,8", "--iterations=1"]
    assert main.main([*words, "--loads=loads.csv"]) == 2
    assert "the net has no layer of type EmbeddingBag" in capsys.readouterr().err
    write_table_data(folder)
    (folder / "tables.prototxt").write_text(table_net(folder, 1))
    assert main.main(["time", "tables.prototxt", "--iterations=1", "--loads=no/loads.csv"]) == 73
    assert "cannot write no/loads.csv" in capsys.readouterr().err


def test_time_shows_each_layers_candidates_and_the_one_chosen(folder, capsys):
    words = ["--input_shape=image=2,3,8,8", "--iterations=1", "--threads=1"]
    assert main.main(["time", "net.prototxt", *words, "--autotune=choices.json", "--json=out.json"]) == 0
    text = capsys.readouterr().err
    assert re.search(r"autotune: measured 5 operations in \S+ s; ", text)
    assert re.search(r"      conv\tconvolution forward: \w+( \(by rule\))? \S+ ms, ", text)
    assert re.search(r"        ip\tinner product backward weight: .*mm \(by rule\) \S+ ms", text)
    rows = json.loads((folder / "out.json").read_text())["candidates"]
    assert [row["layer"] for row in rows] == ["conv", "conv", "ip", "ip", "ip"]
    assert all({row["chosen"], row["rule"]} <= set(row["ms"]) for row in rows)
    assert main.main(["time", "net.prototxt", *words, "--autotune=choices.json"]) == 0
    assert "autotune: measured 0 operations" in capsys.readouterr().err
    (folder / "choices.json").write_text("{}")
    assert main.main(["time", "net.prototxt", *words, "--autotune=choices.json"]) == 65
    assert (
        "choices.json:1:1: this is no record of measured candidates: 'autotune' is missing" in capsys.readouterr().err
    )
    assert main.main(["time", "net.prototxt", *words, "--autotune=off"]) == 0
    assert "autotune" not in capsys.readouterr().err


def test_time_computes_in_the_precision_asked_for(folder, capsys):
    words = ["time", "net.prototxt", "--input_shape=image=2,3,8,8", "--iterations=1"]
    assert main.main([*words, "--precision=bf16", "--json=out.json"]) == 0
    assert "Products are computed in bf16." in capsys.readouterr().err
    assert json.loads((folder / "out.json").read_text())["precision"] == "bf16"
    for name, reason in (("fp16", "need their losses scaled"), ("tf32", "only GPUs compute products in TF32")):
        assert main.main([*words, f"--precision={name}"]) == 2
        assert f"--precision {name}: " in (text := capsys.readouterr().err)
        assert reason in text
    assert main.main([*words, "--precision=bf16", "--dtype=float64"]) == 2
    assert "blobs are of float64" in capsys.readouterr().err
