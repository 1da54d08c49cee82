"""Every operator of the tables, at the versions that differ: the layers that it becomes compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch

from mgcaffe.tools.convert.onnx_in.operators import OPERATORS
from tests.support.onnx_models import SHAPE, converted, model
from tests.support.torchkit import layers_of, types_of
from tests.tools.convert.onnx_in.test_formulas import CASES as FORMULAS

W = (6, 4, 3, 3)
EVEN = (2, 3, 8, 8)
ODD = (2, 3, 7, 8)
VOLUME = (2, 3, 4, 5, 6)
ROOT = 2**0.5

LRN = {
    "apart": [3, 1, 4, 6, -1], "pads": [0, 0, 1, 0, 0, 0, 0, 1, 0, 0], "one": [1], "back": [*SHAPE],
    "alpha": 0.5, "k": 2.0, "beta": 0.6,
}  # fmt: skip

_RESAMPLED = "InnerProduct Permute InnerProduct Permute"

# Opset, nodes, weights, shape of x, types of the layers.
CASES = {
    "conv": (9, "y = Conv (x, w, b)", {"w": W, "b": (6,)}, SHAPE, "Convolution"),
    "conv fields": (11, "y = Conv <group=2, strides=[2,1], dilations=[1,2], pads=[1,2,1,2]> (x, w)",
                    {"w": (6, 2, 3, 3)}, SHAPE, "Convolution"),
    "conv 1d": (11, "y = Conv <pads=[1,1]> (x, w)", {"w": (5, 4, 3)}, (2, 4, 9), "Convolution"),
    "conv 3d": (11, "y = Conv (x, w)", {"w": (3, 2, 1, 2, 3)}, (2, 2, 4, 4, 4), "Convolution"),
    "conv same, odd": (11, 'y = Conv <auto_pad="SAME_UPPER">(x, w)', {"w": W}, SHAPE, "Convolution"),
    "conv same": (11, 'y = Conv <auto_pad="SAME_UPPER", strides=[2,2]>(x, w)', {"w": W}, SHAPE,
                  "Convolution Slice Slice Silence"),
    "conv same, lower": (11, 'y = Conv <auto_pad="SAME_LOWER", strides=[2,2]>(x, w)', {"w": W}, SHAPE, "Convolution"),
    "conv valid": (11, 'y = Conv <auto_pad="VALID">(x, w)', {"w": W}, SHAPE, "Convolution"),
    "conv pads": (11, "y = Conv <pads=[2,0,0,3]>(x, w)", {"w": W}, SHAPE, "Convolution Slice Slice Silence"),
    "pad conv": (11, "z = Pad(x, p) y = Conv <strides=[2,2]>(z, w)", {"w": W, "p": [0, 0, 1, 1, 0, 0, 1, 1]}, SHAPE,
                 "Convolution"),
    "pad conv, old": (9, "z = Pad<pads=[0,0,0,1,0,0,1,2]>(x) y = Conv <pads=[1,0,1,0]>(z, w)", {"w": W}, SHAPE,
                      "Convolution Slice Slice Silence"),
    "pad conv same": (13, 'z = Pad(x, p) y = Conv <auto_pad="SAME_UPPER", strides=[3,3]>(z, w)',
                      {"w": W, "p": [0, 0, 2, 0, 0, 0, 0, 1]}, SHAPE, "Convolution Slice Silence"),
    "pad axes": (18, "z = Pad(x, p, , a) y = Conv(z, w)", {"w": W, "p": [1, 1], "a": [-1]}, SHAPE, "Convolution"),
    "pads pool": (13, "r = Relu(x) z = Pad(r, p) y = MaxPool <kernel_shape=[3,3], strides=[2,2]>(z)",
                  {"p": [0, 0, 1, 1, 0, 0, 1, 1]}, ODD, "ReLU Pooling"),
    "pad activation": (13, "z = Pad(x, p) y = Relu(z)", {"p": [0, 0, 2, 0, 0, 0, 0, 1]}, ODD,
                       "Permute InnerProduct Permute InnerProduct ReLU"),
    "pad output": (13, "y = Pad(x, p)", {"p": [0, 0, 0, 1, 0, 0, 0, 0]}, ODD, "InnerProduct"),
    "pad twice, for a convolution and another": (
        13, "a = Pad(x, p) b = Pad(a, q) c = Conv(b, w) d = Relu(b) y = Concat<axis=1>(c, d)",
        {"p": [0, 0, 0, 1, 0, 0, 0, 0], "q": [0, 0, 0, 0, 0, 0, 0, 2], "w": (3, 3, 1, 1)}, ODD,
        "InnerProduct Convolution ReLU Concat"),
    "pad dropped": (13, "z = Pad(x, p) d = Dropout(z) y = Conv(d, w)", {"w": W, "p": [0, 0, 0, 1, 0, 0, 0, 0]}, SHAPE,
                    "InnerProduct Dropout Convolution"),
    "pad handed on": (13, "z = Pad(x, p) i = Identity(z) y = Relu(i)", {"p": [0, 0, 0, 1, 0, 0, 0, 0]}, ODD,
                      "InnerProduct ReLU"),
    "pad handed on to a convolution": (
        13, "z = Pad(x, p) i = Identity(z) y = Conv(i, w)", {"w": W, "p": [0, 0, 1, 1, 0, 0, 1, 1]}, SHAPE,
        "Convolution"),
    "pad of zeros reflected": (13, 'z = Pad(x, p) y = Pad<mode="reflect">(z, q)',
                               {"p": [0, 0, 0, 1, 0, 0, 0, 0], "q": [0, 0, 0, 0, 0, 0, 0, 2]}, ODD,
                               "InnerProduct InnerProduct"),
    "pad reflecting": (13, 'y = Pad<mode="reflect">(x, p)', {"p": [0, 0, 6, 1, 0, 0, 0, 3]}, ODD,
                       "Permute InnerProduct Permute InnerProduct"),
    "pad edges": (13, 'y = Pad<mode="edge">(x, p)', {"p": [0, 1, 0, 2, 0, 0, 0, 9]}, ODD,
                  "Permute InnerProduct Permute InnerProduct"),
    "pad around": (19, 'y = Pad<mode="wrap">(x, p, , a)', {"p": [3, 2], "a": [-1]}, ODD, "InnerProduct"),
    "pad average": (13, "z = Pad(x, p) y = AveragePool <kernel_shape=[3,3]>(z)", {"p": [0, 0, 1, 0, 0, 0, 0, 1]}, ODD,
                    "Pooling Slice Slice Silence"),
    "pad average, not counted": (
        13, "z = Pad(x, p) y = AveragePool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(z)",
        {"p": [0, 0, 1, 0, 0, 0, 0, 1]}, EVEN, "Pooling Scale"),
    "deconv": (11, "y = ConvTranspose <strides=[2,2], pads=[1,1,1,1], group=2>(x, w, b)",
               {"w": (4, 3, 3, 3), "b": (6,)}, SHAPE, "Deconvolution"),
    "deconv same": (11, 'y = ConvTranspose <strides=[2,2], auto_pad="SAME_UPPER">(x, w)', {"w": (4, 3, 3, 5)}, SHAPE,
                    "Deconvolution Slice Slice Silence"),
    "deconv same, lower": (11, 'y = ConvTranspose <strides=[2,2], auto_pad="SAME_LOWER">(x, w)', {"w": (4, 3, 3, 5)},
                           SHAPE, "Deconvolution Slice Slice Silence"),
    "deconv more": (11, "y = ConvTranspose <strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]>(x, w)",
                    {"w": (4, 3, 3, 3)}, SHAPE, "Deconvolution Slice Slice Silence"),
    "deconv shape": (11, "y = ConvTranspose <strides=[2,2], output_shape=[12,12]>(x, w)", {"w": (4, 3, 3, 3)}, SHAPE,
                     "Deconvolution Slice Slice Silence"),
    "gemm": (9, "y = Gemm(x, w, b)", {"w": (6, 5), "b": (5,)}, (3, 6), "InnerProduct"),
    "gemm fields": (13, "y = Gemm <transB=1, alpha=0.5, beta=2.0>(x, w, b)", {"w": (5, 6), "b": 0.5}, (3, 6),
                    "InnerProduct"),
    "gemm without bias": (13, "y = Gemm <beta=2.0>(x, w)", {"w": (6, 5)}, (3, 6), "InnerProduct"),
    "gemm row": (11, "y = Gemm(x, w, b)", {"w": (6, 5), "b": (1, 5)}, (3, 6), "InnerProduct"),
    "gemm computed": (11, "z = Gemm(x, w) y = Gemm <beta=3.0>(x, w, z)", {"w": (6, 5)}, (3, 6),
                      "InnerProduct InnerProduct Eltwise"),
    "matmul": (9, "y = MatMul(x, w)", {"w": (6, 5)}, (3, 2, 6), "InnerProduct"),
    "matmul bias": (9, "z = MatMul(x, w) y = Add(b, z)", {"w": (6, 5), "b": (5,)}, (3, 6), "InnerProduct"),
    "matmul and bias": (9, "z = MatMul(x, w) y = Add(z, b)", {"w": (6, 5), "b": (5,)}, (3, 6), "InnerProduct"),
    "matmul read twice": (9, "z = MatMul(x, w) a = Add(b, z) y = Mul(a, z)", {"w": (6, 5), "b": (5,)}, (3, 6),
                          "InnerProduct Bias Eltwise"),
    "prelu": (9, "y = PRelu(x, s)", {"s": (4, 1, 1)}, SHAPE, "PReLU"),
    "prelu shared": (16, "y = PRelu(x, s)", {"s": (1, 1, 1)}, SHAPE, "PReLU"),
    "matmul of values": (13, "y = MatMul(x, x)", {}, SHAPE, "MatMul"),
    "matmul of turned values": (13, "t = Transpose<perm=[0,1,3,2]>(x) y = MatMul(x, t)", {}, SHAPE, "Permute MatMul"),
    "einsum": (13, 'y = Einsum<equation="bhij,bhkj->bkhi">(x, x)', {}, SHAPE, "Permute MatMul Permute"),
    "attention": (23, "y = Attention(x, x, x)", {}, SHAPE, "Power MatMul Softmax MatMul"),
    "attention fields": (23, "y = Attention<is_causal=1, scale=0.3>(x, x, x)", {}, SHAPE,
                         "Power MatMul Bias Softmax MatMul"),
    "attention to more keys": (23, "k = Concat<axis=2>(x, x) y = Attention<is_causal=1>(x, k, k)", {}, SHAPE,
                               "Concat Power MatMul Bias Softmax MatMul"),
    "attention of rows with one head": (
        23, "y = Attention<q_num_heads=1, kv_num_heads=1>(x, x, x)", {}, (3, 6, 8),
        "Reshape Permute Reshape Permute Reshape Permute Power MatMul Softmax MatMul Permute Reshape"),
    "attention of rows": (23, "y = Attention<q_num_heads=2, kv_num_heads=2>(x, x, x, m)", {"m": (6, 6)}, (3, 6, 8),
                          "Reshape Permute Reshape Permute Reshape Permute Power MatMul Bias Softmax MatMul Permute"
                          " Reshape"),
    "attention by flags": (23, "y = Attention(x, x, x, m)", {"m": np.tri(6, dtype=bool)}, SHAPE,
                           "Power MatMul Bias Softmax MatMul"),
    "attention by a mask of each item": (23, "y = Attention(x, x, x, x)", {}, SHAPE,
                                         "Power MatMul Eltwise Softmax MatMul"),
    "where": (13, "y = Where(c, x, n)", {"c": np.tri(6, dtype=bool), "n": np.float32(-np.inf)}, SHAPE, "Bias"),
    "a number times": (13, "y = Mul(n, x)", {"n": np.full((1, 1), 2, np.float32)}, SHAPE, "Power"),
    "where, a number first": (13, "y = Where(c, n, x)", {"c": np.tri(6, dtype=bool), "n": np.float32(2)}, SHAPE,
                              "Scale Bias"),
    "a constant that is written": (14, "t = ScatterND(w, i, u) y = Add(x, t)", {
        "w": (6, 6), "i": np.array([[0], [4]]), "u": (2, 6)}, SHAPE, "Bias"),
    "part of a matrix": (14, "t = Trilu<upper=0>(w) y = Add(x, t)", {"w": (6, 6)}, SHAPE, "Bias"),
    "a weight before each item": (13, "e = Expand(w, s) y = Concat<axis=2>(e, x)",
                                  {"w": (1, 4, 1, 6), "s": [3, 4, 1, 6]}, SHAPE,
                                  "Reduction Power Reshape Tile Tile Bias Concat"),
    "a constant before each item": (13, "y = Concat<axis=1>(o, x)", {"o": np.ones((3, 1, 6, 6), np.float32)}, SHAPE,
                                    "Reduction Power Reshape Tile Tile Bias Concat"),
    "lstm": (14, "a = LSTM<hidden_size=2>(x, w, r, b) y = Squeeze(a, one)",
             {"w": (1, 8, 5), "r": (1, 8, 2), "b": (1, 16), "one": [1]}, (7, 3, 5),
             "Reduction Power Slice Power Reshape Tile LSTM Silence"),
    "gru": (14, "a, y = GRU<hidden_size=2>(x, w, r)", {"w": (1, 6, 5), "r": (1, 6, 2)}, (1, 3, 5),
            "Reduction Power Power Reshape Tile InnerProduct Slice InnerProduct Eltwise Sigmoid Slice Eltwise"
            " InnerProduct Eltwise TanH Eltwise Eltwise Eltwise"),
    "rnn": (14, "a, y = RNN<hidden_size=2>(x, w, r)", {"w": (1, 2, 5), "r": (1, 2, 2)}, (1, 3, 5),
            "Reduction Power Power Reshape Tile InnerProduct InnerProduct Eltwise TanH"),
    "batch norm": (9, "y = BatchNormalization <epsilon=0.01, momentum=0.8>(x, s, b, m, v)",
                   {"s": (4,), "b": (4,), "m": (4,), "v": (4,)}, SHAPE, "BatchNorm Scale"),
    "batch norm, stored once": (15, "y = BatchNormalization(x, s, b, b, s)", {"s": (4,), "b": (4,)}, SHAPE,
                                "BatchNorm Scale"),
    "layer norm": (17, "y = LayerNormalization <axis=2>(x, s, b)", {"s": (6, 6), "b": (6,)}, SHAPE, "LayerNorm"),
    "layer norm, no bias": (17, "y = LayerNormalization <epsilon=0.5>(x, s)", {"s": (6,)}, SHAPE, "LayerNorm"),
    "layer norm, written out": (
        13, "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps)"
        "r = Sqrt(e) n = Div(d, r) g = Mul(n, s) y = Add(g, b)",
        {"two": 2.0, "eps": 1e-3, "s": (6,), "b": (6,)}, SHAPE, "LayerNorm"),
    "layer norm, written out by axes from the front": (
        13, "m = ReduceMean<axes=[3]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[3]>(q) e = Add(eps, v)"
        "r = Sqrt(e) y = Div(d, r)", {"eps": 1e-3}, SHAPE,
        "Reduction Reshape Power Reshape Bias Eltwise Reduction Reshape Power Power Power Reshape Scale"),
    "instance norm": (9, "y = InstanceNormalization <epsilon=0.1>(x, s, b)", {"s": (4,), "b": (4,)}, SHAPE,
                      "LayerNorm Scale"),
    "group norm": (21, "y = GroupNormalization <num_groups=2>(x, s, b)", {"s": (4,), "b": (4,)}, SHAPE,
                   "Reshape LayerNorm Reshape Scale"),
    "group norm, old, of parameters for other channels too": (
        18, "g = GroupNormalization <num_groups=2>(x, s, b) c = Concat<axis=1>(g, g)"
        "y = GroupNormalization <num_groups=2>(c, s, b)", {"s": (2,), "b": (2,)}, SHAPE,
        "Reshape LayerNorm Reshape Scale Concat Reshape LayerNorm Reshape Scale"),
    "lrn": (9, "y = LRN <size=3, alpha=0.5, beta=0.6, bias=2.0>(x)", {}, SHAPE, "LRN"),
    "lrn of one channel": (9, "y = LRN <size=1, alpha=0.5>(x)", {}, SHAPE, "LRN"),
    "lrn of all channels": (9, "y = LRN <size=9, alpha=0.5>(x)", {}, SHAPE, "LRN"),
    "lrn of PyTorch": (
        20, "s = Mul(x, x) a = Reshape(s, apart) p = Pad<mode=\"constant\">(a, pads)"
        "m = AveragePool<kernel_shape=[3,1,1], count_include_pad=1, pads=[0,0,0,0,0,0], strides=[1,1,1]>(p)"
        "q = Squeeze(m, one) f = Mul(q, alpha) t = Add(f, k) d = Pow(t, beta) y = Div(x, d)", LRN, SHAPE, "LRN"),
    "lrn of PyTorch, with a size that is asked for": (
        13, "s = Mul(x, x) a = Reshape(s, apart) p = Pad(a, pads, ) m = AveragePool<kernel_shape=[3,1,1]>(p)"
        "h = Shape(m) g = Gather<axis=0>(h, one) e = Equal(g, one) i = If(e) <then_branch = g1 () => (float[n] v) {"
        " v = Squeeze(m, one) }, else_branch = g2 () => (float[n] w) { w = Identity(m) }>"
        "q = Reshape(i, back) f = Mul(q, alpha) t = Add(f, k) d = Pow(t, beta) y = Div(x, d)", LRN, SHAPE, "LRN"),
    "lrn of PyTorch, old": (
        9, "s = Mul(x, x) a = Unsqueeze<axes=[1]>(s) p = Pad<pads=[0,0,1,0,0,0,0,1,0,0]>(a)"
        "m = AveragePool<kernel_shape=[3,1,1]>(p) q = Squeeze<axes=[1]>(m) f = Mul(q, alpha) t = Add(f, k)"
        "d = Pow(t, beta) y = Div(x, d)", LRN, SHAPE, "LRN"),
    "activations": (
        20, "a = Relu(x) b = Elu<alpha=0.5>(x) c = Selu(x) d = Gelu(x) e = Gelu<approximate=\"tanh\">(x) f = Sigmoid(x)"
        "g = HardSigmoid(x) h = HardSwish(x) i = Mish(x) j = Tanh(x) k = Softplus(x) l = LeakyRelu<alpha=0.2>(x)"
        "m = Neg(x) n = Abs(x) o = Exp(m) p = Log(o) q = Sqrt(n) r = Reciprocal(o)"
        "y = Sum(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)", {}, SHAPE,
        "ReLU ELU ELU Power GELU GELU Sigmoid HardSigmoid HardSwish BNLL TanH Eltwise TanH BNLL ReLU Power AbsVal Exp"
        " Log Power Power Eltwise"),
    "swish": (24, "y = Swish<alpha=1.5>(x)", {}, SHAPE, "Swish"),
    "clip, old": (9, "a = Clip<min=-0.5, max=0.5>(x) b = Clip<min=0.0>(x) c = Clip(x) y = Sum(a, b, c)", {}, SHAPE,
                  "Clip ReLU Eltwise"),
    "clip": (11, "a = Clip(x, l, h) b = Clip(x, z, s) y = Add(a, b)", {"l": -1.0, "h": 0.5, "z": 0.0, "s": 6.0}, SHAPE,
             "Clip ReLU6 Eltwise"),
    "clip, open": (13, "y = Clip(x, , h)", {"h": 0.5}, SHAPE, "Clip"),
    "softmax, old": (11, "y = Softmax(x)", {}, SHAPE, "Flatten Softmax Reshape"),
    "softmax, old, last": (11, "y = Softmax<axis=-1>(x)", {}, SHAPE, "Softmax"),
    "softmax, old, middle": (11, "y = Softmax<axis=2>(x)", {}, SHAPE, "Reshape Softmax Reshape"),
    "softmax": (13, "a = Softmax(x) b = Softmax<axis=1>(x) y = Add(a, b)", {}, SHAPE, "Softmax Softmax Eltwise"),
    "log softmax": (13, "y = LogSoftmax<axis=1>(x)", {}, SHAPE, "Softmax Log"),
    "dropout, old": (9, "a = Relu(x) y = Dropout<ratio=0.25>(a)", {}, SHAPE, "ReLU Dropout"),
    "dropout": (13, "a = Relu(x) y, m = Dropout(a, r)", {"r": 0.25}, SHAPE, "ReLU Dropout"),
    "identity, cast": (13, "a = Identity(x) b = Relu(a) c = Cast<to=11>(b) d = Cast<to=1>(c) y = Tanh(d)", {}, SHAPE,
                       "ReLU TanH"),
    "sums": (13, "a = Add(x, c) b = Add(t, a) d = Sub(b, c) e = Sub(d, t) f = Sub(t, e) g = Add(f, x) y = Sub(g, x)",
             {"c": 2.0, "t": (4, 1, 1)}, SHAPE, "Power Bias Power Bias Power Bias Eltwise Eltwise"),
    "products": (13, "a = Mul(x, c) b = Mul(a, t) d = Div(b, c) e = Div(d, t) f = Mul(e, x) g = Exp(f) h = Div(x, g)"
                 "i = Div(c, g) j = Div(t, g) k = Mul(i, j) y = Mul(h, k)", {"c": 2.0, "t": (1, 4, 1, 1)}, SHAPE,
                 "Power Scale Power Scale Eltwise Exp Power Eltwise Power Power Power Scale Eltwise Eltwise"),
    "pow": (13, "a = Abs(x) y = Pow(a, e)", {"e": 1.5}, SHAPE, "AbsVal Power"),
    "one a channel": (13, "a = GlobalAveragePool(x) b = Sigmoid(a) c = Mul(x, b) y = Sub(c, a)", {}, SHAPE,
                      "Pooling Sigmoid Flatten Scale Power Flatten Bias"),
    "several": (13, "a = Relu(x) b = Tanh(x) c = Mean(x, a, b) d = Max(x, a, b) e = Min(x, a) f = Max(x, n)"
                "g = Min(x, n) h = Sum(x, t) i = Mean(t, x) y = Sum(c, d, e, f, g, h, i)", {"n": 0.5, "t": (4, 1, 1)},
                SHAPE, "ReLU TanH Eltwise Eltwise Power Power Eltwise Power Clip Clip Bias Bias Power Eltwise"),
    "channels in another order, in rows": (
        13, "a = Reshape(x, s) t = Transpose<perm=[0,2,1,3,4]>(a) y = Reshape(t, r)",
        {"s": [3, 2, 2, 6, 6], "r": [3, 4, 36]}, SHAPE, "Reshape Permute Reshape"),
    "sums of other shapes": (13, "a = GlobalAveragePool(x) b = Sum(x, a, x) y = Mean(a, b)", {}, SHAPE,
                             "Pooling Flatten Bias Eltwise Flatten Bias Power"),
    "reductions, old": (13, "a = ReduceMean<axes=[2,3]>(x) b = ReduceSum(x, k) c = ReduceL1<axes=[3,2]>(x)"
                        "d = ReduceSumSquare<axes=[-1,-2]>(x) e = ReduceL2<axes=[2,3]>(x) f = ReduceMax<axes=[2,3]>(x)"
                        "y = Sum(a, b, c, d, e, f)", {"k": [2, 3]}, SHAPE,
                        "Pooling Reduction Reshape Reduction Reshape Reduction Reshape Reduction Reshape Power Pooling"
                        " Eltwise"),
    "reductions": (18, "a = ReduceMean<keepdims=0>(x, k) b = ReduceMax<keepdims=0>(x, k)"
                   "c = ReduceSum<keepdims=0>(x, k) y = Sum(a, b, c)", {"k": [2, 3]}, SHAPE,
                   "Pooling Flatten Pooling Flatten Reduction Eltwise"),
    "reductions of channels": (18, "a = ReduceMean(x, k) y = ReduceL2<keepdims=0>(a, r)", {"k": [1], "r": [1, 2]},
                               SHAPE, "Permute Reduction Reshape Permute Reduction Power"),
    "no reduction": (18, "a = ReduceMean<noop_with_empty_axes=1>(x) y = Relu(a)", {}, SHAPE, "ReLU"),
    "no reduction of absolutes and squares": (
        18, "a = ReduceL1<noop_with_empty_axes=1>(x) b = ReduceL2<noop_with_empty_axes=1>(x)"
        "c = ReduceSumSquare<noop_with_empty_axes=1>(x) d = ReduceMin<noop_with_empty_axes=1>(x) y = Sum(a, b, c, d)",
        {}, SHAPE, "AbsVal Power Power Power Eltwise"),
    "arg max": (13, "a = Relu(x) y = ArgMax<axis=1, select_last_index=1, keepdims=0>(a)", {}, SHAPE,
                "ReLU ArgMax Reshape"),
    "max pool": (9, "y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", {}, ODD, "Pooling"),
    "max pool ceil": (11, "y = MaxPool<kernel_shape=[3,2], strides=[2,2], ceil_mode=1>(x)", {}, ODD, "Pooling"),
    "max pool same": (11, 'y = MaxPool<kernel_shape=[2,2], strides=[2,2], auto_pad="SAME_UPPER">(x)', {}, ODD,
                      "Pooling"),
    "max pool same, overlapping": (11, 'y = MaxPool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(x)', {},
                                   EVEN, "Pooling"),
    "max pool same, lower": (11, 'y = MaxPool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_LOWER">(x)', {}, EVEN,
                             "Pooling"),
    "max pool pads": (11, "y = MaxPool<kernel_shape=[3,3], pads=[0,0,2,1]>(x)", {}, EVEN,
                      "Pooling Slice Slice Silence"),
    "average": (9, "y = AveragePool<kernel_shape=[2,3], strides=[1,2]>(x)", {}, ODD, "Pooling"),
    "average, padding counted": (
        11, "y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1>(x)", {}, ODD,
        "Pooling"),
    "average, padding not counted": (11, "y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", {},
                                     ODD, "Pooling Scale"),
    "average ceil": (19, "y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(x)", {}, EVEN,
                     "Pooling Scale"),
    "average same": (11, 'y = AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(x)', {}, EVEN,
                     "Pooling"),
    "global": (9, "a = GlobalAveragePool(x) b = GlobalMaxPool(x) y = Add(a, b)", {}, SHAPE, "Pooling Pooling Eltwise"),
    "max pool 1d": (13, "y = MaxPool<kernel_shape=[3], strides=[2], pads=[1,1]>(x)", {}, (2, 3, 8),
                    "Reshape Pooling Reshape"),
    "average 1d": (13, "y = AveragePool<kernel_shape=[3], strides=[2], pads=[1,1]>(x)", {}, (2, 3, 8),
                   "Reshape Pooling Scale Reshape"),
    "max pool 3d": (13, "y = MaxPool<kernel_shape=[2,3,2], strides=[1,2,2], pads=[1,1,0,0,1,1]>(x)", {}, VOLUME,
                    "Reshape Pooling Reshape Pooling Slice Reshape Silence"),
    "average 3d": (13, "y = AveragePool<kernel_shape=[2,3,2], strides=[2,2,1], pads=[0,1,0,0,1,1]>(x)", {}, VOLUME,
                   "Reshape Pooling Slice Scale Reshape Pooling Reshape Silence"),
    "global maximum 1d": (9, "y = GlobalMaxPool(x)", {}, (2, 3, 5), "Reshape Pooling Reshape"),
    "largest of axes": (13, "a = ReduceMax<axes=[1,3], keepdims=0>(x) b = ReduceMin<axes=[3,1], keepdims=0>(x)"
                        "y = Sub(a, b)", {}, SHAPE,
                        "Permute Reshape Pooling Flatten Power Permute Reshape Pooling Power Flatten Eltwise"),
    "global 1d": (9, "y = GlobalAveragePool(x)", {}, (2, 3, 5), "Reduction Reshape"),
    "reshape": (9, "y = Reshape(x, s)", {"s": [0, 2, -1, 6]}, SHAPE, "Reshape"),
    "reshape computed": (
        13, "s = Shape(x) n = Gather<axis=0>(s, zero) u = Unsqueeze(n, axes) t = Concat<axis=0>(u, minus)"
        "y = Reshape(x, t)", {"zero": np.array(0), "axes": [0], "minus": [-1]}, SHAPE, "Flatten"),
    "reshape computed, old": (
        11, "s = Shape(x) n = Gather<axis=0>(s, zero) u = Unsqueeze<axes=[0]>(n) r = ReduceProd<axes=[0]>(minus)"
        "t = Concat<axis=0>(u, r) y = Reshape(x, t)", {"zero": np.array(0), "minus": [-1]}, SHAPE, "Flatten"),
    "reshape of a later shape": (
        15, "a = Relu(x) s = Shape<start=0, end=2>(a) t = Concat<axis=0>(s, m) y = Reshape(x, t)", {"m": [36]}, SHAPE,
        "Reshape"),
    "flatten": (9, "y = Flatten(x)", {}, SHAPE, "Flatten"),
    "flatten behind": (11, "y = Flatten<axis=-1>(x)", {}, SHAPE, "Reshape"),
    "squeeze": (11, "a = Unsqueeze<axes=[2]>(x) b = Tanh(a) y = Squeeze<axes=[2]>(b)", {}, SHAPE,
                "Reshape TanH Reshape"),
    "squeeze by input": (13, "a = Unsqueeze(x, k) b = Tanh(a) y = Squeeze(b, k)", {"k": [-1]}, SHAPE,
                         "Reshape TanH Reshape"),
    "squeeze all": (13, "a = GlobalAveragePool(x) y = Squeeze(a)", {}, SHAPE, "Pooling Flatten"),
    "transpose": (9, "y = Transpose<perm=[0,2,3,1]>(x)", {}, SHAPE, "Permute"),
    "concat": (9, "a = Relu(x) b = Concat<axis=1>(x, a) c = Tanh(b) y = Concat<axis=-1>(b, c)", {}, SHAPE,
               "ReLU Concat TanH Concat"),
    "split, old": (11, "a, b = Split<axis=1, split=[1,3]>(x) y = Concat<axis=1>(b, a)", {}, SHAPE, "Slice Concat"),
    "split": (13, "a, y = Split<axis=1>(x, s)", {"s": [1, 3]}, SHAPE, "Slice Silence"),
    "split, uneven": (18, "a, b = Split<axis=2, num_outputs=2>(x) y = Relu(a)", {}, ODD, "Slice ReLU Silence"),
    "slice with steps": (13, "y = Slice(x, s, e, k, p)", {"s": [-1, 1], "e": [-9, 6], "k": [1, 3], "p": [-2, 3]}, SHAPE,
                         "Permute InnerProduct Permute InnerProduct"),
    "gather in any order": (13, "y = Gather<axis=2>(x, r)", {"r": [[3, 1], [-6, 1]]}, SHAPE,
                            "Permute InnerProduct Permute Reshape"),
    "gather rows of a weight": (13, "r = Gather(w, s) y = Add(x, r)", {"w": (4, 6), "s": [3, 0, -4, 3, 1, 2]}, SHAPE,
                                "Parameter Embed Bias"),
    "pad channels": (13, "y = Pad(x, p)", {"p": [0, 1, 0, 0, 0, 2, 0, 1]}, SHAPE,
                     "Permute InnerProduct Permute InnerProduct"),
    "mask with an axis between": (13, "y = Where(c, x, n)", {"c": np.tri(4, 1, dtype=bool).reshape(1, 4, 1, 1)
                                  & np.tri(6, dtype=bool)[0], "n": np.float32(-1)}, SHAPE, "Scale Bias"),
    "slice, old": (9, "y = Slice<starts=[1,-4], ends=[3,100], axes=[1,3]>(x)", {}, SHAPE, "Slice Slice Silence"),
    "slice": (13, "a = Slice(x, s, e, k, p) b = Slice(x, e, f, k) y = Concat<axis=1>(b, a)",
              {"s": [0], "e": [1], "f": [4], "k": [1], "p": [1]}, SHAPE, "Slice Concat"),
    "overlapping slices": (13, "a = Slice(x, s, t, k) b = Slice(x, t, e, k) c = Slice(x, s, e, k) d = Mul(a, b)"
                           "f = Add(a, d) y = Concat<axis=1>(c, f)", {"s": [0], "t": [2], "e": [4], "k": [1]}, SHAPE,
                           "Slice Eltwise Eltwise Concat"),
    "gather": (13, "a = Gather<axis=1>(x, i) b = Gather<axis=-1>(a, j) y = Gather<axis=1>(b, l)",
               {"i": np.array(-1), "j": [2, 3, 4], "l": np.array([[0, 1], [2, 3]])}, SHAPE,
               "Slice Reshape Slice Slice Reshape Silence"),
    "gather of rows": (13, "i = Cast<to=7>(x) j = Cast<to=6>(i) a = Gather(w, j) b = Gather(w, i) y = Add(a, b)",
                       {"w": (5, 3)}, (3, 4), "Embed Embed Eltwise"),
    "gather of moved rows": (
        13, "i = Cast<to=7>(x) p, q = Split<axis=1>(i, s) t = Transpose(p) u = Transpose(t) c = Concat<axis=1>(q, u)"
        "r = Reshape(c, n) k = Gather<axis=1>(r, one) j = Identity(k) a = Gather(w, j) y = Relu(a)",
        {"s": [1, 3], "n": [3, 2, 2], "one": np.array(1), "w": (5, 3)}, (3, 4),
        "Slice Permute Permute Concat Reshape Slice Flatten Embed ReLU Silence"),
    "tile": (13, "a = Tile(x, r) y = Expand(a, s)", {"r": [1, 1, 2, 1], "s": [3, 1, 12, 6]}, SHAPE, "Tile"),
    "expand": (13, "a = GlobalAveragePool(x) y = Expand(a, s)", {"s": [3, 1, 2, 3]}, SHAPE, "Pooling Tile Tile"),
    "depth to space": (13, 'a = DepthToSpace<blocksize=2>(x) b = SpaceToDepth<blocksize=2>(a)'
                       'y = DepthToSpace<blocksize=2, mode="CRD">(b)', {}, SHAPE, "Reshape Permute Reshape " * 3),
    "space to depth, other order": (28, 'y = SpaceToDepth<blocksize=2, mode="CRD">(x)', {}, SHAPE,
                                    "Reshape Permute Reshape"),
    "channel shuffle": (13, "a = Reshape(x, s) b = Transpose<perm=[0,2,1,3,4]>(a) y = Reshape(b, t)",
                        {"s": [3, 2, 2, 6, 6], "t": [3, -1, 6, 6]}, SHAPE, "ShuffleChannel"),
    "no channel shuffle": (13, "a = Reshape(x, s) b = Transpose<perm=[0,3,2,1,4]>(a) y = Reshape(b, t)",
                           {"s": [3, 2, 2, 6, 6], "t": [3, -1, 6, 6]}, SHAPE, "Reshape Permute Reshape"),
    "upsample": (9, "y = Upsample(x, s)", {"s": np.array([1, 1, 2, 3], np.float32)}, SHAPE, "Deconvolution"),
    "resize 10": (10, "y = Resize(x, s)", {"s": np.array([1, 1, 3, 3], np.float32)}, SHAPE, "Deconvolution"),
    "resize": (13, "y = Resize(x, , s)", {"s": np.array([1, 1, 2, 2], np.float32)}, SHAPE, "Deconvolution"),
    "resize as in PyTorch": (
        11, 'y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, r, s)',
        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 3, 2], np.float32)}, SHAPE, "Deconvolution"),
    "resize corners": (
        13, 'y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s)', {"s": [3, 4, 11, 3]},
        SHAPE, "Interp"),
    **{
        f"resize {mode} {coordinates}": (
            19, f'y = Resize<mode="{mode}", coordinate_transformation_mode="{coordinates}">(x, , , s)',
            {"s": [3, 4, 9, 4]}, SHAPE, "Interp" if (mode, coordinates) == ("linear", "align_corners") else _RESAMPLED)
        for mode in ("nearest", "linear", "cubic")
        for coordinates in (
            "asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    },
    **{
        f"resize nearest {way}": (
            13, f'y = Resize<nearest_mode="{way}">(x, , s)', {"s": np.array([1, 1, 1.5, 0.6], np.float32)}, SHAPE,
            _RESAMPLED)
        for way in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    },
    **{
        f"resize nearest between corners {way}, where rounding decides": (
            13, f'y = Resize<coordinate_transformation_mode="align_corners", nearest_mode="{way}">(x, , , s)',
            {"s": [1, 1, new]}, (1, 1, size), "InnerProduct")
        for way, size, new in (
            ("floor", 2, 42), ("round_prefer_floor", 3, 29), ("round_prefer_ceil", 4, 75), ("ceil", 5, 29))
    },
    "resize by ceil": (13, 'y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="ceil">(x, , s)',
                       {"s": np.array([1, 1, 2, 2], np.float32)}, SHAPE, _RESAMPLED),
    "resize for nearest": (11, 'y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn">(x, r, s)',
                           {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 1.5, 2.5], np.float32)}, SHAPE,
                           _RESAMPLED),
    "resize 10 smaller": (10, "y = Resize(x, s)", {"s": np.array([1, 1, 0.6, 1.5], np.float32)}, SHAPE, _RESAMPLED),
    "resize 10 linear": (10, 'y = Resize<mode="linear">(x, s)', {"s": np.array([1, 1, 2, 1.7], np.float32)}, SHAPE,
                         _RESAMPLED),
    "resize to one": (13, 'y = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(x, , , s)',
                      {"s": [3, 4, 1, 9]}, SHAPE, _RESAMPLED),
    "resize cubic, other weights": (13, 'y = Resize<mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1>(x, , , s)',
                                    {"s": [3, 4, 9, 5]}, SHAPE, _RESAMPLED),
    "resize by a factor that leaves a size": (
        13, 'y = Resize<mode="linear">(x, , s)', {"s": np.array([1, 1, 1.1, 2], np.float32)}, SHAPE, _RESAMPLED),
    "resize rows between corners": (
        13, 'y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s)', {"s": [2, 4, 7]},
        (2, 4, 9), "InnerProduct"),
    "resize rows": (13, 'y = Resize<mode="linear">(x, , , s)', {"s": [2, 4, 7]}, (2, 4, 9), "InnerProduct"),
    "resize 3d": (13, 'y = Resize<mode="linear">(x, , , s)', {"s": [2, 2, 5, 6, 3]}, (2, 2, 3, 4, 5),
                  "InnerProduct Permute InnerProduct Permute Permute InnerProduct Permute"),
    "resize to the same": (13, 'a = Resize<mode="linear">(x, , s) y = Tanh(a)',
                           {"s": np.array([1, 1, 1.1, 1], np.float32)}, SHAPE, "TanH"),
    "resize axes": (18, "y = Resize<axes=[2,3]>(x, , , s)", {"s": [12, 18]}, SHAPE, "Deconvolution"),
    "gelu": (13, "a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
             {"r": ROOT, "one": 1.0, "half": 0.5}, SHAPE, "GELU"),
    "gelu, other order": (13, "h = Mul(half, x) a = Mul(x, r) b = Erf(a) c = Add(one, b) y = Mul(h, c)",
                          {"r": 1 / ROOT, "one": 1.0, "half": 0.5}, SHAPE, "GELU"),
    "gelu by tanh": (13, "p = Pow(x, three) a = Mul(p, k) b = Add(x, a) c = Mul(b, r) d = Tanh(c) e = Add(d, one)"
                     "f = Mul(x, e) y = Mul(f, half)",
                     {"three": 3.0, "k": 0.044715, "r": (2 / np.pi) ** 0.5, "one": 1.0, "half": 0.5}, SHAPE, "GELU"),
    "masked softmax": (
        13, "a = Add(x, m) s = Softmax<axis=-1>(a) n = IsNaN(s) y = Where(n, zero, s)",
        {"m": np.where(np.tri(6), 0, -np.inf).astype(np.float32), "zero": 0.0}, SHAPE, "Bias Softmax"),
    "swish, written out": (13, "a = Sigmoid(x) b = Mul(x, a) c = Mul(b, k) d = Sigmoid(c) y = Mul(d, b)", {"k": 1.5},
                           SHAPE, "Swish Swish"),
    "hard swish, written out": (
        13, "a = Add(x, three) b = Clip(a, z, s) c = Mul(x, b) d = Div(c, s) e = Add(d, three) f = Clip(e, z, s)"
        "g = Div(f, s) h = HardSigmoid<alpha=0.1666666716337204>(g) y = Mul(h, g)", {"three": 3.0, "z": 0.0, "s": 6.0},
        SHAPE, "HardSwish HardSigmoid HardSwish"),
    "hard swish, read elsewhere": (
        11, "a = Add(x, three) b = Clip(a, z, s) c = Mul(x, b) d = Div(c, s) y = Add(d, b)",
        {"three": 3.0, "z": 0.0, "s": 6.0}, SHAPE, "Power ReLU6 Eltwise Power Eltwise"),
    "constants": (13, "c = Constant<value_float=2.0>() r = ConstantOfShape<value=float[1]{3.0}>(s) t = Mul(r, c)"
                  "u = Transpose(w) v = Exp(t) y = Gemm(x, u, v)", {"s": [5], "w": (5, 6)}, (3, 6), "InnerProduct"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operator_becomes_layers_that_compute_the_same(name, tmp_path):
    opset, body, weights, shape, types = CASES[name]
    assert types_of(converted(model(body, weights, opset=opset, shape=shape), tmp_path)) == types.split()


@pytest.mark.parametrize(
    ("opset", "body", "weights", "ratio"),
    [
        (9, "y = Dropout<ratio=0.25>(x)", {}, 0.25),
        (11, "y = Dropout(x)", {}, 0.5),
        (12, "y = Dropout(x, r)", {"r": 0.25}, 0.25),
        (13, "y = Dropout(x)", {}, 0.5),
    ],
)
def test_dropout_keeps_its_ratio(opset, body, weights, ratio, tmp_path):
    (layer,) = layers_of(converted(model(body, weights, opset=opset), tmp_path))
    assert layer.type == "Dropout" and layer.dropout_param.dropout_ratio == ratio


@pytest.mark.parametrize(("field", "fraction"), [("<momentum=0.75>", 0.75), ("", 0.9)])
def test_batch_norm_goes_on_with_averages_of_its_momentum(field, fraction, tmp_path):
    body = f"y = BatchNormalization{field}(x, s, s, s, s)"
    layer = layers_of(converted(model(body, {"s": (4,)}), tmp_path))[0]
    assert layer.batch_norm_param.moving_average_fraction == pytest.approx(fraction)


def test_many_pixels_of_one_take_no_memory_for_the_square_of_their_count(tmp_path, monkeypatch):
    def small(size: int, **fields: torch.dtype) -> torch.Tensor:
        assert size < 100, "a square matrix of as many pixels"
        return eye(size, **fields)

    eye = torch.eye
    monkeypatch.setattr(torch, "eye", small)
    message = model('y = Resize<mode="linear">(x, , , s)', {"s": [1, 1, 1, 5000]}, opset=13, shape=(1, 1, 1, 2))
    assert types_of(converted(message, tmp_path)) == ["InnerProduct"]


def test_every_operator_has_a_case():
    said = " ".join(body for _, body, *_ in [*CASES.values(), *FORMULAS.values()])
    assert not [name for name in OPERATORS if f"={name}(" not in said.replace(" ", "").replace("<", "(")]


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT32, onnx.TensorProto.INT64])
def test_whole_numbers_that_are_an_input_are_rows(kind, tmp_path):
    message = model("a = Gather(w, x) y = Relu(a)", {"w": (5, 3)}, shape=(3, 4))
    message.graph.input[0].type.tensor_type.elem_type = kind
    assert types_of(converted(message, tmp_path)) == ["Embed", "ReLU"]


def test_a_single_number_of_16_bits_is_read(tmp_path):
    message = model("f = Cast<to=1>(s) y = Mul(x, f)")
    message.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.BFLOAT16, [], [1.5]))
    assert types_of(converted(message, tmp_path)) == ["Power"]


_GELU = (
    "p = Pow(x, exponent) c = Mul(p, cubic) s = Add(x, c) t = Mul(s, root) h = Tanh(t) g = Add(h, one) m = Mul(x, g)"
    "y = Mul(m, half)"
)
_NUMBERS = {"exponent": 3.0, "cubic": 0.044715, "root": (2 / np.pi) ** 0.5, "one": 1.0, "half": 0.5}
_DIVIDED = "d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) r = Sqrt(e) y = Div(d, r)"
ALMOST = {
    **{
        f"a GELU with another {name}": (_GELU, {**_NUMBERS, name: other}, "GELU")
        for name, other in (("exponent", 2.0), ("cubic", 0.05), ("root", 0.7), ("one", 2.0), ("half", 0.25))
    },
    "a HardSwish with another middle": (
        "h = HardSigmoid<alpha=0.16666667, beta=0.4>(x) y = Mul(x, h)", {}, "HardSwish"),
    "a LayerNorm with the mean of more": (f"m = ReduceMean<axes=[-2,-1]>(x) {_DIVIDED}", {"eps": 1e-3}, "LayerNorm"),
    "a LayerNorm with the mean of others": (
        f"a = Relu(x) m = ReduceMean<axes=[-1]>(a) {_DIVIDED}", {"eps": 1e-3}, "LayerNorm"),
}  # fmt: skip


def test_a_gelu_that_is_written_out_is_one_layer(tmp_path):
    assert types_of(converted(model(_GELU, _NUMBERS), tmp_path)) == ["GELU"]


@pytest.mark.parametrize("name", ALMOST)
def test_what_is_almost_a_layer_is_computed_as_it_is_written(name, tmp_path):
    body, weights, kind = ALMOST[name]
    assert kind not in types_of(converted(model(body, weights), tmp_path))


def test_factors_of_a_gemm_are_trained_as_part_of_its_parameters(tmp_path):
    body = "y = Gemm <alpha=0.5, beta=2.0>(x, w, b)"
    (layer,) = converted(model(body, {"w": (6, 5), "b": (5,)}, shape=(3, 6)), tmp_path).build().layers[-1:]
    assert [each.lr_mult for each in layer.parameters] == [1, 1]
