"""The CriteoData layer: its numbers, its order over files and ranks, bad rows, and its errors."""

import functools
import gzip
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mgcaffe.engine.data import criteo_data
from mgcaffe.engine.data.criteo.dictionary import write_dictionary
from mgcaffe.engine.data.criteo.packed_rows import pack
from mgcaffe.engine.data.criteo.rows import Rows, parse_row
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.net import Net
from mgcaffe.engine.shard import Shard
from mgcaffe.errors import DataError, NetError
from mgcaffe.solvers.setup.reader_fields import hand_down
from tests.support.criteokit import row, rows, write
from tests.support.datakit import make, write_lmdb
from tests.support.netkit import make_net

JOINED = ("label", "dense", "ids")
SEPARATE = ("label", "dense", *(f"c{number}" for number in range(1, 27)))


def text(sources, batch: int = 4, fields: str = "table_size: 1000", more: str = "", tops=JOINED) -> str:
    named = " ".join(f'source: "{source}"' for source in sources)
    words = " ".join(f'top: "{top}"' for top in tops)
    return (
        f'name: "d" type: "CriteoData" {words} criteo_data_param {{ {named} batch_size: {batch} {fields} }}'
        f" data_param {{ {more} }}"
    )


def numbers(layer: Layer, batches: int) -> list[list[int]]:
    """The first integers of the rows of each batch, which are their numbers."""
    return [[round(np.expm1(value)) for value in layer.forward([])[1][:, 0].double().tolist()] for _ in range(batches)]


@pytest.fixture
def files(tmp_path):
    """Rows 0 to 9 in three files, one of them packed."""
    write(tmp_path / "a.tsv", rows(0, 3))
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"\n".join(rows(3, 8)) + b"\n"))
    return [tmp_path / "a.tsv", tmp_path / "b.tsv.gz", write(tmp_path / "c.tsv", rows(8, 10))]


@pytest.fixture
def layer():
    """Makes layers, and closes them after the test."""
    made = []

    def build(given: str, **context) -> Layer:
        made.append(make(given, **context))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_tops_are_labels_logarithms_and_ids_modulo_the_size_of_each_table(layer, files, dtype):
    sizes = [3, 16_777_216, *range(10, 34)]
    fields = " ".join(f"table_size: {size}" for size in sizes)
    joined = layer(text(files, 10, fields), dtype=dtype)
    assert joined.reshape([]) == [(10,), (10, 13), (10, 26)] and joined.source_records == 10
    labels, dense, ids = joined.forward([])
    expected = [parse_row(row(number)) for number in range(10)]
    assert labels.dtype == dense.dtype == ids.dtype == dtype
    assert labels.tolist() == [int(each.labels[0]) for each in expected]
    assert ids.tolist() == [
        [int(v) % size for v, size in zip(each.categories[0], sizes, strict=True)] for each in expected
    ]
    logs = [[np.log(max(int(x), 0) + 1) for x in each.integers[0]] for each in expected]
    torch.testing.assert_close(dense, torch.tensor(logs, dtype=dtype))
    separate = layer(text(files, 10, fields, tops=SEPARATE), dtype=dtype)
    assert separate.reshape([]) == [(10,), (10, 13), *[(10, 1)] * 26]
    _, same, *columns = separate.forward([])
    assert torch.equal(same, dense) and torch.equal(torch.cat(columns, 1), ids)
    assert all(column.is_contiguous() for column in columns)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_and_resumed_runs_share_the_rows_of_all_files_in_order(layer, files, ranks):
    whole = [number % 10 for number in range(48)]
    for rank in range(ranks):
        one = layer(text(files, 2), shard=Shard(rank, ranks))
        mine = whole[rank::ranks]
        assert [number for batch in numbers(one, 5) for number in batch] == mine[:10]
        again = layer(text(files, 2), shard=Shard(rank, ranks))
        again.seek(one.position())
        assert numbers(again, 1) == numbers(one, 1) == [mine[10:12]]


def test_shuffle_and_rand_skip_are_those_of_other_layers(layer, files, tmp_path):
    plain = [write(tmp_path / "all.tsv", rows(0, 10))]
    shuffled = numbers(layer(text(plain, 5, "table_size: 9 shuffle: true"), seed=3), 4)
    assert sorted(shuffled[0] + shuffled[1]) == sorted(shuffled[2] + shuffled[3]) == list(range(10))
    assert shuffled[:2] != shuffled[2:]
    starts = {numbers(layer(text(files, 1, "table_size: 9 rand_skip: 4"), seed=seed), 1)[0][0] for seed in range(12)}
    assert starts == {0, 1, 2, 3}
    with pytest.raises(DataError, match=r"shuffle needs rows in any order, too slow to read from .*b.tsv.gz'"):
        layer(text(files, 5, "table_size: 9 shuffle: true"))


def test_shuffled_rows_are_the_same_from_text_of_either_form_and_from_an_lmdb(layer, tmp_path):
    lines = rows(0, 40)
    mixed = [line + b"\r" if number % 3 == 0 else line for number, line in enumerate(lines)]
    parsed = functools.reduce(Rows.joined, map(parse_row, lines))
    sources = [
        write(tmp_path / "unix.tsv", lines),
        write(tmp_path / "mixed.tsv", mixed),
        write_lmdb(tmp_path / "db", [pack(parsed)]),
    ]
    layers = [layer(text([source], 10, "table_size: 1000 shuffle: true"), seed=2) for source in sources]
    for _ in range(4):
        batches = [each.forward([]) for each in layers]
        read = np.rint(np.expm1(batches[0][1][:, 0].double().numpy())).astype(int)
        np.testing.assert_array_equal(batches[0][2].numpy(), parsed.categories[read] % 1000)
        for other in batches[1:]:
            assert all(torch.equal(*pair) for pair in zip(batches[0], other, strict=True))


@pytest.mark.parametrize(("fields", "expected"), [("", [2, 1, 0, 0]), ("table_size: 2", [0, 1, 0, 0])])
def test_ids_of_a_dictionary_may_be_taken_modulo_a_size(layer, tmp_path, fields, expected):
    write_dictionary(tmp_path / "d", [np.array([7, 5], np.uint64), *[np.zeros(0, np.uint64)] * 25])
    source = write(tmp_path / "a.tsv", [row(0, c1=value) for value in ("5", "7", "6", "")])
    ids = layer(text([source], 4, f'dictionary: "{tmp_path}/d" {fields}')).forward([])[2]
    assert ids[:, 0].tolist() == expected
    assert not ids[:, 1:].any()


def test_bad_rows_are_named_by_file_line_and_column_and_skipped_or_stop(layer, tmp_path, caplog):
    logging.getLogger("mgcaffe").propagate = True
    lines = [row(0), b"1\t2", row(2, i1="two"), row(3, c4="abc"), row(4) + b"\r", row(5, c26="none"), row(6)]
    first, second = write(tmp_path / "a.tsv", lines[:4]), write(tmp_path / "b.tsv", lines[4:])
    with caplog.at_level(logging.WARNING, "mgcaffe.engine"):
        assert numbers(layer(text([first, second], 7, more="bad_record: SKIP")), 2) == [[0, 3, 3, 3, 4, 6, 6]] * 2
    column = lines[5].index(b"none") + 1
    behind = ": skipped, the next good record stands in (bad record"
    assert [record.getMessage() for record in caplog.records] == [
        f"{first}:2:1: the row has 2 column(s), not 40{behind} 1, limit 100)",
        f"{first}:3:3: integer 1 is 'two', no whole number of at most 18 digits{behind} 2, limit 100)",
        f"{second}:2:{column}: category 26 is 'none', not 1 to 16 hexadecimal digits{behind} 3, limit 100)",
    ]
    with pytest.raises(DataError, match=rf"^{first}:2:1: the row has 2 column\(s\), not 40 \(layer 'd'") as caught:
        layer(text([first, second], 7)).forward([])
    assert "--bad_record=skip" in str(caught.value)
    with pytest.raises(DataError, match="this is bad record 3, and bad_record_limit is 2"):
        layer(text([first, second], 7, more="bad_record: SKIP bad_record_limit: 2")).forward([])


def test_a_solvers_bad_record_reaches_it():
    from mgcaffe.prototxt import NetParameter, SolverParameter, parse_text

    net = parse_text('layer { name: "d" type: "CriteoData" }', NetParameter)
    hand_down(parse_text("bad_record: SKIP bad_record_limit: 7", SolverParameter), net)
    assert net.layer[0].data_param.bad_record_limit == 7


def test_a_net_that_is_looked_at_needs_no_file():
    net = make_net(f"layer {{ {text(['none.tsv'], 8)} }}", input_shapes={}, outline=True)
    assert [net.blobs[name].shape for name in JOINED] == [(8,), (8, 13), (8, 26)]


@pytest.mark.parametrize(
    ("fields", "tops", "message"),
    [
        ("table_size: 9", JOINED[:2], "CriteoData makes 3 to 28 top blob"),
        ("table_size: 9", SEPARATE[:9], r"makes 3 tops \(labels, dense, ids\) or 28 .*, not 9"),
        (
            "",
            JOINED,
            r"table_size is given 0 time\(s\); it is needed once for all features, or once for each of the 26",
        ),
        ("table_size: 9 table_size: 9", JOINED, r"table_size is given 2 time\(s\)"),
        ("table_size: 0", JOINED, "table_size has to be from 1 to 16777216"),
        ("table_size: 16777217", JOINED, r"so far ids are exact in blobs of float32\), not 16777217"),
    ],
)
def test_fields_that_make_no_sense_are_refused(tmp_path, fields, tops, message):
    source = write(tmp_path / "a.tsv", rows(0, 2))
    with pytest.raises(NetError, match=message):
        make_net(f"layer {{ {text([source], fields=fields, tops=tops)} }}", dtype=torch.float32)


def test_larger_tables_have_exact_ids_in_float64(layer, tmp_path):
    source = write(tmp_path / "a.tsv", [row(0, c1="fffffffffffffffe")])
    _, _, ids = layer(text([source], 1, f"table_size: {2**53}"), dtype=torch.float64).forward([])
    assert int(ids[0, 0]) == (2**64 - 2) % 2**53


def test_sources_without_rows_are_errors(tmp_path, layer):
    for content, message in ((b"", r"holds no rows \(layer 'd'"), (b"1\n", r"a.tsv:1:1: the row has 1 column\(s\)")):
        (tmp_path / "a.tsv").write_bytes(content)
        with pytest.raises(DataError, match=message):
            layer(text([tmp_path / "a.tsv"]))
    with pytest.raises(NetError, match="source is missing"):
        layer(text([]))


def test_a_dictionary_whose_ids_float32_cannot_hold_is_refused_by_feature(monkeypatch, tmp_path, layer):
    sizes = [*[5] * 3, (1 << 24) + 1, *[5] * 22]
    monkeypatch.setattr(criteo_data, "read_dictionary", lambda path: SimpleNamespace(sizes=sizes))
    source = write(tmp_path / "a.tsv", rows(0, 3))
    with pytest.raises(NetError, match=r"from 1 to 16777216 .*, not 16777217, categorical feature 4 \(layer"):
        layer(text([source], fields='dictionary: "d"'))


def test_a_missing_dictionary_is_named_at_its_field(tmp_path):
    source = write(tmp_path / "a.tsv", rows(0, 3))
    net = tmp_path / "net.prototxt"
    given = text([source], fields='\ndictionary: "none"')
    net.write_text(f"layer {{ {given} }}")
    with pytest.raises(DataError, match=rf"^{net}:2:1: dictionary 'none' cannot be read"):
        Net.from_file(net)


def test_what_it_does_not_read_of_data_param_is_refused(tmp_path, layer):
    with pytest.raises(NetError, match="shuffle"):
        layer(text([write(tmp_path / "a.tsv", rows(0, 3))], more="shuffle: true"))
