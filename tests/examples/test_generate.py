"""The generator of data in Criteo's format: the same rows for the same arguments, in the right format, of a teacher."""

import gzip
import math

import generate
import numpy as np
import pytest

from mgcaffe.engine.data.criteo.rows import parse_row
from mgcaffe.engine.data.criteo.text_rows import TextRows


def made(folder, *words: str) -> dict[str, bytes]:
    generate.main([str(folder), *words])
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_every_row_is_in_criteos_format_and_every_file_says_that_it_is_generated(tmp_path, capsys):
    files = made(tmp_path, "--rows=8000", "--test_rows=500")
    assert set(files) == {"generated_train.tsv", "generated_test.tsv"}
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"8000 generated rows in {tmp_path}/generated_train.tsv: 2")
    rows = TextRows([str(tmp_path / "generated_train.tsv")])
    found, right = rows.rows(range(len(rows)))
    assert len(rows) == 8_000 and right.all()
    assert abs(found.labels.mean() - generate.BASE_RATE) < 0.02
    assert found.integers.min() < 0
    assert all(len(np.unique(column)) <= 1001 for column in found.categories.T)
    assert sum(b"\t\t" in line for line in files["generated_train.tsv"].splitlines()) > 2000
    counts = max((np.unique(column[column > 0], return_counts=True)[1] for column in found.categories.T), key=len)
    ranked = np.sort(counts)[::-1]  # by Zipf's law the first value comes 2^1.1 times as often as the second one
    assert ranked[0] / ranked[1] == pytest.approx(2**1.1, rel=0.2)


def test_rows_depend_on_the_seed_alone_and_files_share_them_out(tmp_path):
    whole = made(tmp_path / "a", "--rows=101", "--test_rows=10", "--seed=3")
    parts = made(tmp_path / "b", "--rows=101", "--test_rows=0", "--seed=3", "--files=3", "--gzip")
    assert list(parts) == [f"generated_train_{number}.tsv.gz" for number in range(3)]
    assert b"".join(gzip.decompress(part) for part in parts.values()) == whole["generated_train.tsv"]
    assert [gzip.decompress(part).count(b"\n") for part in parts.values()] == [33, 34, 34]
    assert made(tmp_path / "c", "--rows=101", "--seed=4")["generated_train.tsv"] != whole["generated_train.tsv"]
    assert all(parse_row(line) for line in whole["generated_test.tsv"].splitlines())


def test_nobody_does_better_than_the_teacher_and_its_probabilities_are_right():
    generator = generate.Generator(100, 1.1, 0)
    parts = [(logits, labels) for _, logits, labels in generator.chunks(generate.TRAIN, 30_000)]
    logits, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    entropy, area = generate.scores(logits, labels)
    assert 0.5 < entropy < 0.75 and 0.8 < area < 0.95
    assert generate.scores(logits * 0.8, labels)[0] > entropy < generate.scores(logits * 1.2, labels)[0]
    assert generate.scores(logits + 0.3, labels)[0] > entropy < generate.scores(logits - 0.3, labels)[0]
    by_hand = np.mean(logits[labels][:300, None] > logits[~labels][:300])
    few = np.concatenate([np.flatnonzero(labels)[:300], np.flatnonzero(~labels)[:300]])
    assert generate.scores(logits[few], labels[few])[1] == pytest.approx(by_hand, abs=1e-12)
    assert math.isclose(logits.std(), generate.LOGIT_SPREAD, rel_tol=0.05)


def test_arguments_that_make_no_sense_are_refused(tmp_path, capsys):
    for words in (["--rows=0"], ["--files=0"], ["--values=3"], ["--zipf=nan"]):
        with pytest.raises(SystemExit) as caught:
            generate.main([str(tmp_path), *words])
        assert caught.value.code == 2
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as caught:
        generate.main([str(tmp_path / "file")])
    assert caught.value.code == 73 and "cannot be written" in capsys.readouterr().err
