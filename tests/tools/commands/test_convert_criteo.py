"""`engine convert_criteo`: a database and a dictionary that a CriteoData layer reads, and what it refuses."""

import gzip
from collections import Counter

import numpy as np
import pytest
import torch

from mgcaffe.engine.data.criteo.rows import parse_row
from tests.support.criteokit import row, rows, write
from tests.support.datakit import make

TOPS = 'name: "d" type: "CriteoData" top: "label" top: "dense" top: "ids"'


def batches(fields: str, count: int, more: str = "") -> list[list[torch.Tensor]]:
    layer = make(f"{TOPS} criteo_data_param {{ batch_size: 40 {fields} }} {more}")
    found = [layer.forward([]) for _ in range(count)]
    layer.close()
    return found


def test_the_database_gives_the_rows_of_the_text(engine):
    write(engine.folder / "a.tsv", [*rows(0, 70), b"1\t2", *rows(70, 100), row(0, c1="none")])
    (engine.folder / "b.gz").write_bytes(gzip.compress(b"\n".join(rows(100, 150))))
    result = engine.run("convert_criteo", "a.tsv", "b.gz", "db")
    assert result.returncode == 0, result.stderr
    lines = [line.partition("] ")[2] for line in result.stderr.splitlines()]
    column = row(0, c1="none").index(b"none") + 1
    assert lines == [
        "A total of 152 rows.",
        "a.tsv:71:1: the row has 2 column(s), not 40: left out (bad row 1)",
        f"a.tsv:102:{column}: category 1 is 'none', not 1 to 16 hexadecimal digits: left out (bad row 2)",
        "Processed 150 rows in 3 records; 2 malformed ones are left out.",
    ]
    write(engine.folder / "good.tsv", rows(0, 150))
    for fields in ("table_size: 50 shuffle: true", "table_size: 50"):
        pairs = zip(batches(f'source: "good.tsv" {fields}', 5), batches(f'source: "db" {fields}', 5), strict=True)
        assert all(torch.equal(a, b) for both in pairs for a, b in zip(*both, strict=True))
    checked = engine.run("check_lmdb", "db")
    assert checked.returncode == 0 and "3 records, 0 bad, checked against their sums" in checked.stdout


def test_a_dictionary_numbers_the_values_from_1_by_how_often_they_come(engine):
    lines = [row(number, c1=f"{number % 7 % 3:08x}", c2="") for number in range(150)]
    write(engine.folder / "a.tsv", lines)
    result = engine.run("convert_criteo", "--dictionary=d", "--min_count=2", "a.tsv")
    assert result.returncode == 0, result.stderr
    values = np.concatenate([parse_row(line).categories for line in lines])
    tables = []
    for column in values.T.tolist():
        counted = [pair for pair in Counter(column).items() if pair[0] > 0 and pair[1] >= 2]
        often = [value for value, _ in sorted(counted, key=lambda pair: (-pair[1], pair[0]))]
        tables.append({value: place for place, value in enumerate(often, 1)})
    sizes = " ".join(str(len(table) + 1) for table in tables)
    assert f"] Sizes of the tables, id 0 included: {sizes}\n" in result.stderr
    assert list(tables[0]) == [1, 2] and not tables[1]
    expected = [[table.get(value, 0) for table, value in zip(tables, each, strict=True)] for each in values.tolist()]
    whole = 'source: "a.tsv" dictionary: "d"'
    assert torch.cat([batch[2] for batch in batches(whole, 4)])[:150].tolist() == expected
    capped = torch.cat([batch[2] for batch in batches(f"{whole} table_size: 2", 4)])[:150]
    assert capped.tolist() == [[number % 2 for number in each] for each in expected]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a.tsv"], 2, "convert_criteo takes more words than 1"),
        (["--dictionary=d"], 2, "convert_criteo takes more words than 0"),
        (["none.tsv", "db"], 65, "data source 'none.tsv' does not exist"),
        (
            ["--bad_record_limit=1", "bad.tsv", "db"],
            65,
            "bad.tsv:2:1: the row has 1 column(s), not 40; this is bad row 2",
        ),
        (["bad.tsv", "db"], 65, "all rows are malformed, so there is nothing to write"),
        (["unlabelled.tsv", "db", "--bad_record_limit=0"], 65, "Criteo's test.txt has no labels"),
        (["a.tsv", "a.tsv"], 73, "'a.tsv' exists already"),
        (["--dictionary=./a.tsv", "a.tsv"], 2, "--dictionary=a.tsv is a source, which it would replace"),
        (["--min_count=2", "a.tsv", "db"], 2, "--min_count has no effect without --dictionary"),
        (["--dictionary=none/d", "a.tsv"], 73, "cannot write none/d"),
        (["a.tsv", ".", "db"], 65, "'.' is a folder; an LMDB has to be the only source"),
    ],
)
def test_mistakes(engine, words, code, message):
    write(engine.folder / "a.tsv", rows(0, 3))
    write(engine.folder / "bad.tsv", [b"1", b"2", b"3"])
    write(engine.folder / "unlabelled.tsv", [row(0).partition(b"\t")[2]])
    kept = (engine.folder / "a.tsv").read_bytes()
    result = engine.run("convert_criteo", *words)
    assert result.returncode == code and message in result.stderr, result.stderr
    assert not (engine.folder / "db").exists()
    assert (engine.folder / "a.tsv").read_bytes() == kept
