"""`engine train` on two ranks with divided tables, tests and a snapshot: what one rank comes to."""

import numpy as np
import pytest

from mgcaffe.engine.weights.files import read_weights
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.prototxt import blob_array
from mgcaffe.solvers.snapshots.reading import read_snapshot
from tests.support.engine_command import Engine
from tests.support.tablekit import table_net, write_table_data

pytestmark = pytest.mark.slow

SOLVER = """
net: "{ranks}.prototxt" type: "AdaGrad" base_lr: 0.05 delta: 1e-3 lr_policy: "fixed" max_iter: 6 random_seed: 7
test_iter: 3 test_interval: 3 solver_mode: CPU snapshot_prefix: "{ranks}"
"""


def test_two_ranks_train_and_save_what_one_does(tmp_path, monkeypatch, mpi_ranks):
    monkeypatch.chdir(tmp_path)
    write_table_data(tmp_path)
    engine = Engine(tmp_path)
    for ranks in (1, 2):
        engine.write(f"{ranks}.prototxt", table_net(tmp_path, ranks))
        engine.write(f"solver{ranks}.prototxt", SOLVER.format(ranks=ranks))
    flags = ["--dtype=float64", "--embeddings=alltoall", "--embedding_loads=rows.csv"]
    one = engine.run("train", "solver1.prototxt", flags[0])
    assert one.returncode == 0, one.stderr
    two = mpi_ranks(2).run(tmp_path, "train", "solver2.prototxt", *flags)
    assert two.returncode == 0, two.stderr
    assert "Tables divided among ranks (1 divided by rows): rank 0 " in two.stderr + two.stdout

    assert len(list(tmp_path.glob("*.shard_?_of_2.safetensors"))) == 2

    def saved(ranks):
        net = read_weights(tmp_path / f"{ranks}_iter_6.caffemodel")
        state, _ = read_snapshot(tmp_path / f"{ranks}_iter_6.solverstate")
        histories = [each.load() if isinstance(each, StoredRows) else each for each in state.history]
        return [blob_array(blob) for layer in net.layer for blob in layer.blobs] + histories

    mine, other = saved(2), saved(1)
    assert len(mine) == len(other) == 8 + 7
    for values, its in zip(mine, other, strict=True):
        assert values.dtype == its.dtype
        np.testing.assert_allclose(values, its, rtol=1e-12, atol=1e-12)
