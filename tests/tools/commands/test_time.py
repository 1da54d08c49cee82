"""`engine time`: lines and JSON, also of nets whose data is not at hand."""

from __future__ import annotations

import json
import re

import h5py

from mgcaffe.engine.data.stages import StageTotals
from mgcaffe.solvers.setup import autotune
from mgcaffe.solvers.tables.loads import read_loads
from mgcaffe.tools import layer_times, main
from mgcaffe.tools.data_times import DataTimes
from tests.support.autotunekit import measure_here
from tests.support.datakit import datum, encoded, images, write_lmdb
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


def test_times_begin_once_a_gpu_has_made_the_passes_before(folder, monkeypatch):
    done = []
    monkeypatch.setattr(layer_times, "_synchronizer", lambda _: lambda: done.append("waited"))
    monkeypatch.setattr(layer_times, "_seconds", lambda step, synchronize: done.append("layer") or 1e-3)
    assert main.main(["time", "net.prototxt", "--input_shape=image=2,3,8,8", "--iterations=1"]) == 0
    assert done == ["waited"] + 8 * ["layer"]


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


def test_time_measures_the_candidates_that_training_has(folder, capsys, monkeypatch):
    """Training's blobs are channels last; which candidates there are depends on that."""
    monkeypatch.setattr(autotune, "measure", measure_here)
    write_lmdb(folder / "absent", [datum(each, number % 2) for number, each in enumerate(images(8, (3, 8, 8)))])
    (folder / "solver.prototxt").write_text('net: "net.prototxt" max_iter: 1 base_lr: 0.1 lr_policy: "fixed"')
    words = ["--threads=1", "--autotune=choices.json"]
    assert main.main(["time", "net.prototxt", "--iterations=1", *words]) == 0
    assert "autotune: measured 5 operations" in capsys.readouterr().err
    assert main.main(["train", "solver.prototxt", *words]) == 0
    assert "autotune: measured 0 operations" in capsys.readouterr().err


def test_time_says_what_data_are_waited_for(folder, capsys):
    pictures = images(12, (64, 64, 3))
    write_lmdb(folder / "jpegs", [encoded(each, "JPEG", number % 2) for number, each in enumerate(pictures)])
    (folder / "jpegs.prototxt").write_text(
        'layer { name: "image" type: "Data" top: "image" top: "label" transform_param { crop_size: 4 mirror: true }'
        ' data_param { source: "jpegs" backend: LMDB batch_size: 4 parser_threads: 2 } }'
        ' layer { name: "ip" type: "InnerProduct" bottom: "image" top: "ip" inner_product_param { num_output: 2 } }'
        ' layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }'
    )
    assert main.main(["time", "jpegs.prototxt", "--iterations=3", "--json=out.json"]) == 0
    text = capsys.readouterr().err
    assert re.search(r"Data layer image alone: \S+ images/s with 2 threads, \S+ ms a batch of 4", text)
    each = r"reading \S+ ms, decoding \S+ ms, transforming \S+ ms, batching \S+ ms; \S+ ms of a thread in all"
    assert re.search(rf"     image\tan image: {each}", text)
    assert re.search(r"The layers (could )?take \S+ images/s, ", text)
    (data,) = json.loads((folder / "out.json").read_text())["data"]
    assert (data["name"], data["batch_size"], data["threads"], data["batches"]) == ("image", 4, 2, 3)
    assert set(data["record_ms"]) == {"read", "decode", "transform", "batch"}
    assert min(data["record_ms"].values()) > 0 and data["bottleneck"] in data["record_ms"]


def test_a_comparison_of_data_and_layers_names_the_bottleneck_and_what_helps():
    stages = {"read": 0.02, "decode": 1.5, "transform": 0.4, "batch": 0.08}
    times = DataTimes("d", "Data", 50, 2, 20, 1.25, StageTotals(1000, 1.25, stages))
    lines = times.lines(0.05)
    assert lines[0] == "Data layer d alone: 800.0 images/s with 2 threads, 62.500 ms a batch of 50"
    assert lines[1].endswith("decoding 1.500 ms, transforming 0.400 ms, batching 0.080 ms; 2.000 ms of a thread in all")
    assert lines[2].startswith(
        "The layers could take 1000.0 images/s, about 2.0 threads' work, so data are waited for. "
        "Bottleneck: decoding, 75 % of making a batch. To speed it up: data_param { parser_threads: N } decodes more"
    )
    assert "so data are not waited for. Slowest in them: decoding" in times.lines(0.5)[2]
    assert times.lines(None)[2].startswith("Bottleneck of the data: decoding, 75 % of making a batch. ")
    untold = DataTimes("m", "MemoryData", 50, 1, 20, 1.25, StageTotals(1000, 1.25))
    assert untold.lines(0.05) == ["Data layer m alone: 800.0 images/s with 1 thread, 62.500 ms a batch of 50"]


def test_time_computes_in_the_precision_asked_for(folder, capsys):
    words = ["time", "net.prototxt", "--input_shape=image=2,3,8,8", "--iterations=1"]
    assert main.main([*words, "--precision=bf16", "--json=out.json"]) == 0
    assert "Products are computed in bf16." in capsys.readouterr().err
    assert json.loads((folder / "out.json").read_text())["precision"] == "bf16"
    assert main.main([*words, "--precision=fp16"]) == 0
    assert "products in fp16 are for GPUs" in capsys.readouterr().err
    assert main.main([*words, "--precision=tf32"]) == 2
    assert "--precision tf32: only GPUs compute products in TF32" in capsys.readouterr().err
    assert main.main([*words, "--precision=bf16", "--dtype=float64"]) == 2
    assert "blobs are of float64" in capsys.readouterr().err
