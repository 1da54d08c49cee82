"""Shards: rows of tables in several files, found by what a blob says, read in any ranges, refused where they lack."""

import json

import numpy as np
import pytest
import torch

from mgcaffe.engine.weights import shards as module
from mgcaffe.engine.weights.files import read_weights
from mgcaffe.engine.weights.safetensors import encode_head
from mgcaffe.engine.weights.shards import RowsToWrite, ShardSet, encode_shard, find_rows
from mgcaffe.errors import NetError
from mgcaffe.errors.whole_files import write_whole
from mgcaffe.prototxt import NetParameter, blob_array, write_binary

SET = ShardSet("net.caffemodel", 2, "one")
TABLE = np.arange(28, dtype=np.float32).reshape(7, 4)
SUMS = np.linspace(0, 1, 7)


def write_shards(folder, shards=SET, cut=3):
    """Rows up to `cut` in the first shard, the others in the second, of a table and of a number for each row."""
    for number, (first, last) in enumerate([(0, cut), (cut, 7)]):
        rows = [
            RowsToWrite("a/0", first, 7, TABLE[first:last]),
            RowsToWrite("a/0/history", first, 7, SUMS[first:last]),
        ]
        write_whole(folder / shards.name(number), encode_shard(shards, number, f"rank {number}", 5, rows))


def rows_of(folder, array="a/0", shape=(7, 4)):
    return find_rows(SET.reference(array, shape), folder / "net.caffemodel")


@pytest.mark.parametrize("at_once", [1, 8, 1 << 20])
def test_any_rows_are_read_in_pieces_and_as_another_type(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    write_shards(tmp_path)
    stored = rows_of(tmp_path)
    assert np.array_equal(stored.load(), TABLE)
    assert np.array_equal(np.concatenate(list(stored.chunks())), TABLE)
    for first, last in [(0, 7), (2, 5), (3, 3), (6, 7)]:
        target = torch.full((last - first, 4), -1.0, dtype=torch.float64)
        stored.fill(target, first)
        assert np.array_equal(target, TABLE[first:last])
    sums = torch.zeros(2)
    rows_of(tmp_path, "a/0/history", (7,)).fill(sums, 2)
    assert torch.equal(sums, torch.tensor(SUMS[2:4], dtype=torch.float32))


def test_the_package_safetensors_reads_a_shard(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    write_shards(tmp_path)
    found = safetensors.load_file(tmp_path / "net.caffemodel.shard_2_of_2.safetensors")
    assert np.array_equal(found["a/0"], TABLE[3:]) and np.array_equal(found["a/0/history"], SUMS[3:])


def test_weights_are_read_as_if_they_were_in_the_file(tmp_path):
    write_shards(tmp_path)
    net = NetParameter()
    net.layer.add(name="a").blobs.add().CopyFrom(SET.reference("a/0", (7, 4)))
    write_binary(net, tmp_path / "net.caffemodel")
    assert np.array_equal(blob_array(read_weights(tmp_path / "net.caffemodel").layer[0].blobs[0]), TABLE)


def _other_snapshot(folder):
    write_shards(folder, ShardSet("net.caffemodel", 2, "two"))
    return "is a shard of another snapshot than"


def _missing(folder):
    (folder / SET.name(1)).unlink()
    return r"cannot read .*shard_2_of_2.safetensors, which is shard 2 of the 2 with the tables of .*: No such file"


def _cut_short(folder):
    path = folder / SET.name(0)
    path.write_bytes(path.read_bytes()[:-1])
    return "shard_1_of_2.safetensors is cut short"


def _no_head(folder):
    (folder / SET.name(0)).write_bytes(b"\xff" * 50)
    return "is damaged, or no shard"


def _other_json(folder):
    head, _ = encode_head({}, {"snapshot": "one", "rows": json.dumps([])})
    (folder / SET.name(0)).write_bytes(head)
    return "each of them once"


def _twice(folder):
    write_shards(folder, cut=3)
    first = (folder / SET.name(0)).read_bytes()
    (folder / SET.name(1)).write_bytes(first)
    return "do not have the 7 rows of 'a/0', each of them once"


@pytest.mark.parametrize("damage", [_other_snapshot, _missing, _cut_short, _no_head, _other_json, _twice])
def test_what_cannot_be_used_is_named(tmp_path, damage):
    write_shards(tmp_path)
    expected = damage(tmp_path)
    with pytest.raises(NetError, match=expected) as caught:
        rows_of(tmp_path)
    assert caught.value.exit_code == 65


def test_another_shape_and_a_name_that_leaves_the_folder_are_refused(tmp_path):
    write_shards(tmp_path)
    with pytest.raises(NetError, match=r"has 'a/0' with .* of 7 rows, and the blob has shape"):
        rows_of(tmp_path, shape=(7, 5))
    with pytest.raises(NetError, match="its tables are in shards called"):
        find_rows(ShardSet("../net", 2, "one").reference("a/0", (7, 4)), tmp_path / "net.caffemodel")


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path):
    write_shards(tmp_path)
    stored = rows_of(tmp_path)
    path = tmp_path / SET.name(1)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(NetError, match="has become shorter"):
        stored.load()
    path.unlink()
    with pytest.raises(NetError, match="cannot read"):
        stored.load()
