"""Bad records that stop a run or are skipped, and images decoded by several threads."""

import logging

import numpy as np
import pytest
import torch

from mgcaffe.engine.data.record_loader import BadRecordRule, RecordLoader
from mgcaffe.engine.shard import Shard
from mgcaffe.errors import DataError
from tests.support.datakit import datum, encoded, file_bytes, images, labels, make, write_lmdb

BAD = {2, 3, 9}


def with_bad_records(folder, count=10, bad=BAD):
    """1 x 1 x 1 images whose labels are their numbers; some are no Datum, undecodable, or of another shape."""
    damage = [b"\xff\xff\xff", encoded(images(1, (4, 4, 3))[0], "PNG").SerializeToString()[:-40]]
    damage.append(datum(np.zeros((1, 2, 2), np.uint8)).SerializeToString())
    records = [datum(np.full((1, 1, 1), number, np.uint8), number).SerializeToString() for number in range(count)]
    for index, number in enumerate(sorted(bad)):
        records[number] = damage[index % len(damage)]
    return write_lmdb(folder, records)


def layer_of(source, batch, fields="bad_record: SKIP", more="", **context):
    return make(
        f'name: "d" type: "Data" top: "data" top: "label"'
        f' data_param {{ source: "{source}" batch_size: {batch} {fields} }} {more}',
        **context,
    )


def test_the_next_good_record_stands_in_for_a_skipped_one_and_each_is_reported_once(tmp_path, caplog):
    logging.getLogger("mgcaffe").propagate = True
    source = with_bad_records(tmp_path / "db")
    layer = layer_of(source, 5)
    with caplog.at_level(logging.WARNING, "mgcaffe.engine"):
        assert labels(layer, 4) == [[0, 1, 4, 4, 4], [5, 6, 7, 8, 0]] * 2
    layer.close()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    for number, why in [(2, "not a Datum"), (3, "not a Datum|cannot be decoded"), (9, "has shape 1 x 2 x 2")]:
        [line] = [
            line for line in messages if line.startswith(f"record {number} (key '0000000{number}') of '{source}'")
        ]
        assert any(part in line for part in why.split("|")), line


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_and_resumed_runs_skip_alike(tmp_path, ranks, shuffle):
    source = with_bad_records(tmp_path / "db")
    fields = f"bad_record: SKIP shuffle: {str(shuffle).lower()}"
    batch, iterations = 2, 8
    whole = layer_of(source, batch * ranks, fields, seed=3)
    expected = labels(whole, iterations)
    for rank in range(ranks):
        layer = layer_of(source, batch, fields, seed=3, shard=Shard(rank, ranks))
        shared = [row[rank::ranks] for row in expected]
        assert labels(layer, iterations) == shared
        layer.close()
        resumed = layer_of(source, batch, fields, seed=3, shard=Shard(rank, ranks))
        resumed.seek(5 * batch * ranks)
        assert labels(resumed, 3) == shared[5:]
        resumed.close()
    whole.close()


def test_without_skip_the_first_bad_record_stops_and_the_way_out_is_named(tmp_path):
    layer = layer_of(with_bad_records(tmp_path / "db"), 5, "")
    with pytest.raises(DataError, match=r"record 2 \(key '00000002'\)") as caught:
        layer.forward([])
    assert "--bad_record=skip" in str(caught.value)
    layer.close()


def test_more_bad_records_than_the_limit_stop_the_run(tmp_path):
    source = with_bad_records(tmp_path / "db")
    layer = layer_of(source, 5, "bad_record: SKIP bad_record_limit: 2 prefetch: 0")
    layer.forward([])
    with pytest.raises(DataError, match=r"record 9 .*bad record 3, and bad_record_limit is 2"):
        layer.forward([])
    layer.close()


def test_the_first_record_may_be_bad(tmp_path):
    layer = layer_of(with_bad_records(tmp_path / "db", bad={0, 1}), 3)
    assert labels(layer, 1) == [[2, 2, 2]]
    layer.close()


def test_a_source_of_bad_records_alone_is_refused(tmp_path):
    with pytest.raises(DataError, match="no record of the source is good"):
        layer_of(write_lmdb(tmp_path / "db", [b"\xff\xff"] * 3), 1)


@pytest.mark.parametrize("bad", [None, b"no image", file_bytes(images(1, (6, 7, 3))[0], "PNG")])
def test_image_files_that_are_missing_damaged_or_of_another_size_are_skipped_too(tmp_path, bad):
    pictures = images(3, (6, 6, 3))
    for number in (0, 2):
        (tmp_path / f"{number}.png").write_bytes(file_bytes(pictures[number], "PNG"))
    if bad is not None:
        (tmp_path / "1.png").write_bytes(bad)
    (tmp_path / "list").write_text("".join(f"{number}.png {number}\n" for number in range(3)))
    layer = make(
        f'name: "d" type: "ImageData" top: "data" top: "label" data_param {{ bad_record: SKIP }}'
        f' image_data_param {{ source: "{tmp_path}/list" root_folder: "{tmp_path}/" batch_size: 3 }}'
    )
    data, label = layer.forward([])
    assert label.tolist() == [0, 2, 2]
    np.testing.assert_array_equal(data[1].numpy(), pictures[2].transpose(2, 0, 1)[::-1])
    layer.close()


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads_change_neither_order_nor_bits(tmp_path, threads):
    source = write_lmdb(tmp_path / "db", [encoded(i, "JPEG", n) for n, i in enumerate(images(37, (20, 24, 3)))])
    transform = "transform_param { crop_size: 9 mirror: true scale: 0.5 }"
    alone = layer_of(source, 13, "parser_threads: 1", transform, seed=1)
    together = layer_of(source, 13, f"parser_threads: {threads}", transform, seed=1)
    for _ in range(6):
        for expected, found in zip(alone.forward([]), together.forward([]), strict=True):
            assert torch.equal(expected, found)
    alone.close()
    together.close()


def test_a_bad_record_that_the_search_for_another_meets_again_is_counted_once(caplog):
    def load(number):
        if number in (2, 3):
            raise DataError(f"record {number}")
        return number

    loader = RecordLoader(10, load, BadRecordRule(skip=True, limit=2))
    assert loader.load([3])[0] == [4]
    assert loader.load([2])[0] == [4]
    assert [record.getMessage()[:9] for record in caplog.records] == ["record 3:", "record 2:"]
    loader.close()


def test_the_first_bad_record_in_order_is_the_one_that_is_raised():
    def load(number):
        if number % 10 == 7:
            raise DataError(f"record {number}")
        return number

    loader = RecordLoader(100, load, BadRecordRule(), threads=4)
    assert loader.load([1, 2, 3])[1] == [1, 2, 3]
    for _ in range(20):
        with pytest.raises(DataError, match="record 17"):
            loader.load([*range(20, 27), 17, 37, 57, 7, *range(8)])
    loader.close()
