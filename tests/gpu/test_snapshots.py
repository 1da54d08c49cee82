"""A run that goes on from the CPU to the GPU and back is the run that stays on the CPU."""

import pytest
import torch

from tests.support.solverkit import CLASSIFIER, data_layer, make_solver, write_data


@pytest.mark.parametrize("file_format", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_snapshots_cross_devices(device, tmp_path, kind, file_format):
    net = data_layer(write_data(tmp_path, classes=3), 8) + CLASSIFIER
    momentum = "momentum: 0.9 momentum2: 0.999" if kind == "Adam" else "momentum: 0.9 weight_decay: 0.01"
    fields = f'type: "{kind}" {momentum} base_lr: 0.01 lr_policy: "fixed" snapshot_format: {file_format}'
    ending = "solverstate" + (".h5" if file_format == "HDF5" else "")

    def go_on(where, start, stop):
        with make_solver(net, fields, tmp_path, dtype=torch.float32, device=where) as solver:
            if start:
                solver.restore(str(tmp_path / f"net_iter_{start}.{ending}"))
            solver.step(stop - start)
            solver.snapshot()
            return solver.net.arena.data.cpu().clone()

    expected = go_on("cpu", 0, 9)
    for where, start in (("cpu", 0), (device, 3), ("cpu", 6)):
        found = go_on(where, start, start + 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
