"""What a real Caffe computed, layers and solvers, on the GPU in float32."""

import numpy as np
import pytest
import torch

from mgcaffe.prototxt import read_solver_source
from mgcaffe.solvers import Solver
from tests.support.golden import NAMES, check_case
from tests.support.netkit import inputs, make_net
from tests.support.paths import GOLDEN

SOLVERS = sorted(path.parent.name for path in (GOLDEN / "solvers").glob("*/trajectory.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_agrees_with_caffe(name, device):
    check_case(name, device)


@pytest.mark.parametrize("case", SOLVERS if torch.cuda.is_available() else ["sgd_clip", "adam_iter_size", "sgd_l1"])
def test_a_run_follows_caffes(case, device, tmp_path, monkeypatch):
    monkeypatch.chdir(GOLDEN / "solvers")
    trajectory = np.load(f"{case}/trajectory.npz")
    source = read_solver_source(f"{case}/solver.prototxt")
    source.param.snapshot_prefix = str(tmp_path / "snap")
    weights = [f"{case}/init.caffemodel"]
    with Solver(source.param, source=source, weights=weights, device=device) as solver:
        for iteration in range(1, 13):
            solver.step(1)
            ((_, loss),) = solver.net.output_values()
            assert float(loss) == pytest.approx(float(trajectory[f"loss/{iteration}"]), abs=1e-3)
        parameters = {layer.name: layer.parameters for layer in solver.net.layers}
        for key in (key for key in trajectory if key.startswith("iter12/")):
            _, layer, index = key.split("/")
            ours, caffes = parameters[layer][int(index)].data.cpu().numpy(), trajectory[key]
            np.testing.assert_allclose(ours, caffes, rtol=0, atol=3e-4 * np.abs(caffes).max() + 1e-12, err_msg=key)


def test_convolutions_of_float32_are_not_rounded_to_tf32(device):
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    try:
        make_net(inputs(x=(2, 3)), device=device)
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.allow_tf32 = before
