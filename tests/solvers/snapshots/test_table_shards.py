"""Snapshots whose tables are in shards: exact on other servers and ranks, never whole in one, all of them or none."""

from __future__ import annotations

import errno
import json
import shutil

import pytest
import torch

from mgcaffe.comm import SingleCommunicator, run_ranks
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.errors import EngineError, SnapshotError
from mgcaffe.errors.whole_files import write_aside
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.serving.embedding_server import EmbeddingServer
from mgcaffe.solvers.snapshots.manifest import read_manifest
from mgcaffe.solvers.snapshots.reading import newest_snapshot, read_snapshot
from mgcaffe.solvers.tables import shard_holder
from mgcaffe.solvers.tables.server_tables import ServedTensor
from mgcaffe.solvers.tables.whole_tables import WholeTables
from tests.solvers.serving.test_embedding_server import train_with_servers
from tests.support.solverkit import Recorder, make_solver, solver_source
from tests.support.tablekit import KINDS, differences, loads, table_net, train_tables

pytestmark = pytest.mark.slow

SHARD = "net_iter_{}.caffemodel.shard_{}_of_{}.safetensors"


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    """A folder with the snapshots that two ranks took at iterations 2 and 4."""
    place = tmp_path_factory.mktemp("saved")
    _train_two(folder, place)
    return place


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of it."""
    return shutil.copytree(saved, tmp_path / "copied")


def _fields(place, kind="AdaGrad"):
    return f'{KINDS[kind]} snapshot_prefix: "{place}/net"'


def _train_two(folder, place, more="", recorder=None):
    """Two ranks, of which each has rows of the first table, take snapshots at iterations 2 and 4."""
    fields = f"{_fields(place)} snapshot: 2 {more}{loads(folder, 'rows')}"

    def rank(communicator):
        listener = recorder if communicator.rank == 0 and recorder is not None else Recorder()
        with make_solver(table_net(folder, 2), fields, folder, communicator=communicator, recorder=listener) as solver:
            solver.step(4)

    run_ranks(2, rank, timeout_s=60)


def _names(place):
    return sorted(path.name for path in place.iterdir())


def test_two_servers_then_one_then_none_come_to_what_an_uninterrupted_run_does(folder, tmp_path):
    net, fields = table_net(folder, 1), _fields(tmp_path)
    through = train_tables(1, folder, net, KINDS["AdaGrad"], 9)
    state = f"{tmp_path}/net_iter_{{}}.solverstate".format
    train_with_servers(2, folder, net, fields, 3, snapshot=True)
    train_with_servers(1, folder, net, fields, 3, restore=state(3), snapshot=True)
    resumed = train_tables(1, folder, net, fields, 3, restore=state(6), snapshot=True)
    assert not differences(resumed[:1], through[:1])
    shards = [name for name in _names(tmp_path) if "shard" in name]
    assert shards == [SHARD.format(3, 1, 2), SHARD.format(3, 2, 2), SHARD.format(6, 1, 1)]
    manifest = read_manifest(state(3))
    assert [each.holder for each in manifest.shards] == ["embedding server, rank 1", "embedding server, rank 2"]
    assert [each.rows.get(f"{name}/0") for each in manifest.shards for name in "abc"].count(None) == 3
    (back,), _ = train_with_servers(2, folder, net, fields, 0, restore=state(9))
    assert not differences(back[:1], through[:1])


def test_two_ranks_then_three_then_one_come_to_what_an_uninterrupted_run_does(folder, tmp_path):
    through = train_tables(1, folder, table_net(folder, 1), KINDS["row_wise"], 9)
    fields, state = _fields(tmp_path, "row_wise"), f"{tmp_path}/net_iter_{{}}.solverstate".format
    train_tables(2, folder, table_net(folder, 2), fields + loads(folder, "rows"), 3, snapshot=True)
    train_tables(3, folder, table_net(folder, 3), fields, 3, restore=state(3), snapshot=True)
    resumed = train_tables(1, folder, table_net(folder, 1), fields, 3, restore=state(6))
    assert not differences(resumed[:1], through[:1])


@pytest.mark.parametrize("servers", [0, 2])
def test_no_process_fetches_or_reads_a_whole_table(folder, tmp_path, monkeypatch, servers):
    def refuse(*_):
        raise AssertionError("a whole table in one process")

    for holder, names in ((WholeTables, "fetch store"), (ServedTensor, "fetch store"), (StoredRows, "load chunks")):
        for name in names.split():
            monkeypatch.setattr(holder, name, refuse)
    read = []
    pieces = StoredRows.pieces

    def count(self, first, last):
        read.append((self.shape[0], last - first))
        return pieces(self, first, last)

    monkeypatch.setattr(StoredRows, "pieces", count)
    ranks = 1 if servers else 2
    fields = f"{_fields(tmp_path)}{loads(folder, 'rows')}"
    if servers:
        fields = fields[:-1] + f"sync: NONE embedding_servers: {servers} lookahead: 0 }}"

    def rank(communicator):
        group = communicator.split(0 if communicator.rank < ranks else None)
        if group is None:
            param = solver_source(table_net(folder, 1), fields, folder).param
            return EmbeddingServer(param, communicator, 1, dtype=torch.float64).run()
        held = {"embedding_servers": communicator} if servers else {}
        with make_solver(table_net(folder, ranks), fields, folder, communicator=group, **held) as solver:
            solver.step(1)
            solver.snapshot()
            solver.restore(f"{tmp_path}/net_iter_1.solverstate")
            solver.load_weights([f"{tmp_path}/net_iter_1.caffemodel"])

    run_ranks(ranks + servers, rank, timeout_s=60)
    assert [rows for whole, rows in read if whole == 40] == [20] * 6  # values twice, sums once, in each process


def _missing(path):
    path.unlink()
    return f"cannot read .*{path.name}: No such file or directory"


def _damaged(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    return f"{path.name} is damaged"


@pytest.mark.parametrize("damage", [_missing, _damaged])
def test_a_shard_that_is_missing_or_damaged_is_named_with_its_rows_and_who_wrote_it(copied, damage):
    expected = damage(copied / SHARD.format(4, 2, 2))
    with pytest.raises(SnapshotError, match=expected) as caught:
        read_snapshot(copied / "net_iter_4.solverstate")
    assert caught.value.exit_code == 65 and "--snapshot=auto" in caught.value.hint
    assert "the shard that rank 1 wrote, with rows 20 to 39 of 'a/0'" in caught.value.message


def test_the_snapshot_before_one_that_lacks_a_shard_is_taken(folder, copied):
    (copied / SHARD.format(4, 1, 2)).unlink()
    recorder = Recorder()
    source = solver_source(table_net(folder, 1), _fields(copied), folder)
    found = newest_snapshot(source.param, source, SingleCommunicator(), recorder.on_event)
    assert found == str(copied / "net_iter_2.solverstate")
    assert SHARD.format(4, 1, 2) in recorder.of(Warned)[0].text


def test_without_a_manifest_and_as_weights_a_missing_shard_is_named_too(folder, copied):
    (copied / "net_iter_4.solverstate.manifest.json").unlink()
    (copied / SHARD.format(4, 2, 2)).unlink()
    net, expected = table_net(folder, 1), f"cannot read .*{SHARD.format(4, 2, 2)}, which is shard 2 of the 2"
    with pytest.raises(EngineError, match=expected) as caught:
        train_tables(1, folder, net, _fields(copied), 0, restore=f"{copied}/net_iter_4.solverstate")
    assert caught.value.exit_code == 65
    with pytest.raises(EngineError, match=expected):
        train_tables(1, folder, net, _fields(copied), 0, weights=[f"{copied}/net_iter_4.caffemodel"])


def test_shards_go_with_the_snapshot_that_is_superseded(folder, tmp_path):
    stale = tmp_path / SHARD.format(4, 3, 3)
    stale.write_bytes(b"of an earlier run on three ranks")
    _train_two(folder, tmp_path, "snapshot_keep: 1")
    files = ["caffemodel", "solverstate", "solverstate.manifest.json"]
    expected = [*(f"net_iter_4.{each}" for each in files), SHARD.format(4, 1, 2), SHARD.format(4, 2, 2)]
    assert _names(tmp_path) == sorted(expected)
    assert json.loads((tmp_path / "net_iter_4.solverstate.manifest.json").read_text())["format"] == 2


def _full_disk(path, content):
    if "shard_2" in path.name:
        raise OSError(errno.ENOSPC, "No space left on device")
    return write_aside(path, content)


def _other_disk(path, content):
    temporary = write_aside(path, content)
    if "shard_2" in path.name:
        temporary.unlink()
    return temporary


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (_full_disk, r"cannot write .*shard_2_of_2.safetensors: No space left on device.*\(rank 1\)"),
        (_other_disk, r"rank 1 has written .*shard_2_of_2.*, and rank 0 does not find it there"),
    ],
)
def test_a_shard_that_cannot_be_written_costs_that_snapshot_alone(folder, tmp_path, monkeypatch, write, expected):
    monkeypatch.setattr(shard_holder, "write_aside", write)
    recorder = Recorder()
    _train_two(folder, tmp_path, recorder=recorder)
    texts = [event.text for event in recorder.of(Warned) if "no snapshot" in event.text]
    assert len(texts) == 2
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(texts[0])
    assert _names(tmp_path) == []


def test_rows_are_written_from_where_they_lie_if_there_is_no_memory_for_a_copy(folder, tmp_path, monkeypatch, saved):
    monkeypatch.setattr(shard_holder, "free_memory", lambda: 0)
    recorder = Recorder()
    _train_two(folder, tmp_path, recorder=recorder)
    texts = [event.text for event in recorder.of(Warned) if "no memory for a copy" in event.text]
    assert [text.partition(" has")[0] for text in texts] == ["rank 0", "rank 1"] * 2
    for number in (1, 2):
        mine, theirs = (place / SHARD.format(4, number, 2) for place in (tmp_path, saved))
        assert mine.read_bytes()[-100:] == theirs.read_bytes()[-100:]
