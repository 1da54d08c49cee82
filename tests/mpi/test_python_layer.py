"""Layers in Python over real MPI: each rank has its own, reads its own part, and the ranks train as one."""

import numpy as np
import pytest

from mgcaffe.prototxt import blob_array, read_net
from tests.support.mpirun import run_mpi

pytestmark = pytest.mark.slow

LAYER = """
import caffe
import numpy as np

class Rows(caffe.Layer):
    def setup(self, bottom, top):
        self.size, self.next = int(self.param_str), 0
        self.rows = np.random.RandomState(0).randn(64, 5)

    def reshape(self, bottom, top):
        top[0].reshape(self.size, 4)
        top[1].reshape(self.size, 1)

    def forward(self, bottom, top):
        first = self.next * self.size * self.solver_count + self.solver_rank
        rows = self.rows[(first + self.solver_count * np.arange(self.size)) % 64]
        top[0].data[...], top[1].data[...] = rows[:, :4], rows[:, 4:]
        self.next += 1

    def backward(self, top, propagate_down, bottom):
        pass
"""
NET = """
layer {{ name: "rows" type: "Python" top: "data" top: "label"
  python_param {{ module: "rows_layer" layer: "Rows" param_str: "{}" }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 1 weight_filler {{ type: "constant" value: 0.5 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SOLVER = 'net: "net{0}.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 8 snapshot_prefix: "ranks{0}"'


def test_two_ranks_train_as_one_with_twice_the_batch(tmp_path):
    (tmp_path / "rows_layer.py").write_text(LAYER)
    weights = []
    for ranks in (1, 2):
        (tmp_path / f"net{ranks}.prototxt").write_text(NET.format(8 // ranks))
        (tmp_path / f"solver{ranks}.prototxt").write_text(SOLVER.format(ranks))
        arguments = ["-m", "mgcaffe.tools.main", "train", f"solver{ranks}.prototxt"]
        result = run_mpi(arguments, n=ranks, timeout=60, cwd=tmp_path)
        assert result.returncode == 0 and not result.hung, result.describe()
        net = read_net(tmp_path / f"ranks{ranks}_iter_8.caffemodel")
        weights.append(blob_array(next(layer for layer in net.layer if layer.name == "ip").blobs[0]))
    assert np.abs(weights[0] - 0.5).max() > 0.01
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5)


@pytest.mark.parametrize("ranks", [2])
def test_a_mistake_in_it_ends_all_ranks_with_one_message(tmp_path, ranks):
    (tmp_path / "rows_layer.py").write_text(LAYER.replace("self.next += 1", "self.next.count += 1"))
    (tmp_path / "net2.prototxt").write_text(NET.format(4))
    (tmp_path / "solver2.prototxt").write_text(SOLVER.format(2))
    arguments = ["-m", "mgcaffe.tools.main", "train", "solver2.prototxt"]
    result = run_mpi(arguments, n=ranks, timeout=60, cwd=tmp_path)
    assert result.returncode != 0 and not result.hung, result.describe()
    assert "forward failed in rows_layer.Rows (layer 'rows', type Python): AttributeError" in result.stderr
    assert "self.next.count += 1" in result.stderr
    assert "Traceback" not in result.stderr
