"""A net written inside a solver trains alike in each of the three forms that Caffe's nets have had."""

from __future__ import annotations

import pytest
import torch

from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers import Solver
from tests.support.solverkit import Recorder, weights_of, write_data

FILLERS = 'weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "gaussian" }'
FORMS = {
    "V0": """
layers { layer { name: "data" type: "hdf5_data" source: "SOURCE" batchsize: 4 } top: "data" top: "label" }
layers { layer { name: "ip" type: "innerproduct" num_output: 1 FILLERS
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 } bottom: "data" top: "ip" }
layers { layer { name: "loss" type: "euclidean_loss" } bottom: "ip" bottom: "label" top: "loss" }
""",
    "V1": """
layers { name: "data" type: HDF5_DATA top: "data" top: "label"
  hdf5_data_param { source: "SOURCE" batch_size: 4 } }
layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip"
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 inner_product_param { num_output: 1 FILLERS } }
layers { name: "loss" type: EUCLIDEAN_LOSS bottom: "ip" bottom: "label" top: "loss" }
""",
    "V2": """
layer { name: "data" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param { source: "SOURCE" batch_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 1 FILLERS } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }
""",
}


@pytest.mark.parametrize("field", ["net_param", "train_net_param"])
def test_all_forms_train_alike(tmp_path, field):
    listing = write_data(tmp_path)
    weights, losses = [], []
    for form in FORMS.values():
        net = form.replace("SOURCE", str(listing)).replace("FILLERS", FILLERS)
        text = (
            f'base_lr: 0.05 lr_policy: "fixed" weight_decay: 0.1 max_iter: 9 random_seed: 7 solver_mode: CPU'
            f" snapshot_after_train: false {field} {{ {net} }}"
        )
        source, recorder = parse_solver(text), Recorder()
        with Solver(source.param, source=source, listeners=[recorder]) as solver:
            solver.step(5)
            weights.append(weights_of(solver))
        losses.append(recorder.losses)
    assert losses[0] == losses[1] == losses[2]
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[1], weights[2])
    assert losses[0][-1] < losses[0][0]
