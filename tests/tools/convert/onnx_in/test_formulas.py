"""Operators that are formulas of several layers: these compute the same, also where a plainer formula would not."""

from __future__ import annotations

import numpy as np
import pytest

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.onnx_files import read_onnx
from tests.support.onnx_models import SHAPE, converted, model, written
from tests.support.torchkit import layers_of, types_of

_RMS = "Power Reduction Power Scale Scale"

# Opset, nodes, weights, shape of x, types of the layers.
CASES = {
    "rms norm": (23, "y = RMSNormalization <epsilon=0.5>(x, s)", {"s": (6,)}, SHAPE, _RMS),
    "rms norm of rows": (23, "y = RMSNormalization(x, s)", {"s": (6,)}, (3, 6), _RMS),
    "rms norm of images": (24, "y = RMSNormalization <axis=2>(x, s)", {"s": (6,)}, SHAPE,
                           "Power Pooling Flatten Power Scale Scale"),
    "rms norm of items": (23, "y = RMSNormalization <axis=1>(x, s)", {"s": (4, 1, 6)}, SHAPE, _RMS),
    "lp norm": (9, "y = LpNormalization(x)", {}, SHAPE, "Reduction Reshape Power Reshape Scale"),
    "lp norm of channels": (22, "y = LpNormalization <p=1, axis=1>(x)", {}, SHAPE,
                            "Permute Reduction Reshape Power Tile Scale"),
    "lp norm of zeros": (22, "a = Mul(x, k) b = LpNormalization(a) c = LpNormalization <p=1>(a)"
                         "y = Concat<axis=1>(b, c)", {"k": np.array([[0], [1], [1e-7], [1]], np.float32)}, (3, 4, 6),
                         None),
    "log of a sum": (13, "a = Abs(x) b = ReduceLogSum<axes=[1]>(a) c = ReduceLogSum<axes=[2,3]>(a)"
                     "y = Add(b, c)", {}, SHAPE, None),
    "log of no sum": (18, "a = Abs(x) y = ReduceLogSum<noop_with_empty_axes=1>(a)", {}, SHAPE, "AbsVal Log"),
    "log of powers": (13, "y = ReduceLogSumExp<axes=[-1], keepdims=0>(x)", {}, SHAPE,
                      "Reshape Pooling Reshape Power Reshape Bias Exp Reduction Log Reshape Eltwise"),
    "log of large powers": (18, "a = Mul(x, k) b = ReduceLogSumExp(a, i) c = ReduceLogSumExp(a, j)"
                            "y = Add(b, c)", {"k": 500.0, "i": [1, 2], "j": [1]}, SHAPE, None),
    "log of a power": (18, "a = ReduceLogSumExp<noop_with_empty_axes=1>(x) y = Relu(a)", {}, SHAPE, "ReLU"),
    "mean and variance": (13, "y = MeanVarianceNormalization<axes=[2,3]>(x)", {}, SHAPE, "MVN"),
    "mean and variance of items": (9, "y = MeanVarianceNormalization<axes=[1,2,3]>(x)", {}, SHAPE, "MVN"),
    "mean and variance of others": (13, "y = MeanVarianceNormalization<axes=[-2,1]>(x)", {}, SHAPE,
                                    "Permute Reshape MVN Reshape Permute"),
    "mean and variance of rows": (13, "y = MeanVarianceNormalization<axes=[2]>(x)", {}, (3, 4, 6),
                                  "Reshape MVN Reshape"),
    "celu": (12, "y = Celu<alpha=0.7>(x)", {}, SHAPE, "Power ELU Power"),
    "celu that is an ELU": (12, "y = Celu(x)", {}, SHAPE, "ELU"),
    "softsign": (9, "y = Softsign(x)", {}, SHAPE, "AbsVal Power Eltwise"),
    "thresholded": (10, "a = ThresholdedRelu<alpha=0.25>(x) b = ThresholdedRelu<alpha=-0.25>(x)"
                    "c = ThresholdedRelu(x) y = Sum(a, b, c)", {}, SHAPE,
                    "Threshold Eltwise Threshold Eltwise Threshold Eltwise Eltwise"),
    "product with a vector": (13, "y = MatMul(x, w)", {"w": (6,)}, (3, 2, 6), "InnerProduct Flatten"),
    "product of rows with a vector": (13, "y = MatMul(x, w)", {"w": (6,)}, (3, 6), "InnerProduct Reshape"),
    "gemm and a number for each item": (13, "y = Gemm<beta=2.0>(x, w, c)", {"w": (6, 2), "c": (3, 1)}, (3, 6),
                                        "InnerProduct Bias"),
    "gemm and a matrix": (13, "y = Gemm(x, w, c)", {"w": (6, 2), "c": (3, 2)}, (3, 6), "InnerProduct Bias"),
    "gemm of what was turned": (13, "t = Transpose<perm=[1,0]>(x) y = Gemm<transA=1, transB=1>(t, w)", {"w": (2, 6)},
                                (3, 6), "InnerProduct"),
    "gemm of what was turned before": (
        13, "t = Transpose<perm=[1,0]>(x) r = Relu(t) y = Gemm<transA=1>(r, w)", {"w": (6, 2)}, (3, 6),
        "Permute ReLU Permute InnerProduct"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_formula_becomes_layers_that_compute_the_same(name, tmp_path):
    opset, body, weights, shape, types = CASES[name]
    found = types_of(converted(model(body, weights, opset=opset, shape=shape), tmp_path))
    assert types is None or found == types.split()


REFUSED = {
    "rms norm of the batch": (23, "y = RMSNormalization<axis=0>(x, s)", {"s": SHAPE}, "over the batch axis"),
    "a longer scale": (23, "y = RMSNormalization(x, s)", {"s": (4, 6)}, r"its scale has shape \(4, 6\), not \(6,\)"),
    "an order": (22, "y = LpNormalization<p=3>(x)", {}, "its p is 3"),
    "lp norm of the batch": (22, "y = LpNormalization<axis=0>(x)", {}, "it reduces the batch axis"),
    "mean of the batch": (13, "y = MeanVarianceNormalization(x)", {}, "it normalizes over the batch axis"),
    "negative alpha": (12, "y = Celu<alpha=-1.0>(x)", {}, "its alpha is -1"),
    "a vector of others": (13, "y = MatMul(x, w)", {"w": (5,)}, "its matrices have shapes"),
    "items that are repeated": (13, "a = Reshape(x, s) y = Add(a, w)", {"s": [1, 12, 6, 6], "w": (2, 12, 6, 6)},
                                r"a value of shape \(2, 12, 6, 6\) repeats the one item of \(1, 12, 6, 6\)"),
    "items and channels that are repeated": (
        13, "a = ReduceMean<axes=[1]>(x) y = Mul(a, w)", {"w": (5, 4, 6, 6)}, "do not fit together"),
    "channels that are repeated": (
        13, "a = ReduceMean<axes=[1]>(x) y = Mul(a, w)", {"w": (3, 4, 1, 6)}, "broadcast in both directions"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_computes_is_refused(name, tmp_path):
    opset, body, weights, said = REFUSED[name]
    with pytest.raises(NetError, match=said):
        read_onnx(written(model(body, weights, opset=opset), tmp_path))


def test_a_bias_for_each_item_is_trained(tmp_path):
    found = converted(model("y = Gemm<beta=2.0>(x, w, c)", {"w": (6, 2), "c": (3, 1)}, shape=(3, 6)), tmp_path)
    assert [(layer.name, len(layer.param)) for layer in layers_of(found)] == [("gemm_0.product", 0), ("gemm_0", 0)]
