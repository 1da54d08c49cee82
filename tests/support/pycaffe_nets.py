"""Nets that the pycaffe tests run."""

from __future__ import annotations

from pathlib import Path

import mgcaffe.pycaffe as caffe

SIMPLE = """
name: "testnet" force_backward: true
layer { type: "DummyData" name: "data" top: "data" top: "label"
  dummy_data_param { num: 5 channels: 2 height: 3 width: 4 num: 5 channels: 1 height: 1 width: 1
    data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" } } }
layer { type: "Convolution" name: "conv" bottom: "data" top: "conv"
  convolution_param { num_output: 11 kernel_size: 2 pad: 3
    weight_filler { type: "gaussian" std: 1 } bias_filler { type: "constant" value: 2 } }
  param { decay_mult: 1 } param { decay_mult: 0 } }
layer { type: "InnerProduct" name: "ip" bottom: "conv" top: "ip_blob"
  inner_product_param { num_output: 13 weight_filler { type: "gaussian" std: 2.5 }
    bias_filler { type: "constant" value: -3 } } }
layer { type: "SoftmaxWithLoss" name: "loss" bottom: "ip_blob" bottom: "label" top: "loss" }
"""

DEPLOY = """
name: "deploy" force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "fc" type: "InnerProduct" bottom: "conv1" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def write(folder: Path, text: str, name: str = "net.prototxt") -> str:
    """Writes a file, and gives its path."""
    path = folder / name
    path.write_text(text)
    return str(path)


def net(folder: Path, text: str, phase: int = caffe.TRAIN, **options) -> caffe.Net:
    """A net from text."""
    return caffe.Net(write(folder, text), phase, **options)
