"""What no layer computes, and files that are damaged: one message that names the place, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mgcaffe.errors import DataError, EngineError, NetError, UsageError
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.onnx_files import read_onnx
from mgcaffe.tools.convert.onnx_in import folding
from tests.support.onnx_models import SHAPE, model, written

W = (6, 4, 3, 3)
# Opset, nodes, weights, and what is said.
REFUSED = {
    "unknown": (13, "a = Det(x) b = Erf(a) y = Sin(b)", {},
                r"net.onnx: no layer computes this operator \(operator Det, node 0, which makes 'a'\)\n"
                r".*which no layer computes: Erf \(1\), Sin \(1\)"),
    "matrices": (13, "s = Flatten(x) [qk] a = MatMul(x, s) y = Softmax(a)", {},
                 r"it multiplies matrices of shapes .*operator MatMul, node 1 'qk', which makes 'a'"),
    "einsum of one": (13, 'y = Einsum<equation="abcd->abdc">(x)', {}, "it multiplies 1 operands"),
    "an equation": (13, 'y = Einsum<equation="abc,abd->acd">(x, x)', {}, "does not fit operands of 4 and 4 axes"),
    "an equation for one": (13, 'y = Einsum<equation="abcd->abc">(x, x)', {}, "is not for two operands"),
    "an axis from nowhere": (13, 'y = Einsum<equation="abcd,abed->abz">(x, x)', {}, "does not fit operands of 4 and 4"),
    "a sum in an einsum": (13, 'y = Einsum<equation="abcd,abce->abe">(x, x)', {}, "it sums over an axis of one"),
    "limits of attention": (23, "y = Attention<softcap=2.0>(x, x, x)", {}, "it limits its products"),
    "a window of keys": (23, "y = Attention<left_window_size=2>(x, x, x)", {}, "it looks at a window of its keys"),
    "a window of keys behind": (23, "y = Attention<right_window_size=0>(x, x, x)", {}, "it looks at a window of its"),
    "a mask of all keys": (23, "y = Attention(x, x, x, m)", {"m": np.tri(6, k=-1, dtype=bool)},
                           "its mask hides all keys from a row"),
    "keys of before": (23, "y = Attention(x, x, x, , x, x)", {}, "it goes on from keys and values of a call before"),
    "keys that are counted": (24, "y = Attention(x, x, x, , , , n)", {"n": [6, 5, 4]}, "or counts them"),
    "no items": (14, "y = Reshape<allowzero=1>(x, s)", {"s": [0, 4, 36]}, r"has shape \(0, 4, 36\), which no blob can"),
    "keys that are read": (23, "a, k, v = Attention(x, x, x) y = Add(a, k)", {}, "it gives keys, values or products"),
    "a causal mask": (23, "y = Attention<is_causal=1>(x, x, x, x)", {}, "it is causal and has a mask as well"),
    "heads": (23, "r = Reshape(x, s) y = Attention<q_num_heads=5, kv_num_heads=5>(r, r, r)", {"s": [3, 4, 36]},
              r"its query has shape \(3, 4, 36\), for 5 heads"),
    "shared keys": (23, "k = Slice(x, o, p, p) y = Attention(x, k, k)", {"o": [0], "p": [1]},
                    "its queries, keys and values are"),
    "a computed condition": (13, "c = Greater(x, n) y = Where(c, x, n)", {"n": 0.0}, "no layer computes this operator"),
    "a row without any of a softmax": (
        13, "a = Add(x, m) s = Softmax<axis=-1>(a) n = IsNaN(s) y = Where(n, z, s)",
        {"m": np.where(np.tri(6, k=-1), 0, -np.inf).astype(np.float32), "z": 0.0}, "operator IsNaN"),
    "a choice of two": (13, "y = Where(c, x, x)", {"c": np.tri(6, dtype=bool)}, "between other things than a blob and"),
    "a weight along other axes": (13, "e = Expand(w, s) y = Concat<axis=2>(e, x)",
                                  {"w": (1, 1, 1, 6), "s": [3, 4, 1, 6]}, "it repeats a weight of shape"),
    "constants of items": (13, "y = Concat<axis=1>(w, x)", {"w": (3, 1, 6, 6)}, "it joins a batch and a constant"),
    "computed weight": (13, "a = Relu(x) y = Conv(x, a)", {}, "its weight is computed in the net"),
    "neighbours of no image": (13, "a = Flatten(x) y = LRN<size=3>(a)", {}, r"shape \(3, 144\); LRN takes"),
    "pixels between windows": (13, 'y = ConvTranspose<auto_pad="SAME_UPPER", strides=[4,4]>(x, w)', {"w": (4, 2, 3, 3)},
                               r"its output has size \[24, 24\], more than what its windows reach"),
    "the largest of all": (13, "t = Transpose<perm=[1,0,2,3]>(x) y = ReduceMax<keepdims=0>(t)", {}, "the batch axis"),
    "pad of items": (13, "a = Pad(x, p) y = Conv(a, w)", {"w": W, "p": [1, 0, 0, 0, 0, 0, 0, 0]},
                     "it pads the batch axis"),
    "pad before maximum": (13, "a = Pad(x, p) y = MaxPool<kernel_shape=[2,2]>(a)", {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
                           "zeros are put around an image whose values may be smaller"),
    "pad before maximum of a slope": (13, "a = LeakyRelu(x) b = Pad(a, p) y = MaxPool<kernel_shape=[2,2]>(b)",
                                      {"p": [0, 0, 1, 1, 0, 0, 1, 1]}, "zeros are put around an image whose values"),
    "pad behind windows rounded up": (
        13, "a = Relu(x) b = Pad(a, p) y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(b)",
        {"p": [0, 0, 0, 0, 0, 0, 1, 1]}, "a window lies outside of the image"),
    "pad with ones": (13, "a = Pad(x, p, v) y = Conv(a, w)", {"w": W, "p": [0, 0, 1, 1, 0, 0, 1, 1], "v": 1.0},
                      "another number than zero"),
    "reflecting too far": (13, 'y = Pad<mode="reflect">(x, p)', {"p": [0, 0, 6, 0, 0, 0, 0, 0]},
                           r"it puts 6 and 0 values around 6 of them \(reflect\)"),
    "items at the edge": (13, 'y = Pad<mode="edge">(x, p)', {"p": [1, 0, 0, 0, 0, 0, 0, 0]}, "it pads the batch axis"),
    "large pads": (13, "y = Conv<pads=[2147483647,0,0,0]>(x, w)", {"w": W}, "its windows are larger than any blob"),
    "negative pads": (13, "y = Conv<pads=[-1,0,0,0]>(x, w)", {"w": W}, r"'pads' is \[-1, 0, 0, 0\], not 4 sizes"),
    "weights of other channels": (13, "y = Conv(x, w)", {"w": (6, 5, 3, 3)}, "its weight has shape"),
    "groups": (13, "y = Conv<group=3>(x, w)", {"w": W}, "its group is 3"),
    "window too large": (13, "y = Conv(x, w)", {"w": (6, 4, 7, 7)}, "its windows do not fit"),
    "auto pad": (13, 'y = Conv<auto_pad="SOME">(x, w)', {"w": W}, "'SOME', which does not exist"),
    "kernel": (13, "y = Conv<kernel_shape=[2,2]>(x, w)", {"w": W}, "kernel_shape is not that of its weight"),
    "dilated pooling": (13, "y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)", {}, "its windows have holes"),
    "places": (13, "a, b = MaxPool<kernel_shape=[2,2]>(x) y = Cast<to=1>(b)", {}, "'b', the places of the maxima"),
    "transA": (13, "a = Flatten(x) y = Gemm<transA=1>(a, w)", {"w": (3, 2)}, "it transposes its first matrix"),
    "statistics": (13, "y = BatchNormalization(x, s, s, s, t)", {"s": (4,), "t": (5,)}, r"its variance has shape"),
    "a longer scale of axes that are normalized": (
        13, "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, small)"
        " r = Sqrt(e) n = Div(d, r) s = Mul(n, g) [norm] y = Add(s, b)",
        {"two": 2.0, "small": 1e-5, "g": (5,), "b": (6,)}, r"\(5,\) and \(6,\) .*operator Add, node 8 'norm'"),
    "a longer scale of one value": (
        13, "p = Slice(x, o, one, last) m = ReduceMean<axes=[-1]>(p) d = Sub(p, m) q = Mul(d, d)"
        " v = ReduceMean<axes=[-1]>(q) e = Add(v, small) r = Sqrt(e) n = Div(d, r) y = Mul(n, g)",
        {"o": [0], "one": [1], "last": [-1], "small": 1e-5, "g": (5,)},
        r"it normalizes axes of \(1,\), which a scale or bias of \(5,\) makes longer .*operator Mul, node 8"),
    "channels in groups": (21, "y = GroupNormalization<num_groups=3>(x, s, s)", {"s": (4,)}, "it makes 3 groups of"),
    "mean of a layer norm": (17, "a, m = LayerNormalization(x, s) y = Relu(m)", {"s": (6,)}, "'m' is read"),
    "training": (15, "y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s)", {"s": (4,)}, "as in training"),
    "dropout in training": (13, "y = Dropout(x, r, t)", {"r": 0.5, "t": np.array(True)}, "as in training"),
    "even neighbours": (13, "y = LRN<size=4>(x)", {}, "its size is 4"),
    "of the batch": (13, "y = ReduceMean<axes=[0,1,2,3]>(x)", {}, "it reduces the batch axis"),
    "softmax of the batch": (13, "y = Softmax<axis=0>(x)", {}, "it goes over the batch axis"),
    "first of equals": (13, "y = ArgMax<axis=1>(x)", {}, "of equal values it takes the first"),
    "exponent": (13, "y = Pow(x, x)", {}, "its exponent is computed in the net"),
    "broadcast": (13, "a = ReduceMean<axes=[2,3], keepdims=0>(x) y = Add(x, w)", {"w": (5, 1, 1, 1, 1)}, "axes"),
    "misfits": (13, "y = Add(x, w)", {"w": (5,)}, "do not fit together"),
    "whole numbers": (13, "y = Cast<to=7>(x)", {}, "it makes numbers of another type"),
    "sums of whole numbers": (13, "a = Cast<to=7>(x) b = Add(a, a) y = Gather(w, b)", {"w": (5, 3)},
                              "it computes with whole numbers"),
    "whole numbers among others": (13, "a = Cast<to=7>(x) b = Cast<to=1>(a) c = Concat<axis=1>(a, b) y = Relu(c)", {},
                                   "it computes with whole numbers"),
    "whole numbers joined with others": (13, "a = Cast<to=7>(x) c = Concat<axis=1>(a, x) y = Relu(c)", {},
                                         "it joins whole numbers"),
    "whole numbers as output": (13, "a = Cast<to=7>(x) b = Gather<axis=1>(a, i) y = Identity(b)",
                                {"i": [0]}, "output 'y' holds whole numbers"),
    "columns looked up": (13, "a = Cast<to=7>(x) y = Gather<axis=1>(w, a)", {"w": (5, 3)}, "along axis 1 of a weight"),
    "values of a list looked up": (13, "a = Cast<to=7>(x) y = Gather(w, a)", {"w": (5,)}, "Embed takes rows"),
    "rows of what is computed": (13, "a = Cast<to=7>(x) y = Gather(x, a)", {}, "its table is computed in the net"),
    "zero": (13, "y = Div(x, c)", {"c": 0.0}, "it divides by zero"),
    "computed shape": (13, "a = Cast<to=7>(x) y = Reshape(x, a)", {}, "its shape is computed in the net"),
    "steps": (13, "y = Slice(x, a, b, c, d)", {"a": [0], "b": [4], "c": [2], "d": [0]},
              "its starts, ends, axes and steps"),
    "part of the batch": (13, "y = Slice(x, a, b)", {"a": [0], "b": [1]}, "it takes some items of the batch"),
    "nothing": (13, "y = Slice(x, a, b, c)", {"a": [3], "b": [3], "c": [1]}, "it takes nothing of axis 1"),
    "reshape": (13, "y = Reshape(x, s)", {"s": [3, -1, -1]}, "more than one size open"),
    "reshape to others": (13, "y = Reshape(x, s)", {"s": [3, 5]}, "does not hold the values"),
    "uneven split": (13, "a, y = Split<axis=1>(x, s)", {"s": [1, 2]}, r"parts of \[1, 2\]"),
    "axis": (13, "y = Concat<axis=4>(x, x)", {}, "it names axis 4 of 4"),
    "axes twice": (13, "y = Transpose<perm=[0,1,1,2]>(x)", {}, "it names an axis twice"),
    "resized channels": (13, "y = Resize(x, , s)", {"s": np.array([1, 2, 1, 2], np.float32)},
                         "only the axes of .* behind the second can be resized"),
    "cut and resized": (13, 'y = Resize<coordinate_transformation_mode="tf_crop_and_resize", mode="linear">(x, r, s)',
                        {"r": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), "s": np.array([1, 1, 2, 2], np.float32)},
                        "it takes pixels by 'tf_crop_and_resize'"),
    "too many weights": (13, "a = Reshape(x, s) y = Resize(a, , t)",
                         {"s": [1, 1, 1, 432], "t": np.array([1, 1, 1, 2000], np.float32)},
                         "it makes 864000 values of 432"),
    "smoothed": (18, 'y = Resize<antialias=1, mode="linear">(x, , s)', {"s": np.array([1, 1, 2, 2], np.float32)},
                 "it has antialias"),
    "pooling of four axes": (13, "a = Unsqueeze(x, s) y = MaxPool<kernel_shape=[1,1,2,2]>(a)", {"s": [2, 3]},
                             "images, rows and volumes are pooled"),
    "sum of a matrix": (13, "a = Flatten(x) y = Gemm(a, w, c)", {"w": (144, 2), "c": (2, 2)},
                        r"\(3, 2\) and \(2, 2\) do not fit together"),
    "a row of other outputs": (13, "a = Flatten(x) y = Gemm(a, w, c)", {"w": (144, 2), "c": (3,)},
                               "an InnerProduct adds one number to each of its 2 outputs"),
    "mode of resizing": (13, 'y = Resize<mode="quadratic">(x, , s)', {"s": np.array([1, 1, 2, 2], np.float32)},
                         "its mode is 'quadratic'"),
    "mode of rounding": (13, 'y = Resize<nearest_mode="up">(x, , s)', {"s": np.array([1, 1, 2, 2], np.float32)},
                         "its nearest_mode is 'up'"),
    "attribute": (13, 'y = LeakyRelu<alpha="x">(x)', {}, "its attribute 'alpha' is no number"),
    "missing input": (13, "y = Conv(x)", {}, "its weight is missing"),
    "constant output": (13, "a = Relu(x) y = Identity(c)", {"c": 1.0}, "output 'y' is not computed"),
    "input as output": (13, "y = Identity(x)", {}, "output 'y' is not computed"),
    "huge constant": (13, "a = ConstantOfShape(s) y = Add(x, a)", {"s": [2**20, 2**20]}, "which is too many"),
    "huge result": (13, "y = Tile(x, r)", {"r": [1, 2**40, 1, 1]}, "which no blob can have"),
    "misfit of constants": (13, "a = Concat<axis=0>(s, t) y = Reshape(x, a)", {"s": [1], "t": np.zeros((1, 1))},
                            "node 0, which makes 'a'"),
    "old": (8, "y = Relu(x)", {}, "is of opset 8; 9 and later are read\n.*version_converter"),
    "sum with more axes": (13, "y = Sum(x, c)", {"c": (1, 1, 1, 1, 1)}, "a constant gives the result 5 axes"),
    "maximum with more axes": (13, "y = Max(x, c)", {"c": (1, 1, 1, 1, 1)}, "a constant gives the result 5 axes"),
    "minimum with several numbers": (13, "y = Min(x, c)", {"c": (4, 1, 1)}, "with a constant of several values"),
    "constant first": (13, "y = MatMul(c, x)", {"c": (5, 6)}, "its first matrix is a constant"),
    "new": (99, "y = Relu(x)", {}, "is of opset 99; the installed onnx knows"),
    "other domain": (13, "y = com.microsoft.Gelu(x)", {}, "no layer computes .*operator com.microsoft.Gelu, node 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_computes_is_refused_with_its_node(name, tmp_path):
    opset, body, weights, message = REFUSED[name]
    path = written(model(body, weights, opset=opset), tmp_path)
    with pytest.raises(EngineError, match=message) as caught:
        read_onnx(path)
    assert caught.value.exit_code == 65 and str(path) in str(caught.value)


def test_constants_that_are_too_large_together_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(folding, "MOST_VALUES", 1000)
    many = " ".join(f"a{n} = Expand(b, s) x{n + 1} = Add(x{n}, a{n})" for n in range(4))
    body = f"b = Constant<value_float=1.0>() x0 = Relu(x) {many} y = Relu(x4)"
    path = written(model(body, {"s": [1, 400, 1, 1]}, shape=(1, 400, 1, 1)), tmp_path)
    with pytest.raises(DataError, match=r"constants together have too many values \(operator Expand, node 6"):
        read_onnx(path)
    few = "b = Constant<value_float=1.0>() a = Expand(b, s) y = Mul(x, a)"
    read_onnx(written(model(few, {"s": [1, 400, 1, 1]}, shape=(1, 400, 1, 1)), tmp_path))


def test_values_that_are_not_finite_on_both_sides_are_named_as_in_the_model(tmp_path):
    path = written(model("y = Mul(x, c)", {"c": np.array(np.inf, np.float32)}), tmp_path)
    result = convert(path, tmp_path / "out.prototxt")
    assert result.holds and result.notes == ("values that are not finite, which proves little: y",)


def test_nothing_is_written_of_a_model_that_is_refused(tmp_path):
    path = written(model("y = Erf(x)"), tmp_path)
    with pytest.raises(NetError):
        convert(path, tmp_path / "out.prototxt")
    assert [each.name for each in tmp_path.iterdir()] == ["net.onnx"]


def _cycle(message: onnx.ModelProto) -> None:
    message.graph.node[0].input[0] = "y"


def _two_of_a_name(message: onnx.ModelProto) -> None:
    message.graph.node.add(op_type="Relu", input=["x"], output=["y"])


def _two_weights(message: onnx.ModelProto) -> None:
    message.graph.initializer.append(message.graph.initializer[0])


def _short(message: onnx.ModelProto) -> None:
    message.graph.initializer[0].raw_data = b"1234"


def _negative(message: onnx.ModelProto) -> None:
    message.graph.initializer[0].dims[0] = -6


def _enormous(message: onnx.ModelProto) -> None:
    message.graph.initializer[0].dims[0] = 2**40


def _quantised(message: onnx.ModelProto) -> None:
    message.graph.initializer[0].data_type = TensorProto.FLOAT8E4M3FN


def _whole_numbers(message: onnx.ModelProto) -> None:
    message.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(W, np.int8), "w"))


def _boolean_input(message: onnx.ModelProto) -> None:
    message.graph.input[0].type.tensor_type.elem_type = TensorProto.BOOL


def _rank_of_input(message: onnx.ModelProto) -> None:
    message.graph.input[0].type.tensor_type.ClearField("shape")


def _huge_input(message: onnx.ModelProto) -> None:
    message.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**40


def _attribute_twice(message: onnx.ModelProto) -> None:
    message.graph.node[0].attribute.extend([helper.make_attribute("group", 1)] * 2)


def _no_output(message: onnx.ModelProto) -> None:
    del message.graph.output[:]


def _unknown_output(message: onnx.ModelProto) -> None:
    message.graph.output[0].name = "z"


def _no_input(message: onnx.ModelProto) -> None:
    del message.graph.input[:]


def _outside(message: onnx.ModelProto) -> None:
    _external(message, "../weights")


def _absolute(message: onnx.ModelProto) -> None:
    _external(message, "/etc/passwd")


def _absent(message: onnx.ModelProto) -> None:
    _external(message, "weights")


def _external(message: onnx.ModelProto, location: str, **more: int) -> None:
    tensor = message.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))


# What is done to a model of one convolution, and what is said.
DAMAGED = {
    _cycle: r"nothing before it makes 'y' \(operator Conv",
    _two_of_a_name: r"'y' is there already \(operator Relu, node 1",
    _two_weights: "two weights called 'w'",
    _short: "weight 'w' has 4 bytes of data, and its shape needs 864",
    _negative: r"weight 'w' has shape \(-6, 4, 3, 3\), which no blob can have",
    _enormous: "which no blob can have",
    _quantised: "weight 'w' holds float8e4m3fn, which is not read",
    _whole_numbers: "its weight holds int8; layers compute with floats",
    _boolean_input: "input 'x' is bool; blobs hold floating-point numbers, int32 or int64",
    _rank_of_input: "input 'x' has no shape",
    _huge_input: "which no blob can have",
    _attribute_twice: "two attributes 'group'",
    _no_output: "has no outputs",
    _unknown_output: "nothing makes the output 'z'",
    _no_input: "nothing before it makes 'x'",
    _outside: "'../weights', which is outside of the model's folder",
    _absolute: "'/etc/passwd', which is outside",
    _absent: "cannot read .*weights: No such file",
}


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: damage.__name__)
def test_a_damaged_model_is_refused_with_what_is_wrong(damage: Callable[[onnx.ModelProto], None], tmp_path):
    message = model("y = Conv(x, w)", {"w": W})
    damage(message)
    with pytest.raises(EngineError, match=DAMAGED[damage]) as caught:
        read_onnx(written(message, tmp_path))
    assert caught.value.exit_code == 65


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(DataError, match=r"cannot read .*No such file"):
        read_onnx(path)
    for data in (b"", b"no model", model("y = Relu(x)").SerializeToString()[:-40]):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"net.onnx is no ONNX model"):
            read_onnx(path)


def test_external_data_is_read_beside_the_model_and_checked(tmp_path):
    message = model("y = Conv(x, w)", {"w": W})
    values = message.graph.initializer[0].raw_data
    (tmp_path / "weights").write_bytes(b"1234" + values)
    _external(message, "weights", offset=4, length=len(values))
    assert convert(written(message, tmp_path), tmp_path / "out.prototxt").holds
    (tmp_path / "weights").write_bytes(values)
    with pytest.raises(DataError, match=r"lies at bytes 4 to 868 of .*weights, which has 864"):
        read_onnx(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"input 'x' has the open shape \(batch, 4, 6, 6\)\n.*--input_shape x=1,3,224,224"),
        ({"z": SHAPE}, "has no input 'z'\n.*it has x"),
        ({"": (2, 4, 6, 7)}, r"the shape \(batch, 4, 6, 6\), not \(2, 4, 6, 7\)"),
        ({"x": (2, 4)}, r"the shape \(batch, 4, 6, 6\), not \(2, 4\)"),
    ],
)
def test_open_shapes_are_to_be_given(shapes, message, tmp_path):
    net = model("y = Relu(x)")
    net.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    path = written(net, tmp_path)
    with pytest.raises(UsageError, match=message):
        read_onnx(path, shapes)
    assert read_onnx(path, {"": SHAPE}).build().blobs["data"].shape == SHAPE
